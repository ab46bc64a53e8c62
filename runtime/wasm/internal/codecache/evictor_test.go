package codecache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// engine simulates an engine, which writes files under names of its own choice.
type engine struct {
	t      *testing.T
	root   string
	made   string
	writes int // number of files written
}

func newEngine(t *testing.T, version string) *engine {
	root := t.TempDir()
	return &engine{t: t, root: root, made: filepath.Join(root, version)}
}

func (e *engine) open(max int64) *Evictor {
	e.t.Helper()
	k, err := OpenEvictor(e.root, e.made, max)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(e.made, "engine"), 0o700); err != nil {
		e.t.Fatal(err)
	}
	return k
}

func (e *engine) file(name string) string { return filepath.Join(e.made, "engine", "x"+name) }

// compile finds the file of a name, or creates one of 1000 bytes.
func (e *engine) compile(name string) func() error {
	return func() error {
		if _, err := os.Stat(e.file(name)); err == nil {
			return nil
		}
		e.writes++
		return os.WriteFile(e.file(name), make([]byte, 1000), 0o600)
	}
}

func (e *engine) use(k *Evictor, name string) Held {
	e.t.Helper()
	held, err := k.Use(name, nil, e.compile(name))
	if err != nil {
		e.t.Fatal(err)
	}
	return held
}

// age sets the last use of a name's files to a time in the past.
func (e *engine) age(name string, by time.Duration) {
	e.t.Helper()
	at := time.Now().Add(-by)
	for _, f := range []string{e.file(name), filepath.Join(e.made, noteFolder, name)} {
		if err := os.Chtimes(f, at, at); err != nil {
			e.t.Fatal(err)
		}
	}
}

// has lists the files of the engine, without their first letter.
func (e *engine) has() (names []string) {
	e.t.Helper()
	files, err := os.ReadDir(filepath.Join(e.made, "engine"))
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, strings.TrimPrefix(f.Name(), "x"))
	}
	return names
}

func (e *engine) want(names ...string) {
	e.t.Helper()
	if got := e.has(); !slices.Equal(got, names) {
		e.t.Errorf("the directory has %v, want %v", got, names)
	}
}

// TestOldestUseGoesFirst fills a directory, also after a restart. The evictor must remove
// files by last use, not by age.
func TestOldestUseGoesFirst(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(3500)
	for i, name := range []string{"a", "b", "c"} {
		k.Release(e.use(k, name))
		e.age(name, time.Duration(9-i)*time.Hour)
	}
	k.Release(e.use(k, "a")) // found by the engine, not made
	k = e.open(3500)         // a restart
	k.Release(e.use(k, "d"))
	e.want("a", "c", "d")
	e.age("c", time.Hour)
	e.age("a", 2*time.Hour)
	k = e.open(2500)
	e.want("c", "d")
	if e.writes != 4 {
		t.Errorf("%d files were made, want 4", e.writes)
	}
	if notes, err := os.ReadDir(filepath.Join(e.made, noteFolder)); err != nil || len(notes) != 2 {
		t.Errorf("%d notes, %v; want those of c and d", len(notes), err)
	}
	k.Release(e.use(k, "a")) // it is made again
	e.want("a", "d")
}

// TestInUseStays checks that files in use stay beyond the limit, and are removed after
// their release.
func TestInUseStays(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(100)
	var held []Held
	for _, name := range []string{"a", "b"} {
		held = append(held, e.use(k, name))
	}
	again := e.use(k, "a")
	e.want("a", "b")
	k.Release(held[0])
	k.Sweep()
	e.want("a", "b") // another user holds it
	k.Release(again)
	k.Sweep()
	e.want("b")
	k.Release(held[1])
	k.Sweep()
	e.want()
}

// TestAlso checks that the caller's files are held together with those of the engine, and
// are evicted like them.
func TestAlso(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(100)
	other := filepath.Join(e.made, RewrittenFolder, "other")
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, make([]byte, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := k.Use("a", []string{other}, e.compile("a"))
	if err != nil {
		t.Fatal(err)
	}
	k.Sweep()
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file in use is gone: %v", err)
	}
	k.Release(held)
	k.Sweep()
	if _, err := os.Stat(other); err == nil {
		t.Error("a file that nobody uses stays")
	}
	if _, err := os.Stat(filepath.Dir(other)); err != nil {
		t.Errorf("the folder of this version is gone: %v", err)
	}
}

