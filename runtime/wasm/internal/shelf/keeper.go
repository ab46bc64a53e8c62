package shelf

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

// A Keeper bounds what a directory takes in which an engine keeps files of
// which nobody tells it the names: what was used last longest ago goes first,
// and never what is in use. It learns the names by looking before and after the
// engine worked, and writes them down in a note, so that it knows after a
// restart which files are used when the engine finds them there.
//
// A crash leaves nothing that is wrong: a file without a note is removed when
// the directory is opened, and a note without its files is made again.
//
// The zero value, and a nil one, bounds nothing.
type Keeper struct {
	root  string // what is bounded
	made  string // where the engine writes, below root
	notes Shelf  // in made
	max   int64

	mu    sync.Mutex
	inUse map[string]int // by path: who uses it
	works int            // calls of Use that are learning: no file is removed meanwhile
}

// noteFolder holds the notes.
const noteFolder = "notes"

// leftover is the age at which a file that was not written to its end is no
// write that goes on.
const leftover = time.Hour

// OpenKeeper bounds root to max bytes; made is where the engine of this version
// writes.
func OpenKeeper(root, made string, max int64) (*Keeper, error) {
	notes, err := Open(filepath.Join(made, noteFolder))
	if err != nil {
		return nil, err
	}
	k := &Keeper{root: root, made: made, notes: notes, max: max, inUse: map[string]int{}}
	k.dropUnnoted()
	k.Sweep()
	return k, nil
}

// Held are files in use.
type Held []string

// Use calls work, which has the engine find or make the files that belong to
// name, and holds these and the files also. What is held is not removed before
// it is released.
func (k *Keeper) Use(name string, also []string, work func() error) (Held, error) {
	if k == nil || k.root == "" {
		return nil, work()
	}
	if files, ok := k.noted(name); ok {
		held := k.hold(append(files, also...))
		if err := work(); err != nil {
			k.Release(held)
			return nil, err
		}
		return held, nil
	}
	k.mu.Lock()
	k.works++
	k.mu.Unlock()
	before := map[string]bool{}
	for _, f := range k.engineFiles() {
		before[f] = true
	}
	err := work()
	var made []string
	for _, f := range k.engineFiles() {
		if !before[f] {
			made = append(made, f)
		}
	}
	var held Held
	if err == nil {
		if len(made) > 0 { // of several at once each may get the files of the others: they are kept for longer then
			_ = k.note(name, made) // else it is learnt another time
		}
		held = k.hold(append(append(made, filepath.Join(k.notes.dir, name)), also...))
	}
	k.mu.Lock()
	k.works--
	k.mu.Unlock()
	k.Sweep()
	return held, err
}

// Release ends the use of files.
func (k *Keeper) Release(held Held) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range held {
		if k.inUse[f]--; k.inUse[f] <= 0 {
			delete(k.inUse, f)
		}
	}
}

// hold marks files as used now, and as in use.
func (k *Keeper) hold(files []string) Held {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, f := range files {
		k.inUse[f]++
		_ = os.Chtimes(f, now, now) // a cache that forgets too early makes again
	}
	return files
}

// note writes down which files the engine made.
func (k *Keeper) note(name string, files []string) error {
	relative := make([]string, len(files))
	for i, f := range files {
		var err error
		if relative[i], err = filepath.Rel(k.made, f); err != nil {
			return err
		}
	}
	data, err := json.Marshal(relative)
	if err != nil {
		return err
	}
	return k.notes.Put(name, data)
}

// noted returns the files of a name with its note, if all of them are there.
func (k *Keeper) noted(name string) (files []string, ok bool) {
	data, ok := k.notes.Get(name)
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
		f = filepath.Join(k.made, f)
		if _, err := os.Stat(f); err != nil {
			return nil, false
		}
		files = append(files, f)
	}
	return append(files, filepath.Join(k.notes.dir, name)), true
}

// isEngines says whether a folder of made is the engine's: ours are shelves.
func isEngines(folder string) bool { return folder != noteFolder && folder != RewrittenFolder }

// RewrittenFolder is the shelf of made whose files are held by who uses them.
const RewrittenFolder = "rewritten"

// engineFiles are the files that the engine has written to their end.
func (k *Keeper) engineFiles() (files []string) {
	folders, _ := os.ReadDir(k.made) // what cannot be read has nothing to bound
	for _, d := range folders {
		if !d.IsDir() || !isEngines(d.Name()) {
			continue
		}
		entries, _ := os.ReadDir(filepath.Join(k.made, d.Name()))
		for _, e := range entries {
			if e.Type().IsRegular() && !unfinished(e.Name()) {
				files = append(files, filepath.Join(k.made, d.Name(), e.Name()))
			}
		}
	}
	return files
}

// unfinished says whether a file is one that is being written, or was when its
// process ended.
func unfinished(name string) bool {
	return strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, "new-")
}

// notedFiles returns the note of each file of the engine that has one.
func (k *Keeper) notedFiles() map[string]string {
	of := map[string]string{}
	entries, _ := os.ReadDir(k.notes.dir)
	for _, e := range entries {
		files, ok := k.noted(e.Name())
		if !ok {
			continue
		}
		for _, f := range files {
			of[f] = e.Name()
		}
	}
	return of
}

// dropUnnoted removes the files of the engine that nobody knows the use of.
func (k *Keeper) dropUnnoted() {
	of := k.notedFiles()
	for _, f := range k.engineFiles() {
		if of[f] == "" {
			_ = os.Remove(f)
		}
	}
}

// unit are files that go together.
type unit struct {
	files []string // in the order in which they go
	bytes int64
	used  time.Time
	held  bool
}

// Sweep removes the files used last longest ago until the others take at most
// the limit, as far as they are not in use. What broken writes left goes too.
func (k *Keeper) Sweep() {
	if k == nil || k.root == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.works > 0 {
		return // whoever is last does it
	}
	units, total := k.units()
	slices.SortFunc(units, func(a, b *unit) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.files[0], b.files[0]))
	})
	for _, u := range units {
		if total <= k.max {
			break
		}
		if u.held {
			continue
		}
		for _, f := range u.files {
			_ = os.Remove(f)
			if !strings.HasPrefix(f, k.made+string(filepath.Separator)) {
				_ = os.Remove(filepath.Dir(f)) // of another version, and empty; else it stays
			}
		}
		total -= u.bytes
	}
}

// units reads the tree; the caller holds mu.
func (k *Keeper) units() (all []*unit, total int64) {
	of := k.notedFiles()
	byNote := map[string]*unit{}
	_ = filepath.WalkDir(k.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what is gone meanwhile, or cannot be read, is not counted
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
			u = &unit{}
			all = append(all, u)
			if note := of[path]; note != "" {
				byNote[note] = u
			}
		}
		u.add(path, filepath.Join(k.notes.dir, of[path]) == path)
		u.bytes += info.Size()
		if info.ModTime().After(u.used) {
			u.used = info.ModTime()
		}
		u.held = u.held || k.inUse[path] > 0 || unfinished(d.Name())
		return nil
	})
	return all, total
}

// add puts a note behind the files that it names: one that outlives them is seen
// to be wrong, and files that outlive it are nobody's.
func (u *unit) add(path string, isNote bool) {
	if isNote {
		u.files = append(u.files, path)
		return
	}
	u.files = slices.Insert(u.files, 0, path)
}
