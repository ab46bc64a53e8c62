package verifier

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A codeCache has the machine code of interpreters in a directory, so that not every upload
// of a script compiles its interpreter (ADR 45). An entry is a folder that one child of the
// verifier has filled, which had the bytes of the interpreter and nothing else. The cache
// publishes the folder under a name that the child did not choose, with a checksum over all
// of it. Nothing writes to it afterwards: children that have scripts only read it, and may
// write no file.
//
// Every failure counts as absence: the interpreter is then compiled. One process uses a
// directory at a time.
type codeCache struct {
	dir string // "": nothing is stored
	max int64  // bytes of all entries

	mu     sync.Mutex // guards the directory
	opened bool       // what another process left was removed
	wait   time.Time  // before it no entry is filled
}

const (
	stagedPrefix = "new-" // of folders that are being filled
	sumFile      = "sum"  // has the checksum of the other files of an entry
)

// fillAgain is the time after a failure to fill an entry in which no other attempt is made: it
// costs as much as a compilation.
const fillAgain = 10 * time.Minute

// entry returns the folder of the entry of an interpreter.
func (c *codeCache) entry(digest string) string {
	return filepath.Join(c.dir, strings.TrimPrefix(digest, "sha256:"))
}

// get returns the folder with the code of an interpreter, "" if there is none. It removes a
// damaged entry.
func (c *codeCache) get(digest string) string {
	if c.dir == "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entry(digest)
	want, err := os.ReadFile(filepath.Join(entry, sumFile))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if have, sumErr := sumOf(entry); err != nil || sumErr != nil || !bytes.Equal(have, want) {
		_ = os.RemoveAll(entry) // an entry that stays is found damaged again
		return ""
	}
	now := time.Now()
	_ = os.Chtimes(entry, now, now) // on failure it is removed earlier than its use warrants
	return entry
}

// canFill reports whether stage is likely to return a folder.
func (c *codeCache) canFill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.makeDir()
}

// makeDir makes the directory, unless there is none to make or an attempt failed a short time
// ago. The caller holds mu.
func (c *codeCache) makeDir() bool {
	return c.dir != "" && !time.Now().Before(c.wait) && os.MkdirAll(c.dir, 0o700) == nil
}

// stage returns an empty folder for a child to fill, "" if there is none. The caller publishes
// or discards it.
func (c *codeCache) stage() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.makeDir() {
		return ""
	}
	if !c.opened {
		c.opened = true
		left, _ := filepath.Glob(filepath.Join(c.dir, stagedPrefix+"*"))
		for _, folder := range left {
			_ = os.RemoveAll(folder) // the next process tries again
		}
	}
	folder, err := os.MkdirTemp(c.dir, stagedPrefix)
	if err != nil {
		return ""
	}
	return folder
}

// discard removes a folder of stage that was not filled. failed is false if its caller has
// gone.
func (c *codeCache) discard(folder string, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed {
		c.wait = time.Now().Add(fillAgain)
	}
	_ = os.RemoveAll(folder) // the next process removes it
}

// remove removes the entry of an interpreter that is of no use, as one of another version of
// the engine or for another processor.
func (c *codeCache) remove(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = os.RemoveAll(c.entry(digest)) // an entry that stays is found useless again
}

// publish makes a filled folder of stage the entry of an interpreter, and removes the least
// recently used entries beyond the bound. On failure it discards the folder.
func (c *codeCache) publish(folder, digest string) {
	sum, err := sumOf(folder)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, sumFile), sum, 0o600)
	}
	if err == nil {
		err = c.replace(folder, digest)
	}
	if err != nil {
		c.discard(folder, true)
	}
}

func (c *codeCache) replace(folder, digest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entry(digest)
	if err := errors.Join(os.RemoveAll(entry), os.Rename(folder, entry)); err != nil {
		return err
	}
	c.evict()
	return nil
}

// evict removes entries until the rest has at most max bytes. The caller holds mu.
func (c *codeCache) evict() {
	type entry struct {
		path  string
		bytes int64
		used  time.Time
	}
	var all []entry
	var total int64
	folders, _ := os.ReadDir(c.dir) // a directory that cannot be read is bounded with the next entry
	for _, f := range folders {
		info, err := f.Info()
		if err != nil || strings.HasPrefix(f.Name(), stagedPrefix) {
			continue
		}
		e := entry{path: filepath.Join(c.dir, f.Name()), used: info.ModTime()}
		_ = walk(e.path, func(_ string, info fs.FileInfo) error {
			e.bytes += info.Size()
			return nil
		})
		all = append(all, e)
		total += e.bytes
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	for _, e := range all {
		if total <= c.max {
			return
		}
		_ = os.RemoveAll(e.path) // what stays is removed with the next entry
		total -= e.bytes
	}
}

// sumOf returns a checksum of the names and contents of all files of an entry but the sum. An
// entry with anything else than folders and files is refused: a child may not make the server
// follow a link.
func sumOf(entry string) ([]byte, error) {
	h := sha256.New()
	err := walk(entry, func(path string, info fs.FileInfo) error {
		name, err := filepath.Rel(entry, path)
		if err != nil || name == sumFile {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		var sizes []byte
		sizes = binary.BigEndian.AppendUint64(sizes, uint64(len(name)))
		sizes = binary.BigEndian.AppendUint64(sizes, uint64(info.Size()))
		h.Write(append(sizes, name...)) //nolint:errcheck // a hash has no errors
		n, err := io.Copy(h, f)
		if err == nil && n != info.Size() {
			err = fmt.Errorf("%s has changed", path)
		}
		return err
	})
	return h.Sum(nil), err
}

// walk calls each for the files below a folder, in the order of their names. It fails at
// anything that is neither a file nor a folder.
func walk(folder string, each func(path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no file", path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return each(path, info)
	})
}
