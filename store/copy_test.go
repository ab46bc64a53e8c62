package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// copyTo copies a store to a directory. It calls work when half is copied.
func copyTo(t *testing.T, s *Store, dir string, work func()) Copied {
	t.Helper()
	var last *os.File
	var begun Copied
	end := func() {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	c, err := s.Copy(t.Context(), func(c Copied) error { begun = c; return nil }, func(name string, size int64) (io.Writer, error) {
		end()
		if n++; n == 2 && work != nil {
			work()
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, err
		}
		var err error
		last, err = os.Create(to)
		return last, err
	})
	end()
	if err != nil {
		t.Fatal(err)
	}
	if begun.Applied != c.Applied || c.Bytes == 0 {
		t.Errorf("it was %+v, and is %+v", begun, c)
	}
	return c
}

// TestCopyOfStore: a copy has the contents that the store had at one moment, without
// deleted rows. It opens as a working store.
func TestCopyOfStore(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 8 << 10})
	seq := uint64(0)
	put := func(n int, key, value string) {
		t.Helper()
		seq++
		var v []byte
		if value != "" {
			v = []byte(value)
		}
		commit(t, s, &Batch{Applied: seq, Rows: []Row{{Key: key, Value: v}}, Finished: finishedRange(n, n+100), Keys: []Keys{{"a", fmt.Append(nil, key)}}, Revisions: []Revision{numberedRevision(int(seq))}})
	}
	for i := range 10 {
		put(i*100, fmt.Sprint("row", i), "old")
	}
	snapshot(t, s)
	put(1000, "row3", "")
	put(1100, "row4", "new")
	if err := s.AppendLog([]LogEntry{{App: "a", Run: id(1), Count: 1, Value: []byte("a line")}}); err != nil {
		t.Fatal(err)
	}
	before, runs := dump(t, s), pages(t, s, RunQuery{})
	dir := t.TempDir()
	c := copyTo(t, s, dir, func() {
		put(1200, "row5", "too late")
		put(1300, "row6", "")
		snapshot(t, s)
	})
	if c.Applied != 12 {
		t.Errorf("it includes %d", c.Applied)
	}
	b := openStore(t, Config{Dir: dir, SegmentBytes: 8 << 10})
	if b.Applied() != 12 {
		t.Errorf("the copy includes %d", b.Applied())
	}
	wantDump(t, b, before...)
	last := ""
	for k := range eachKeys(t, b) {
		last = string(k.Value)
	}
	if last != "row4" {
		t.Errorf("its keys end with those of %q", last)
	}
	if got := pages(t, b, RunQuery{}); !slices.Equal(got, runs) || len(got) != 1200 {
		t.Errorf("%d runs of %d", len(got), len(runs))
	}
	for n := 1; n < 15; n++ {
		r := numberedRevision(n)
		revs, _, err := b.Revisions(r.App, r.Kind, r.Name, "", 10)
		if want := min(1, max(0, 13-n)); err != nil || len(revs) != want {
			t.Errorf("the copy has %d revisions of change %d, %v", len(revs), n, err)
		}
	}
	commit(t, b, &Batch{Applied: 13, Rows: []Row{{Key: "more", Value: []byte("x")}}, Finished: finishedRange(1200, 1300)})
	snapshot(t, b)
	b = reopen(t, b)
	if got := pages(t, b, RunQuery{}); len(got) != 1300 {
		t.Errorf("%d runs after that", len(got))
	}
	// The receiver of the files may refuse them.
	no := errors.New("no")
	for n := range 3 {
		_, err := s.Copy(t.Context(), func(Copied) error {
			if n == 0 {
				return no
			}
			return nil
		}, func(string, int64) (io.Writer, error) {
			if n == 1 {
				return nil, no
			}
			return refusing{no}, nil
		})
		if !errors.Is(err, no) {
			t.Errorf("refusal %d: %v", n, err)
		}
	}
	snapshot(t, s) // the refused copies hold back no retention
	if freed, err := s.history.Retain(1 << 60); err != nil || freed == 0 {
		t.Errorf("nothing can be dropped: %v", err)
	}
}

type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }
