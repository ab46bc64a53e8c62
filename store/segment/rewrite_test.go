package segment

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestRewrite compares all that a log finds before and after its segments are rewritten.
func TestRewrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	blocks := randomBlocks(r, 200)
	appendAll(t, l, r, blocks)
	before, pos := l.Segments(), positions(t, l)
	marked := func(p []byte) bool { return p[0]%2 == 0 }
	for i := range blocks {
		if marked(blocks[i].Payload) {
			blocks[i].Payload = make([]byte, len(blocks[i].Payload))
		}
	}
	if err := l.Seal(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { // each search finds all blocks, whatever is rewritten meanwhile
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := 0
			for _, err := range l.Find(nil, End) {
				if err != nil {
					t.Error(err)
					return
				}
				n++
			}
			if n != len(blocks) {
				t.Errorf("a search found %d of %d blocks", n, len(blocks))
				return
			}
		}
	})
	for _, sp := range before {
		changed, err := l.Rewrite(sp.From, func(_ int64, _ []uint64, p []byte) bool {
			if !marked(p) {
				return false
			}
			clear(p)
			return true
		})
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		if changed, err := l.Rewrite(sp.From, func(int64, []uint64, []byte) bool { return false }); changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	close(stop)
	wg.Wait()
	check := func() {
		t.Helper()
		checkFinds(t, l, r, blocks)
		if !slices.Equal(positions(t, l), pos) {
			t.Error("blocks have moved")
		}
	}
	check()
	length := l.Length()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(dir, "test", length)
	if err != nil || len(report.Damage) > 0 {
		t.Fatal(report.Damage, err)
	}
	opt := testOptions
	opt.Length = length
	l = mustOpen(t, dir, opt)
	check()
	if names, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(names) > 0 {
		t.Error(names, err)
	}
}

func positions(t *testing.T, l *Log) (all []int64) {
	t.Helper()
	for b, err := range l.From(0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Pos)
	}
	return all
}

// TestRewriteOfRemovedSegment: nothing comes back.
func TestRewriteOfRemovedSegment(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	appendAll(t, l, r, randomBlocks(r, 100))
	first := true
	changed, err := l.Rewrite(0, func(_ int64, _ []uint64, p []byte) bool {
		if first {
			first = false
			if _, err := l.Remove(func(sp Span) bool { return sp.From == 0 }); err != nil {
				t.Error(err)
			}
		}
		clear(p)
		return true
	})
	if changed || err != nil {
		t.Fatal(changed, err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, filename(0)+"*")); err != nil || len(names) > 0 {
		t.Error(names, err)
	}
	active := l.Base()
	if changed, err := l.Rewrite(active, func(int64, []uint64, []byte) bool { return true }); changed || err != nil {
		t.Error("the active segment was rewritten", err)
	}
}

// TestSparse: pages of zeros are left out, and the file reads as it was written.
func TestSparse(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	want := make([]byte, 10*pageSize+100)
	copy(want[pageSize-3:], "abcdef")
	want[5*pageSize] = 1
	s := sparse{w: f}
	for at := 0; at < len(want); at += 1000 {
		if err := s.write(want[at:min(at+1000, len(want))], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(int64(len(want))); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Error("the file differs", err)
	}
}
