package store

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listRuns reads all pages. It returns the runs and the number of unreadable blocks.
func listRuns(t *testing.T, s *Store) (runs []string, damaged int) {
	t.Helper()
	q := RunQuery{Limit: 50, Damaged: func(error) { damaged++ }}
	for {
		values, next, err := s.Runs(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			runs = append(runs, string(v))
		}
		if q.Cursor = next; next == "" {
			return runs, damaged
		}
	}
}

// TestDamagedHistory: a damaged block hides its own runs and no others. A repair gives it
// up and keeps the original file.
func TestDamagedHistory(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), SegmentBytes: 16 << 10}
	s := openStore(t, cfg)
	commitNumbered(t, s, 60)
	snapshot(t, s)
	all, _ := listRuns(t, s)
	closeStore(t, s)
	first := filepath.Join(cfg.Dir, historyName, "00000000000000000000.seg")
	content, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(content)
	content[3000] ^= 1
	if err := os.WriteFile(first, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, cfg)
	left, damaged := listRuns(t, s)
	if damaged != 1 || len(left) >= len(all) || len(left) < len(all)-20 {
		t.Fatalf("%d of %d runs are listed, %d damaged blocks", len(left), len(all), damaged)
	}
	if !strings.Contains(left[len(left)-1], all[len(all)-1]) {
		t.Errorf("the oldest run in the list is %q, want %q", left[len(left)-1], all[len(all)-1])
	}
	lost := -1
	for n := 10; n < 610 && lost < 0; n++ {
		if _, ok, err := s.Run(finished(n).App, id(n)); err != nil {
			lost = n
		} else if !ok {
			t.Fatalf("run %d is not there, and no error says why", n)
		}
	}
	if lost < 0 {
		t.Error("no run of the damaged block is told apart from one that never was")
	}
	closeStore(t, s)
	parts, _, err := Verify(cfg.Dir)
	if err != nil || damages(parts) != 1 {
		t.Fatalf("verify: %+v, %v", parts, err)
	}
	r, err := Repair(cfg.Dir)
	if err != nil || damages(r.Parts) != 1 || r.Quarantine == "" {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	if kept, err := os.ReadFile(filepath.Join(cfg.Dir, r.Quarantine, historyName, filepath.Base(first))); err != nil || !bytes.Equal(kept, content) || bytes.Equal(kept, before) {
		t.Errorf("the original is not in quarantine: %v", err)
	}
	if parts, _, err := Verify(cfg.Dir); err != nil || damages(parts) != 0 {
		t.Errorf("verify after a repair: %+v, %v", parts, err)
	}
	s = openStore(t, cfg)
	if again, damaged := listRuns(t, s); damaged != 0 || len(again) != len(left) {
		t.Errorf("%d runs after the repair, want %d; %d damaged", len(again), len(left), damaged)
	}
}

func damages(parts []Part) (n int) {
	for _, p := range parts {
		n += len(p.Damage)
	}
	return n
}

// TestMissingHistory: every start reports a missing segment until a repair accepts the
// loss.
func TestMissingHistory(t *testing.T) {
	var said bytes.Buffer
	cfg := Config{Dir: t.TempDir(), SegmentBytes: 16 << 10, Logger: slog.New(slog.NewTextHandler(&said, nil))}
	s := openStore(t, cfg)
	commitNumbered(t, s, 60)
	snapshot(t, s)
	closeStore(t, s)
	remove(t, filepath.Join(cfg.Dir, historyName, "00000000000000000000.seg"))
	for _, repaired := range []bool{false, true} {
		if repaired {
			if r, err := Repair(cfg.Dir); err != nil || damages(r.Parts) != 1 {
				t.Fatalf("repair: %+v, %v", r, err)
			}
		}
		said.Reset()
		closeStore(t, openStore(t, cfg))
		if told := strings.Contains(said.String(), "files are missing") && strings.Contains(said.String(), "log=history from_position=0"); told == repaired {
			t.Errorf("repaired %v: the log says\n%s", repaired, &said)
		}
	}
}
