package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

type file struct {
	name    string
	content []byte
}

func made(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Info{MadeAt: time.Unix(1_700_000_000, 0).UTC(), Server: "s", Applied: 7})
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, f := range files {
		to, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for rest := f.content; len(rest) > 0; { // in pieces of all sizes
			n := min(len(rest), 1+rand.IntN(len(f.content)))
			if _, err := to.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		size += int64(len(f.content))
	}
	sum, err := w.Close()
	if err != nil || sum.Files != int64(len(files)) || sum.Bytes != size {
		t.Fatalf("%+v, %v", sum, err)
	}
	return b.Bytes()
}

func read(b []byte) (files []file, info Info, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, info, err
	}
	for {
		name, err := r.Next()
		if err == io.EOF {
			return files, r.Info(), nil
		}
		if err != nil {
			return files, r.Info(), err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return files, r.Info(), err
		}
		files = append(files, file{name, content})
	}
}

func some() []file {
	large := make([]byte, 3*maxData+17)
	for i := range large {
		large[i] = byte(i * i >> 3)
	}
	return []file{{"a", []byte("x")}, {"store/history/1.seg", large}, {"empty", nil}, {"b/c_d-e.f", []byte("y")}}
}

func TestRoundTrip(t *testing.T) {
	want := some()
	whole := made(t, want...)
	got, info, err := read(whole)
	if err != nil || len(got) != len(want) || info.Applied != 7 || info.Server != "s" {
		t.Fatalf("%d files, %+v, %v", len(got), info, err)
	}
	for i := range want {
		if got[i].name != want[i].name || !bytes.Equal(got[i].content, want[i].content) {
			t.Errorf("%s came back as %s with %d bytes", want[i].name, got[i].name, len(got[i].content))
		}
	}
	// A reader that skips files gets the same end and the same errors.
	r, err := NewReader(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		name, err := r.Next()
		if err == io.EOF && n == len(want) {
			break
		}
		if err != nil || name != want[n].name {
			t.Fatalf("file %d is %s, %v", n, name, err)
		}
	}
	if s := r.Summary(); s.Files != 4 || s.Bytes != int64(len(want[1].content)+2) {
		t.Errorf("%+v", s)
	}
	if files, _, err := read(made(t)); err != nil || len(files) != 0 {
		t.Errorf("one without files: %v, %v", files, err)
	}
}

// TestDamage changes every byte, and cuts at every byte. The reader finds each of these
// faults.
func TestDamage(t *testing.T) {
	whole := made(t, file{"a", []byte("some bytes")}, file{"b", nil}, file{"c", []byte("more")})
	for at := range whole {
		if _, _, err := read(whole[:at]); !errors.Is(err, ErrCut) {
			t.Errorf("cut at %d: %v", at, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << bit
			_, _, err := read(bad)
			newer := (*NewerError)(nil)
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrCut) && !errors.As(err, &newer) {
				t.Errorf("bit %d of byte %d: %v", bit, at, err)
			}
		}
	}
	if _, _, err := read(append(bytes.Clone(whole), 'x')); !errors.Is(err, ErrDamaged) {
		t.Errorf("with more behind it: %v", err)
	}
	newer := bytes.Clone(whole)
	binary.LittleEndian.PutUint16(newer[8:], 2)
	var n *NewerError
	if _, _, err := read(newer); !errors.As(err, &n) || n.Form != 2 {
		t.Errorf("a newer one: %v", err)
	}
}

// frames returns a backup made of frames with correct checksums.
func frames(kinds string, bodies ...string) []byte {
	var b bytes.Buffer
	w := &Writer{w: &b, all: nil}
	b.Write(magic[:])
	b.Write([]byte{Form, 0})
	for i, k := range kinds {
		w.buf = append(w.buf[:0], byte(k))
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(bodies[i])))
		w.buf = binary.LittleEndian.AppendUint32(w.buf, frameSum(byte(k), uint64(i), []byte(bodies[i])))
		b.Write(w.buf)
		b.WriteString(bodies[i])
	}
	return b.Bytes()
}

