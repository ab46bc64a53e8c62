package mq

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata/v1; only for a new format version")

const goldenDir = "testdata/v1"

// goldenRecords is what the golden log holds: a sealed segment and an active one.
func goldenRecords() (units [][]Record) {
	for i := range 40 {
		seq := uint64(i)
		units = append(units, []Record{
			{Queue: uint32(i), Type: uint8(i * 7), Body: bodyFor(seq, i*100)},
			{Queue: 1<<32 - 1, Type: 255, Body: []byte("x")},
			{},
		})
	}
	return units
}

// TestGoldenFormat1 reads a log that the first version of the format wrote. The files stay as they are for ever.
func TestGoldenFormat1(t *testing.T) {
	if *writeGolden {
		createGolden(t)
	}
	dir := t.TempDir()
	names := unpackGolden(t, dir)
	if len(names) != 2 {
		t.Fatalf("golden files: %v", names)
	}
	for _, name := range names {
		checkBytes(t, filepath.Join(dir, name))
	}
	l := mustOpen(t, small(dir))
	var want []Entry
	for _, u := range goldenRecords() {
		for _, r := range u {
			want = append(want, Entry{uint64(len(want) + 1), r.Queue, r.Type, r.Body})
		}
	}
	got, err := readAll(l, 1)
	if err == nil {
		err = sameEntries(got, want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if first := mustWrite(t, l, Record{}); first != uint64(len(want)+1) {
		t.Fatalf("first = %d", first)
	}
}

// checkBytes encodes what is decoded from a segment and compares the bytes.
func checkBytes(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, why := decodeHeader(b)
	if why != "" {
		t.Fatalf("%s: %s", path, why)
	}
	if !bytes.Equal(h.encode(), b[:headerSize]) {
		t.Fatalf("%s: the header is encoded differently", path)
	}
	s := &segment{id: h.segment, base: h.base, size: h.size, seed: segmentSeed(h.store, h.segment)}
	sc := newScanner(bytes.NewReader(b), s.seed, headerSize, s.limit())
	frames := 0
	for ; ; frames++ {
		at := sc.off
		f, err := sc.next()
		if err != nil {
			break
		}
		again := make([]byte, frameSize(len(f.body)))
		putFrame(again, s.seed, at, f)
		if !bytes.Equal(again, b[at:sc.off]) {
			t.Fatalf("%s: the record at %d is encoded differently", path, at)
		}
		if c, ok := takeCommit(f); ok && !bytes.Equal(c.append(nil), f.body) {
			t.Fatalf("%s: the commit at %d is encoded differently", path, at)
		}
	}
	if frames < 10 {
		t.Fatalf("%s: %d records", path, frames)
	}
	if ft, ok := decodeFooter(b[s.limit():], s); ok {
		if !bytes.Equal(ft.encode(s.id, s.seed), b[s.limit():]) {
			t.Fatalf("%s: the footer is encoded differently", path)
		}
	} else if s.id == 1 {
		t.Fatalf("%s: no footer", path)
	}
}

func unpackGolden(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		packed, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(p), ".gz")
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func createGolden(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, small(dir))
	for _, u := range goldenRecords() {
		mustWrite(t, l, u...)
	}
	mustClose(t, l)
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		_, err = w.Write(b)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(goldenDir, filepath.Base(p)+".gz"), packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenSegment returns the unpacked bytes of the golden segment with the given number.
func goldenSegment(tb testing.TB, id uint64) []byte {
	tb.Helper()
	f, err := os.Open(filepath.Join(goldenDir, segmentName(id)+".gz"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// FuzzSegment opens a log whose last segment starts with any bytes. It must be refused or read as a dense sequence,
// and then take a record and survive a restart.
func FuzzSegment(f *testing.F) {
	sealed, active := goldenSegment(f, 1), goldenSegment(f, 2)
	f.Add(active[:usedBytes(active)], []byte{})
	f.Add(active[:headerSize+100], []byte{})
	f.Add(sealed[:headerUsed], []byte{})
	f.Add(sealed[:20000], sealed[len(sealed)-footerSize:])
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, start, end []byte) {
		if len(start) > minSegmentBytes || len(end) > footerSize {
			return
		}
		h, why := decodeHeader(start)
		if why == "" && h.size != minSegmentBytes {
			return
		}
		b := make([]byte, minSegmentBytes)
		copy(b, start)
		copy(b[minSegmentBytes-len(end):], end)
		d := newSimDisk()
		d.files[segmentName(max(h.segment, 1))] = &inode{mem: b, platter: bytes.Clone(b)}
		l, err := openSim(d)
		if err != nil {
			var rot *CorruptError
			if !errors.As(err, &rot) {
				t.Fatal(err)
			}
			return
		}
		want := l.First()
		if err := l.Read(want, func(e Entry) error {
			if e.Seq != want {
				t.Fatalf("record %d where %d must be", e.Seq, want)
			}
			want++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want != l.Next() {
			t.Fatalf("read up to %d, next is %d", want, l.Next())
		}
		if want < 1<<63 {
			mustWrite(t, l, Record{Body: []byte("more")})
		}
		mustClose(t, l)
		l, err = openSim(d.clone())
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
	})
}

// FuzzRecords scans any bytes as the records of a segment whose checksums are repaired first, so that what lies behind the checksums is
// reached: no panic, no endless loop, offsets that only grow, bodies inside the data.
func FuzzRecords(f *testing.F) {
	active := goldenSegment(f, 2)
	f.Add(active[headerSize:usedBytes(active)])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		const seed = 42
		b = append(make([]byte, headerSize), b...)
		repairChecksums(b, seed)
		s := &segment{id: 1, base: 1, size: int64(len(b) + footerSize), seed: seed}
		tl, err := findTail(bytes.NewReader(b), s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if tl.off < headerSize || tl.off > int64(len(b)) || tl.next < 1 {
			t.Fatalf("tail %+v of %d bytes", tl, len(b))
		}
		if _, _, err := laterProof(bytes.NewReader(b), s, tl.off, tl.next); err != nil {
			t.Fatal(err)
		}
		sc := newScanner(bytes.NewReader(b), seed, headerSize, int64(len(b)))
		for {
			at := sc.off
			fr, err := sc.next()
			if err != nil {
				if err != io.EOF && err != errBadRecord {
					t.Fatal(err)
				}
				return
			}
			if sc.off != at+int64(frameSize(len(fr.body))) {
				t.Fatalf("step from %d to %d over a body of %d", at, sc.off, len(fr.body))
			}
		}
	})
}

// repairChecksums walks b by its length fields and makes every checksum right.
func repairChecksums(b []byte, seed uint32) {
	for off := headerSize; off+recordHeaderSize <= len(b); {
		n := bodyLen(b[off:])
		if n > int64(len(b)-off-recordHeaderSize) {
			return
		}
		used := recordHeaderSize + int(n)
		crc := frameCRC(seed, int64(off), b[off:off+used])
		b[off], b[off+1], b[off+2], b[off+3] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
		off += frameSize(int(n))
	}
}
