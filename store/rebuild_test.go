package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rebuilding returns the directory of a closed store. Its snapshot includes the journal
// up to 40, and its view up to 50.
func rebuilding(t *testing.T) string {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	commitNumbered(t, s, 40)
	snapshot(t, s)
	commitNumbered(t, s, 10)
	closeStore(t, s)
	return s.cfg.Dir
}

// TestRebuildProvesTheJournal: a rebuild that would lose records changes nothing and
// names them, and a rebuild that is carried out keeps the old view.
func TestRebuildProvesTheJournal(t *testing.T) {
	closed := rebuilding(t)
	for name, c := range map[string]struct {
		journal     Journal
		accept      bool
		want        string // part of the refusal; "": none
		first, last uint64 // lost
	}{
		"whole":               {journal: Journal{1, 51}},
		"ahead":               {journal: Journal{41, 90}},
		"unknown":             {},
		"empty":               {journal: Journal{1, 1}, want: "it is not the journal that belongs to this store"},
		"empty, accepted":     {journal: Journal{1, 1}, accept: true, want: "it is not the journal that belongs to this store"},
		"begins late":         {journal: Journal{43, 51}, want: "records 41 to 42 are in neither"},
		"begins late, forced": {journal: Journal{43, 51}, accept: true, want: "records 41 to 42 are in neither"},
		"ends early":          {journal: Journal{1, 46}, want: "records 46 to 50 are in the view alone"},
		"ends early, forced":  {journal: Journal{1, 46}, accept: true, first: 46, last: 50},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, closed)
			before := listing(t, dir)
			r, err := Rebuild(dir, RebuildOptions{Journal: c.journal, AcceptLoss: c.accept})
			if c.want != "" {
				if short := (*ShortJournalError)(nil); !errors.As(err, &short) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				if after := listing(t, dir); after != before {
					t.Errorf("a refused rebuild changed the directory:\n%s\nwas\n%s", after, before)
				}
				s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10})
				if s.Applied() != 50 {
					t.Errorf("applied %d after a refused rebuild, want 50", s.Applied())
				}
				return
			}
			if err != nil || r.Snapshot != 40 || r.View != 50 || r.Unread != nil || r.First != c.first || r.Last != c.last {
				t.Fatalf("got %+v, %v", r, err)
			}
			if kept := copyDir(t, dir); len(mustGlob(t, filepath.Join(kept, r.Quarantine, viewName, "*.sst"))) == 0 {
				t.Errorf("there is no view in %s", r.Quarantine)
			}
			s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10})
			if s.Applied() != 40 {
				t.Fatalf("applied %d, want that of the snapshot", s.Applied())
			}
			checkNumbered(t, s)
		})
	}
}

// TestLook reads the reach of a closed store and of a killed one, and changes nothing.
func TestLook(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	commitNumbered(t, s, 40)
	snapshot(t, s)
	commitNumbered(t, s, 10)
	killed := copyDir(t, s.cfg.Dir)
	closeStore(t, s)
	for _, dir := range []string{killed, s.cfg.Dir} {
		before := listing(t, dir)
		if r, err := Look(dir); err != nil || r != (Reach{Snapshot: 40, View: 50}) {
			t.Errorf("%s: %+v, %v", dir, r, err)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("a look changed the directory:\n%s\nwas\n%s", after, before)
		}
	}
	remove(t, filepath.Join(killed, viewName, "MANIFEST"))
	if r, err := Look(killed); err != nil || r.Snapshot != 40 || r.View != 0 || r.Unread == nil {
		t.Errorf("without a manifest: %+v, %v", r, err)
	}
}

// TestOpenKeepsTheOldView: Open replaces a damaged view only if the journal has the
// records that the snapshots lack, and keeps the old view until a snapshot includes those
// records.
func TestOpenKeepsTheOldView(t *testing.T) {
	dir := rebuilding(t)
	changeTables(t, dir, func(b []byte) []byte { return b[:len(b)/2] })
	before := listing(t, dir)
	if _, err := Open(Config{Dir: dir, SegmentBytes: 16 << 10, Journal: spanning(45, 51)}); err == nil || !strings.Contains(err.Error(), "records 41 to 44 are in neither") {
		t.Fatalf("got %v", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("a refused start changed the directory:\n%s\nwas\n%s", after, before)
	}
	s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10, Journal: spanning(30, 51)})
	if _, err := os.Stat(s.path(oldViewName)); err != nil {
		t.Errorf("the old view is gone before a snapshot: %v", err)
	}
	commitNumbered(t, s, 10)
	snapshot(t, s)
	if _, err := os.Stat(s.path(oldViewName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old view is there after a snapshot: %v", err)
	}
}

// listing lists all files below dir with their modification times, except the file with
// the boot.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Name() != bootedName {
			rel, _ := filepath.Rel(dir, path)
			b.WriteString(rel + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// spanning returns a journal with the records first <= sequence < next.
func spanning(first, next uint64) func() (Journal, error) {
	return func() (Journal, error) { return Journal{first, next}, nil }
}

// TestOpenAsksForTheJournal: Open asks for the span of the journal only if it needs it,
// and changes nothing if it gets an error.
func TestOpenAsksForTheJournal(t *testing.T) {
	dir := rebuilding(t)
	silent := errors.New("the journal does not answer")
	cfg := Config{Dir: dir, SegmentBytes: 16 << 10, Journal: func() (Journal, error) { return Journal{}, silent }}
	closeStore(t, openStore(t, cfg))
	changeTables(t, dir, func(b []byte) []byte { return b[:len(b)/2] })
	before := listing(t, dir)
	if _, err := Open(cfg); !errors.Is(err, silent) {
		t.Fatalf("got %v", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("a refused start changed the directory:\n%s\nwas\n%s", after, before)
	}
}

// TestSetAside: afterwards the whole store is in the quarantine, can be opened there, and
// moves with the quarantine to another store.
func TestSetAside(t *testing.T) {
	dir := rebuilding(t)
	place, err := SetAside(dir, "a test")
	if err != nil || place == "" {
		t.Fatalf("%q, %v", place, err)
	}
	if again, err := SetAside(dir, "a test"); err != nil || again != "" {
		t.Errorf("an empty store was set aside to %q: %v", again, err)
	}
	if s := openStore(t, Config{Dir: dir, SegmentBytes: 16 << 10}); s.Applied() != 0 {
		t.Errorf("what was set aside is still in the store: it includes record %d", s.Applied())
	} else {
		closeStore(t, s)
	}
	replacing := t.TempDir()
	if err := KeepQuarantine(dir, replacing); err != nil {
		t.Fatal(err)
	}
	if err := KeepQuarantine(dir, replacing); err != nil { // the quarantine is empty
		t.Fatal(err)
	}
	s := openStore(t, Config{Dir: filepath.Join(replacing, place), SegmentBytes: 16 << 10})
	if s.Applied() != 50 {
		t.Errorf("the store that was set aside includes record %d, want 50", s.Applied())
	}
	checkNumbered(t, s)
}