// TestOtherVersions checks that the files of another version count against the bound, and
// that its empty folders are removed.
func TestOtherVersions(t *testing.T) {
	e := newEngine(t, "v2")
	old := filepath.Join(e.root, "v1", "engine", "x")
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, make([]byte, 3000), 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	k := e.open(3500)
	if _, err := os.Stat(old); err != nil {
		t.Errorf("it went while there was room: %v", err)
	}
	k.Release(e.use(k, "a"))
	if _, err := os.Stat(filepath.Dir(old)); err == nil {
		t.Error("what another version left stays")
	}
	e.want("a")
}

// TestAfterACrash creates the files that a killed process leaves at each step.
func TestAfterACrash(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(10_000)
	k.Release(e.use(k, "whole"))
	k.Release(e.use(k, "unnoted"))
	k.Release(e.use(k, "damaged"))
	k.Release(e.use(k, "lost"))
	note := func(name string) string { return filepath.Join(e.made, noteFolder, name) }
	old := time.Now().Add(-2 * leftover)
	for name, write := range map[string]func(path string) error{
		note("unnoted"):                os.Remove, // killed between the file and its note
		e.file("lost"):                 os.Remove, // killed while the two were removed
		note("damaged"):                func(p string) error { return os.WriteFile(p, []byte("wheelwork shelf 1\nxxxx[\"../..\"]"), 0o600) },
		e.file("broken") + ".1.tmp":    func(p string) error { return os.WriteFile(p, make([]byte, 10), 0o600) },
		note("new-1"):                  func(p string) error { return os.WriteFile(p, make([]byte, 10), 0o600) },
		e.file("beginning") + ".2.tmp": func(p string) error { return os.WriteFile(p, make([]byte, 10), 0o600) },
	} {
		if err := write(name); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "broken") || strings.Contains(name, "new-1") {
			if err := os.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	k = e.open(10_000)
	e.want("beginning.2.tmp", "whole")
	if _, err := os.Stat(note("new-1")); err == nil {
		t.Error("a note that was not written to its end stays")
	}
	e.writes = 0
	for _, name := range []string{"whole", "unnoted", "damaged", "lost"} {
		k.Release(e.use(k, name))
	}
	if e.writes != 3 {
		t.Errorf("%d files were made, want 3", e.writes)
	}
	e.writes = 0
	k = e.open(10_000)
	for _, name := range []string{"whole", "unnoted", "damaged", "lost"} {
		k.Release(e.use(k, name))
	}
	if e.writes != 0 {
		t.Errorf("%d files were made after a restart, want none", e.writes)
	}
}

// TestNoteOutsideIsIgnored checks that a note that names a file outside the directory is
// ignored.
func TestNoteOutsideIsIgnored(t *testing.T) {
	e := newEngine(t, "v1")
	outside := filepath.Join(e.root, "precious")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := e.open(1 << 20)
	for _, text := range []string{`["../precious"]`, `["` + outside + `"]`, `[]`, `{}`, `[1]`} {
		if err := k.notes.Put("a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, ok := k.noted("a"); ok {
			t.Errorf("the note %s counts", text)
		}
	}
}

// TestTogether runs several users at the same time, with room for few files.
func TestTogether(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(3500)
	done := make(chan error)
	for i := range 8 {
		go func() {
			name := fmt.Sprint(i)
			held, err := k.Use(name, nil, func() error { return os.WriteFile(e.file(name), make([]byte, 1000), 0o600) })
			if err == nil {
				if _, err = os.Stat(e.file(name)); err == nil {
					k.Release(held)
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Errorf("a file that was just made: %v", err)
		}
	}
	k.Sweep()
	if got := e.has(); len(got) > 3 {
		t.Errorf("%d files are in a directory for three", len(got))
	}
}

// TestUseThatFails checks that Use returns the error of work and holds nothing.
func TestUseThatFails(t *testing.T) {
	e := newEngine(t, "v1")
	k := e.open(100)
	failure := fmt.Errorf("the compiler failed")
	if held, err := k.Use("a", nil, func() error { return failure }); err != failure || held != nil {
		t.Errorf("%v, %v", held, err)
	}
	k.Release(e.use(k, "a"))
	var none *Evictor
	if held, err := none.Use("a", nil, func() error { return failure }); err != failure || held != nil {
		t.Errorf("without a directory: %v, %v", held, err)
	}
	none.Release(nil)
	if len(k.inUse) != 0 || k.works != 0 {
		t.Errorf("in use: %v, working: %d", k.inUse, k.works)
	}
}
