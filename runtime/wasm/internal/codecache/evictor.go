package codecache

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// An Evictor bounds the size of a directory in which an engine stores files under names
// of its own choice. It removes the least recently used files first, and never a file in
// use. It learns the names by listing the directory before and after the engine worked,
// and writes them into a note, so that after a restart it knows the files that the engine
// finds there.
//
// A crash leaves no wrong state: OpenEvictor removes a file without a note, and a note
// whose files are missing is written again.
//
// The zero value and a nil Evictor bound nothing.
type Evictor struct {
	root  string // the bounded directory
	made  string // the directory below root in which the engine writes
	notes Dir    // the folder of notes in made
	max   int64  // bytes

	mu    sync.Mutex
	inUse map[string]int // number of users by path
	works int            // calls of Use that learn names; Sweep removes no file meanwhile
}

// noteFolder holds the notes.
const noteFolder = "notes"

// leftover is the age from which an unfinished file counts as the rest of a write that
// was interrupted.
const leftover = time.Hour

// OpenEvictor bounds root to max bytes; made is the directory in which this version of the
// engine writes.
func OpenEvictor(root, made string, max int64) (*Evictor, error) {
	notes, err := Open(filepath.Join(made, noteFolder))
	if err != nil {
		return nil, err
	}
	e := &Evictor{root: root, made: made, notes: notes, max: max, inUse: map[string]int{}}
	e.dropUnnoted()
	e.Sweep()
	return e, nil
}

// Held are files in use.
type Held []string

// Exist reports whether there are files and all of them exist. Among them are a note and the
// files of the caller, which a failure to write leaves out.
func (h Held) Exist() bool {
	for _, f := range h {
		if _, err := os.Stat(f); err != nil {
			return false
		}
	}
	return len(h) > 0
}

// Use calls work, in which the engine finds or makes the files that belong to name. It
// holds these files and the files in also until the caller releases them; a held file is
// never removed.
func (e *Evictor) Use(name string, also []string, work func() error) (Held, error) {
	if e == nil || e.root == "" {
		return nil, work()
	}
	if files, ok := e.noted(name); ok {
		held := e.hold(append(files, also...))
		if err := work(); err != nil {
			e.Release(held)
			return nil, err
		}
		return held, nil
	}
	e.mu.Lock()
	e.works++
	e.mu.Unlock()
	before := map[string]bool{}
	for _, f := range e.engineFiles() {
		before[f] = true
	}
	err := work()
	var made []string
	for _, f := range e.engineFiles() {
		if !before[f] {
			made = append(made, f)
		}
	}
	var held Held
	if err == nil {
		if len(made) > 0 { // concurrent calls may get each other's files, which only retains them for longer
			_ = e.note(name, made) // without a note, the next use learns the names
		}
		held = e.hold(append(append(made, filepath.Join(e.notes.dir, name)), also...))
	}
	e.mu.Lock()
	e.works--
	e.mu.Unlock()
	e.Sweep()
	return held, err
}

// Release ends the use of files.
func (e *Evictor) Release(held Held) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range held {
		if e.inUse[f]--; e.inUse[f] <= 0 {
			delete(e.inUse, f)
		}
	}
}

// Discard removes the files that the engine made for a name, because it cannot use them. It
// makes them again under the same names, so their note stays. The zero value and a nil
// Evictor have no files.
func (e *Evictor) Discard(name string) {
	if e == nil || e.root == "" {
		return
	}
	files, ok := e.noted(name)
	if !ok {
		return
	}
	for _, f := range files {
		if filepath.Dir(f) != e.notes.dir {
			_ = os.Remove(f) // the engine fails again if the file stays
		}
	}
}

// hold counts a use of files and sets the time of their last use.
func (e *Evictor) hold(files []string) Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, f := range files {
		e.inUse[f]++
		_ = os.Chtimes(f, now, now) // without it the file is evicted early and made again
	}
	return files
}

// note stores the names of the files that the engine made.
func (e *Evictor) note(name string, files []string) error {
	relative := make([]string, len(files))
	for i, f := range files {
		var err error
		if relative[i], err = filepath.Rel(e.made, f); err != nil {
			return err
		}
	}
	data, err := json.Marshal(relative)
	if err != nil {
		return err
	}
	return e.notes.Put(name, data)
}

