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

// goldenRecords returns the records of the golden log, which has a sealed segment and an
// active one.
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

// TestGoldenFormat1 reads a log that the first version of the format wrote. The files
// never change.
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

// checkBytes encodes the decoded parts of a segment again and compares the bytes.
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

// smallGroups returns the used bytes of an unsealed segment with a few small groups, and its footer once it is sealed.
func smallGroups(tb testing.TB) (active, footer []byte) {
	tb.Helper()
	seg := &segment{id: 1, base: 1, size: minSegmentBytes, seed: segmentSeed(storeID{1}, 1)}
	m := mender{seg: seg, off: headerSize, start: headerSize, next: 1, g: group{first: 1}}
	for seq := range uint64(6) {
		if err := m.putRecord(frame{kind: 3, queue: 7, seq: seq + 1, body: bodyFor(seq, int(seq)*5)}); err != nil {
			tb.Fatal(err)
		}
		if seq%2 == 1 {
			m.closeGroup()
		}
	}
	if err := m.putHole(hole{first: 7, end: 9, at: 1}); err != nil {
		tb.Fatal(err)
	}
	h := header{store: storeID{1}, segment: 1, epoch: 1, base: 1, size: seg.size}
	ft := footerOf(&m)
	return append(h.encode(), m.buf...), ft.encode(seg.id, seg.seed)
}

func footerOf(m *mender) footer {
	return footer{base: m.seg.base, end: m.next, dataEnd: m.off, lastCommit: m.commit}
}

// addSegments gives a fuzz target the parts of small segments: header, records, footer,
// and whether to correct checksums.
func addSegments(f *testing.F) {
	active, end := smallGroups(f)
	f.Add(active[:headerUsed], active[headerSize:], []byte{}, false)
	f.Add(active[:headerUsed], active[headerSize:], end, false)
	f.Add(active[:headerUsed], active[headerSize:headerSize+100], []byte{}, true)
	f.Add(active[:headerUsed], []byte{}, end, true)
	f.Add([]byte{}, active[headerSize:], end, true)
	f.Add([]byte{}, []byte{}, []byte{}, false)
}

// oneSegment returns a disk with a log of these parts, or nil if they are too large.
func oneSegment(head, start, end []byte, checksums bool) *simDisk {
	if len(head) > headerUsed || len(start) > 4<<10 || len(end) > footerSize {
		return nil
	}
	b := make([]byte, minSegmentBytes)
	copy(b, head)
	copy(b[headerSize:], start)
	copy(b[minSegmentBytes-len(end):], end)
	if checksums { // so that the code behind the checksums is reached
		repairChecksums(b[:headerSize+len(start)], segmentSeed(storeID(b[16:32]), 1))
	}
	return &simDisk{files: map[string]*inode{segmentName(1): {mem: b}}, durable: map[string]*inode{}, free: 1 << 30, total: 1 << 31}
}

// FuzzSegment checks a log whose only segment starts and ends with any bytes. Verify and
// Open agree about it, and a log that Open accepts can be read as consecutive sequences.
func FuzzSegment(f *testing.F) {
	addSegments(f)
	f.Fuzz(func(t *testing.T, head, start, end []byte, checksums bool) {
		d := oneSegment(head, start, end, checksums)
		if d == nil {
			return
		}
		r, err := check(d)
		if err != nil {
			t.Fatal(err)
		}
		l, err := loaded(d)
		var rot *CorruptError
		if errors.As(err, &rot) == r.Sound() || !r.Sound() != (err != nil) {
			t.Fatalf("Verify finds %v, Open says: %v", r.Damage, err)
		}
		if err == nil {
			checkRead(t, l, r)
		}
	})
}

// FuzzRepair repairs such logs. Afterwards no damage is left, or Repair reports that it
// cannot repair the log.
func FuzzRepair(f *testing.F) {
	addSegments(f)
	f.Fuzz(func(t *testing.T, head, start, end []byte, checksums bool) {
		d := oneSegment(head, start, end, checksums)
		if d == nil {
			return
		}
		if _, err := mend(d, SkipDamaged); err != nil {
			return
		}
		r, err := check(d)
		if err != nil || !r.Sound() {
			t.Fatalf("after the repair: %v, %v", r.Damage, err)
		}
		l, err := loaded(d)
		if err != nil {
			t.Fatal(err)
		}
		checkRead(t, l, r)
	})
}

// loaded does the work of Open before it starts its goroutines.
func loaded(d *simDisk) (*Log, error) {
	l := &Log{cfg: small("sim"), disk: d}
	if err := l.cfg.validate(); err != nil {
		return nil, err
	}
	return l, l.load()
}

// checkRead reads a log for which Verify made the report r.
func checkRead(t *testing.T, l *Log, r Report) {
	t.Helper()
	want, read := l.First(), uint64(0)
	if want != r.First || l.Next() != r.Next {
		t.Fatalf("Verify finds %d to %d, Open %d to %d", r.First, r.Next, want, l.Next())
	}
	for {
		err := l.Read(want, func(e Entry) error {
			if e.Seq != want {
				t.Fatalf("record %d where %d must be", e.Seq, want)
			}
			want++
			read++
			return nil
		})
		var lost *LostError
		if !errors.As(err, &lost) {
			if err != nil || want != l.Next() || read != r.Records {
				t.Fatalf("read %d records up to %d, next is %d: %v", read, want, l.Next(), err)
			}
			return
		}
		if lost.First != want || lost.End <= want {
			t.Fatalf("%+v where record %d must be", lost, want)
		}
		want = lost.End
	}
}

// FuzzRecords scans any bytes as the records of a segment after correcting their
// checksums, so that the code behind the checksums is reached. It must not panic or loop
// forever, offsets must grow, and bodies must be within the data.
func FuzzRecords(f *testing.F) {
	active, _ := smallGroups(f)
	f.Add(active[headerSize:])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4<<10 {
			return
		}
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

// FuzzRepairNote parses any bytes as the file REPAIR. An accepted note encodes to the
// same bytes.
func FuzzRepairNote(f *testing.F) {
	f.Add(begun{CutBehind, "20200101T000000.000Z"}.text())
	f.Add(begun{SkipDamaged, "1"}.text())
	f.Add([]byte("cut\n../x\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		note, err := parseNote(b)
		if err != nil {
			return
		}
		if !bytes.Equal(note.text(), b) || !filepath.IsLocal(note.folder) || filepath.Base(note.folder) != note.folder {
			t.Fatalf("%q is read as %+v", b, note)
		}
	})
}

// repairChecksums follows the length fields of b and corrects every checksum.
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
