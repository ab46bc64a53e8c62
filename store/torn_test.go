package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// large returns a batch that takes several transactions. All its rows hold n.
func large(applied uint64, n int) *Batch {
	b := &Batch{Applied: applied}
	for i := range 40_000 {
		b.Rows = append(b.Rows, Row{fmt.Sprintf("minute/a/%05d", i), binary.AppendUvarint(make([]byte, 100), uint64(n))})
	}
	return b
}

// values counts the distinct values of rows.
func values(t *testing.T, s *Store) map[string]int {
	t.Helper()
	seen := map[string]int{}
	err := s.Rows("minute/a/", "", "", func(_ string, value []byte) error {
		seen[string(value)]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestTornCommit ends a process between two transactions of a commit.
func TestTornCommit(t *testing.T) {
	for _, snapshots := range []bool{true, false} {
		dir := t.TempDir()
		s := openStore(t, Config{Dir: dir})
		commit(t, s, large(5, 1))
		want := uint64(0)
		if snapshots {
			want = snapshot(t, s)
		}
		commit(t, s, large(7, 2)) // complete
		closeStore(t, s)
		s = openStore(t, Config{Dir: dir})
		if got := values(t, s); s.Applied() != 7 || len(got) != 1 {
			t.Fatalf("after a whole commit: applied %d, %d different values", s.Applied(), len(got))
		}
		w := newWriter(s.db)
		rows := large(9, 3).rows()
		for _, r := range append([]row{{tornKey(), []byte{1}}}, rows[:len(rows)/2]...) {
			if err := w.set(r.key, r.value); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.commit(); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)

		s = openStore(t, Config{Dir: dir})
		if got := values(t, s); s.Applied() != want || len(got) > 1 {
			t.Errorf("snapshots %v: applied %d, want %d; %d different values", snapshots, s.Applied(), want, len(got))
		}
		commit(t, s, large(11, 4))
		if got := values(t, s); len(got) != 1 {
			t.Errorf("the next commit left %d different values", len(got))
		}
	}
}

// TestSnapshotsAreWhole takes snapshots during commits of several transactions and opens
// the store from each.
func TestSnapshotsAreWhole(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir})
	commit(t, s, large(1, 1))
	var commits sync.WaitGroup
	commits.Go(func() {
		for n := 2; n < 8; n++ {
			if err := s.Commit(large(uint64(n), n)); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 6 {
		if _, err := s.Snapshot(context.Background()); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.MkdirAll(copied, 0o700); err != nil {
			t.Fatal(err)
		}
		s.snapshot.Lock() // keeps links from being removed meanwhile
		err := os.CopyFS(filepath.Join(copied, snapshotsDir), os.DirFS(s.path(snapshotsDir)))
		s.snapshot.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		r := openStore(t, Config{Dir: copied})
		if got := values(t, r); len(got) != 1 {
			t.Errorf("snapshot %d, applied %d: %d different values", i, r.Applied(), len(got))
		}
		closeStore(t, r)
	}
	commits.Wait()
}