// TestOrder combines frames that are valid by themselves in orders that are not.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		kinds  string
		bodies []string
	}{
		{"f", []string{"a"}},
		{"i", []string{"no JSON"}},
		{"ii", []string{"{}", "{}"}},
		{"id", []string{"{}", "x"}},
		{"ie", []string{"{}", "x"}},
		{"iff", []string{"{}", "a", "b"}},
		{"ifz", []string{"{}", "a", ""}},
		{"ifd", []string{"{}", "a", ""}},
		{"ife", []string{"{}", "a", "wrong sum"}},
		{"iz", []string{"{}", "wrong sum"}},
		{"i?", []string{"{}", ""}},
		{"if", []string{"{}", "../a"}},
		{"if", []string{"{}", "/a"}},
		{"if", []string{"{}", ".."}},
		{"if", []string{"{}", "a/../../b"}},
		{"if", []string{"{}", "a//b"}},
		{"if", []string{"{}", "a\x00b"}},
		{"if", []string{"{}", `a\b`}},
		{"if", []string{"{}", ""}},
	} {
		if _, _, err := read(frames(c.kinds, c.bodies...)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s %q: %v", c.kinds, c.bodies, err)
		}
	}
	foot := string(sumOf("x"))
	if _, _, err := read(frames("ifdefde", "{}", "a", "x", foot, "a", "x", foot)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a name twice: %v", err)
	}
	w, err := NewWriter(io.Discard, Info{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create("../x"); err == nil {
		t.Error("a name that leads out was written")
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("bytes of no file were written")
	}
}

func sumOf(content string) []byte {
	w := &Writer{w: io.Discard, all: sha256.New(), file: sha256.New(), open: true}
	w.file.Write([]byte(content))
	return w.file.Sum(binary.LittleEndian.AppendUint64(nil, uint64(len(content))))
}

// TestWriterFails: the first error of the underlying writer is final.
func TestWriterFails(t *testing.T) {
	whole := made(t, some()...)
	for _, room := range []int{0, 9, 30, 200, len(whole) - 1} {
		w, err := NewWriter(&limited{room}, Info{Server: "s", Applied: 7, MadeAt: time.Unix(1_700_000_000, 0).UTC()})
		for _, f := range some() {
			if err == nil {
				_, err = w.Create(f.name)
			}
			if err == nil {
				_, err = w.Write(f.content)
			}
		}
		if _, cerr := w.Close(); cerr == nil {
			t.Errorf("with room for %d of %d bytes it was made", room, len(whole))
		}
	}
}

type limited struct{ room int }

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.room {
		return 0, errors.New("full")
	}
	l.room -= len(p)
	return len(p), nil
}

func TestRecords(t *testing.T) {
	want := []Record{{1, 2, []byte("a")}, {0, 0, nil}, {1<<32 - 1, 255, bytes.Repeat([]byte("x"), 200_000)}}
	var b []byte
	for _, r := range want {
		b = AppendRecord(b, r)
	}
	n := 0
	err := ReadRecords(bytes.NewReader(b), func(r Record) error {
		if w := want[n]; r.Queue != w.Queue || r.Type != w.Type || !bytes.Equal(r.Body, w.Body) {
			return fmt.Errorf("record %d", n)
		}
		n++
		return nil
	})
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	for _, at := range []int{1, 2, 4, 6, 8, 12, len(b) - 1} {
		err := ReadRecords(bytes.NewReader(b[:at]), func(Record) error { return nil })
		if whole := at == 4; !whole && !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
	for _, bad := range [][]byte{
		bytes.Repeat([]byte{0xff}, 20),
		{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		{0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0},
	} {
		if err := ReadRecords(bytes.NewReader(bad), func(Record) error { return nil }); !errors.Is(err, ErrDamaged) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// FuzzRead: the reader ends on any input. An accepted input equals the stream that a
// Writer makes of the same files.
func FuzzRead(f *testing.F) {
	whole := made(f, file{"a", []byte("some bytes")}, file{"b", nil})
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(made(f))
	f.Add(frames("ifde", "{}", "a", "x", string(sumOf("x"))))
	f.Add(frames("if", "{}", "../a"))
	f.Add([]byte("WWBACKUP"))
	f.Fuzz(func(t *testing.T, b []byte) {
		files, info, err := read(b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, info)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			to, err := w.Create(f.name)
			if err == nil {
				_, err = to.Write(f.content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if back, _, err := read(again.Bytes()); err != nil || len(back) != len(files) {
			t.Fatalf("%d files of %d, %v", len(back), len(files), err)
		}
	})
}

func FuzzRecords(f *testing.F) {
	f.Add(AppendRecord(AppendRecord(nil, Record{1, 2, []byte("a")}), Record{3, 4, nil}))
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		if err := ReadRecords(bytes.NewReader(b), func(r Record) error { again = AppendRecord(again, r); return nil }); err == nil && len(again) > len(b) {
			t.Fatalf("%x reads as %x", b, again)
		}
	})
}
