package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cutPayload is the purge of these tests: "|" and what follows become "P".
func cutPayload(value []byte, _ int64) ([]byte, error) {
	head, _, found := bytes.Cut(value, []byte("|"))
	if !found {
		return value, nil
	}
	return append(bytes.Clone(head), 'P'), nil
}

var removalHead = []byte("head")

// withPayload is a run with a payload of 40 bytes, which names it; every 10th has an empty one.
func withPayload(n int) Finished {
	f := finished(n)
	f.Shared, f.Value = removalHead, fmt.Appendf(nil, "|payload-%06d-%s", n, strings.Repeat("x", 24))
	if n%10 == 9 {
		f.Value = nil
	}
	return f
}

func removalStore(t *testing.T, runs int) *Store {
	t.Helper()
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	s.SetPurge(cutPayload)
	var lines []LogEntry
	for n := range runs {
		f := withPayload(n)
		lines = append(lines, LogEntry{App: f.App, Run: f.ID, Count: 1, Value: fmt.Appendf(nil, "line-%06d", n)})
		if n%50 == 49 {
			commit(t, s, &Batch{Applied: uint64(n), Finished: ranged(n-49, n+1, withPayload)})
			if err := s.AppendLog(lines); err != nil {
				t.Fatal(err)
			}
			lines = nil
		}
	}
	return s
}

func ranged(from, to int, of func(int) Finished) (all []Finished) {
	for n := from; n < to; n++ {
		all = append(all, of(n))
	}
	return all
}

// fate is what happens to run n: removed, purged, or nothing.
func fate(n int) string { return []string{"removed", "purged", "", ""}[n%4] }

func removalsOf(from, to int) (all []Removal) {
	for n := from; n < to; n++ {
		r := Removal{App: withPayload(n).App, ID: withPayload(n).ID}
		switch fate(n) {
		case "purged":
			r.PayloadMs = 1000
			fallthrough
		case "removed":
			all = append(all, r)
		}
	}
	return all
}

// checkRemovals compares all that readers see with what they should.
func checkRemovals(t *testing.T, s *Store, runs int) {
	t.Helper()
	listed := map[string]bool{}
	for _, v := range pages(t, s, RunQuery{Limit: 7}) {
		listed[v] = true
	}
	want := 0
	for n := range runs {
		f := withPayload(n)
		value, ok, err := s.Run(f.App, f.ID)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		if err := s.Log(f.App, f.ID, 0, func(LogEntry) error { lines++; return nil }); err != nil {
			t.Fatal(err)
		}
		shown := whole(f)
		if fate(n) == "purged" && len(f.Value) > 0 {
			shown = "headP"
		}
		if ok != (fate(n) != "removed") || ok && string(value) != shown || (lines == 1) != (fate(n) == "") {
			t.Fatalf("run %d, %q: found %v with %q and %d lines", n, fate(n), ok, value, lines)
		}
		if ok {
			want++
			if !listed[shown] {
				t.Fatalf("run %d is on no page", n)
			}
		}
	}
	if got := len(pages(t, s, RunQuery{Limit: 100})); got != want {
		t.Fatalf("the pages have %d runs, want %d", got, want)
	}
}

// onDisk returns the runs of which a payload or a line is in the files of the store's logs.
func onDisk(t *testing.T, dir string, runs int) map[int]bool {
	t.Helper()
	var all []byte
	for _, name := range append(mustGlob(t, filepath.Join(dir, historyName, "*")), mustGlob(t, filepath.Join(dir, logsName, "*"))...) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	there := map[int]bool{}
	for n := range runs {
		there[n] = bytes.Contains(all, fmt.Appendf(nil, "payload-%06d", n)) || bytes.Contains(all, fmt.Appendf(nil, "line-%06d", n))
	}
	return there
}

func eraseAll(t *testing.T, s *Store) {
	t.Helper()
	for n := 0; s.Removing(); n++ {
		if n == 100 {
			t.Fatal("removed runs are not erased")
		}
		snapshot(t, s)
	}
}

// TestRemovals checks that a removal hides at once, and that snapshots erase the bytes and
// nothing else.
func TestRemovals(t *testing.T) {
	const runs = 400
	s := removalStore(t, runs)
	before := s.HistoryLength()
	commit(t, s, &Batch{Applied: runs, Removals: removalsOf(0, runs)})
	checkRemovals(t, s, runs)
	s = reopen(t, s)
	s.SetPurge(cutPayload)
	checkRemovals(t, s, runs)
	snapshot(t, s)
	if there := onDisk(t, s.cfg.Dir, runs); !there[0] {
		t.Fatal("the run was erased although it may be counted again")
	}
	commit(t, s, &Batch{Applied: runs + 1, Settled: before})
	eraseAll(t, s)
	checkRemovals(t, s, runs)
	for n, there := range onDisk(t, s.cfg.Dir, runs) {
		if there != (fate(n) == "") {
			t.Errorf("run %d, %q: on the disk: %v", n, fate(n), there)
		}
	}
	if n := s.removed.n.Load(); n != 0 {
		t.Errorf("%d marks stay", n)
	}
	s = reopen(t, s)
	s.SetPurge(cutPayload)
	checkRemovals(t, s, runs)
	closeStore(t, s)
	remove(t, filepath.Join(s.cfg.Dir, viewName))
	s = openStore(t, s.cfg)
	s.SetPurge(cutPayload)
	checkRemovals(t, s, runs)
	parts, _, err := func() ([]Part, Reach, error) { closeStore(t, s); return Verify(s.cfg.Dir) }()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if len(p.Damage) > 0 {
			t.Errorf("%s: %v", p.Name, p.Damage)
		}
	}
}