// noted returns the files of a name and its note, if all of them exist.
func (e *Evictor) noted(name string) (files []string, ok bool) {
	data, ok := e.notes.Get(name)
	if !ok {
		return nil, false
	}
	var relative []string
	if json.Unmarshal(data, &relative) != nil || len(relative) == 0 {
		return nil, false
	}
	for _, f := range relative {
		if !filepath.IsLocal(f) {
			return nil, false
		}
		f = filepath.Join(e.made, f)
		if _, err := os.Stat(f); err != nil {
			return nil, false
		}
		files = append(files, f)
	}
	return append(files, filepath.Join(e.notes.dir, name)), true
}

// isEngines reports whether the engine, and not this package, writes a folder of made.
func isEngines(folder string) bool { return folder != noteFolder && folder != RewrittenFolder }

// RewrittenFolder is the folder of made with the rewritten modules. Users hold its files.
const RewrittenFolder = "rewritten"

// engineFiles returns the files that the engine has finished.
func (e *Evictor) engineFiles() (files []string) {
	folders, _ := os.ReadDir(e.made) // a directory that cannot be read has no files to evict
	for _, d := range folders {
		if !d.IsDir() || !isEngines(d.Name()) {
			continue
		}
		found, _ := os.ReadDir(filepath.Join(e.made, d.Name()))
		for _, f := range found {
			if f.Type().IsRegular() && !unfinished(f.Name()) {
				files = append(files, filepath.Join(e.made, d.Name(), f.Name()))
			}
		}
	}
	return files
}

// unfinished reports whether a process writes a file, or ended while it did.
func unfinished(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, "new-")
}

// notedFiles returns the name of the note by the path of each file that has one.
func (e *Evictor) notedFiles() map[string]string {
	of := map[string]string{}
	notes, _ := os.ReadDir(e.notes.dir)
	for _, n := range notes {
		files, ok := e.noted(n.Name())
		if !ok {
			continue
		}
		for _, f := range files {
			of[f] = n.Name()
		}
	}
	return of
}

// dropUnnoted removes the files of the engine that have no note.
func (e *Evictor) dropUnnoted() {
	of := e.notedFiles()
	for _, f := range e.engineFiles() {
		if of[f] == "" {
			_ = os.Remove(f)
		}
	}
}

// entry is a set of files that are evicted together.
type entry struct {
	files []string // in the order of their removal
	bytes int64
	used  time.Time
	held  bool
}

// Sweep removes the least recently used files that are not in use until the rest has at
// most max bytes. It also removes the files of interrupted writes.
func (e *Evictor) Sweep() {
	if e == nil || e.root == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.works > 0 {
		return // the last call of Use sweeps
	}
	entries, total := e.entries()
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.files[0], b.files[0]))
	})
	for _, u := range entries {
		if total <= e.max {
			break
		}
		if u.held {
			continue
		}
		for _, f := range u.files {
			_ = os.Remove(f)
			if !strings.HasPrefix(f, e.made+string(filepath.Separator)) {
				_ = os.Remove(filepath.Dir(f)) // succeeds only for an empty directory, which another version left
			}
		}
		total -= u.bytes
	}
}

// entries lists the directory and returns its size in bytes. The caller holds mu.
func (e *Evictor) entries() (all []*entry, total int64) {
	of := e.notedFiles()
	byNote := map[string]*entry{}
	_ = filepath.WalkDir(e.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // a file that is gone or cannot be read is not counted
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if unfinished(d.Name()) && time.Since(info.ModTime()) > leftover {
			_ = os.Remove(path)
			return nil
		}
		total += info.Size()
		u := byNote[of[path]]
		if u == nil {
			u = &entry{}
			all = append(all, u)
			if note := of[path]; note != "" {
				byNote[note] = u
			}
		}
		u.add(path, filepath.Join(e.notes.dir, of[path]) == path)
		u.bytes += info.Size()
		if info.ModTime().After(u.used) {
			u.used = info.ModTime()
		}
		u.held = u.held || e.inUse[path] > 0 || unfinished(d.Name())
		return nil
	})
	return all, total
}

// add puts the note behind the files that it names. If a crash interrupts the removal, the
// note remains, and a reader sees that its files are missing; files without a note would
// have no known use until the next start.
func (u *entry) add(path string, isNote bool) {
	if isNote {
		u.files = append(u.files, path)
		return
	}
	u.files = slices.Insert(u.files, 0, path)
}