// TestRemovalCrashes opens copies of the store from between the steps of erasing.
func TestRemovalCrashes(t *testing.T) {
	const runs = 200
	s := removalStore(t, runs)
	commit(t, s, &Batch{Applied: runs, Removals: removalsOf(0, runs)})
	snapshot(t, s)
	commit(t, s, &Batch{Applied: runs, Settled: s.HistoryLength()})
	check := func(step string, change func(dir string)) {
		t.Helper()
		dir := copyDir(t, s.cfg.Dir)
		change(dir)
		c := openStore(t, Config{Dir: dir, SegmentBytes: s.cfg.SegmentBytes})
		c.SetPurge(cutPayload)
		checkRemovals(t, c, runs)
		commit(t, c, &Batch{Applied: runs + 1, Removals: removalsOf(0, runs), Settled: s.HistoryLength()}) // the replay
		eraseAll(t, c)
		checkRemovals(t, c, runs)
		for n, there := range onDisk(t, dir, runs) {
			if there != (fate(n) == "") {
				t.Errorf("%s: run %d, %q: on the disk: %v", step, n, fate(n), there)
			}
		}
		if left := mustGlobAny(t, filepath.Join(dir, "*", "*.tmp")); len(left) > 0 {
			t.Errorf("%s: %v stay", step, left)
		}
	}
	check("before", func(string) {})
	if err := s.history.Seal(); err != nil {
		t.Fatal(err)
	}
	check("the active segment is sealed", func(string) {})
	check("half of a new file", func(dir string) {
		name := filepath.Join(dir, historyName, fmt.Sprintf("%020d.seg", 0))
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name+".tmp", content[:len(content)/2], 0o600); err != nil {
			t.Fatal(err)
		}
	})
	found, err := s.remains(t.Context(), s.removed.some(), s.HistoryLength())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.rewriteAll(t.Context(), found, s.HistoryLength()); err != nil {
		t.Fatal(err)
	}
	check("some files are rewritten, and the marks are there", func(string) {})
	check("the view is lost too", func(dir string) { remove(t, filepath.Join(dir, viewName)) })
	eraseAll(t, s)
	check("after", func(string) {})
	check("the view is lost after it", func(dir string) { remove(t, filepath.Join(dir, viewName)) })
}

func mustGlobAny(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRemovedPages pages through runs that are removed and erased after each page.
func TestRemovedPages(t *testing.T) {
	const runs = 200
	s := removalStore(t, runs)
	seen, after := 0, [16]byte{}
	for applied := uint64(runs); ; applied++ {
		values, _, err := s.Runs(RunQuery{App: "app1", Limit: 30, After: after})
		if err != nil {
			t.Fatal(err)
		}
		if len(values) == 0 {
			break
		}
		var all []Removal
		for range values {
			n := runs - 1 - 2*seen
			seen++
			all = append(all, Removal{App: "app1", ID: id(n)})
			after = id(n)
		}
		commit(t, s, &Batch{Applied: applied, Removals: all, Settled: s.HistoryLength()})
		eraseAll(t, s)
	}
	if seen != runs/2 {
		t.Errorf("%d of %d runs were on a page", seen, runs/2)
	}
}

// TestTightPayload checks that a run whose value has no room for the time of the deletion keeps
// its mark, and that its removal still works.
func TestTightPayload(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	s.SetPurge(func(value []byte, _ int64) ([]byte, error) {
		return append(bytes.TrimSuffix(bytes.Clone(value), []byte("+")), '+'), nil
	})
	f := finished(1)
	commit(t, s, &Batch{Applied: 1, Finished: []Finished{f}, Removals: []Removal{{App: f.App, ID: f.ID, PayloadMs: 5}}, Settled: 0})
	commit(t, s, &Batch{Applied: 2, Settled: s.HistoryLength()})
	for range 3 {
		snapshot(t, s)
		if v, ok, err := s.Run(f.App, f.ID); err != nil || !ok || string(v) != whole(f)+"+" {
			t.Fatalf("%q %v %v", v, ok, err)
		}
	}
	if s.Removing() || s.removed.n.Load() != 1 {
		t.Errorf("removing: %v, %d marks", s.Removing(), s.removed.n.Load())
	}
	commit(t, s, &Batch{Applied: 3, Removals: []Removal{{App: f.App, ID: f.ID}}})
	commit(t, s, &Batch{Applied: 4, Removals: []Removal{{App: f.App, ID: f.ID, PayloadMs: 6}}}) // too late
	if _, ok, err := s.Run(f.App, f.ID); err != nil || ok {
		t.Fatal(ok, err)
	}
	eraseAll(t, s)
	if n := s.removed.n.Load(); n != 0 {
		t.Errorf("%d marks stay", n)
	}
}

// TestRemovalsCount checks that a run is counted after a restart although it was removed, until the
// statistics have it.
func TestRemovalsCount(t *testing.T) {
	s := removalStore(t, 50)
	commit(t, s, &Batch{Applied: 100, Removals: removalsOf(0, 50)})
	snapshot(t, s)
	n := 0
	if err := s.Since(0, func([]byte) error { n++; return nil }); err != nil || n != 50 {
		t.Errorf("%d runs, %v", n, err)
	}
}

// TestEarlierProgramsRefuseRemovals checks the version of the view.
func TestEarlierProgramsRefuseRemovals(t *testing.T) {
	if b := (meta{}).encode(); b[0] != 5 {
		t.Errorf("version %d without removals", b[0])
	}
	m := meta{applied: 1, removes: true}
	b := m.encode()
	if got, err := decodeMeta(b); b[0] != 6 || err != nil || got != m {
		t.Error(b[0], got, err)
	}
}
