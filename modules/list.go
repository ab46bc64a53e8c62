package modules

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Blob is one file of the store.
type Blob struct {
	Digest string // "" for a file that an interrupted write has left behind
	Path   string
	Bytes  int64
	UsedAt time.Time // time of the write, or of the last call of Touch
}

// List returns every file of the store in no particular order.
func (s *Store) List() ([]Blob, error) {
	var all []Blob
	err := filepath.WalkDir(filepath.Join(s.dir, "sha256"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		b := Blob{Digest: "sha256:" + d.Name(), Path: path, Bytes: info.Size(), UsedAt: info.ModTime()}
		if want, err := s.path(b.Digest); err != nil || want != path {
			b.Digest = ""
		}
		all = append(all, b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	return all, nil
}

// Touch records that the blob was used now. [Store.Trim] removes the least recently used
// blobs first.
func (s *Store) Touch(digest string) {
	if path, err := s.path(digest); err == nil {
		now := time.Now()
		_ = os.Chtimes(path, now, now) // best effort: an evicted blob is fetched again
	}
}

// boolCompare orders false before true, so that Trim sees the leftovers of interrupted
// writes before blobs.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// leftover is the age from which a file without a digest counts as the rest of an
// interrupted write. A younger one may still be written.
const leftover = time.Hour

// Trim removes the least recently used blobs until the others take at most limit bytes.
// It never removes a blob for which keep returns true; a nil keep protects none. Trim
// also removes the leftovers of interrupted writes. It returns the number of bytes freed.
func (s *Store) Trim(limit int64, keep func(digest string) bool) (freed int64, err error) {
	all, err := s.List()
	if err != nil {
		return 0, err
	}
	slices.SortFunc(all, func(a, b Blob) int {
		return cmp.Or(boolCompare(a.Digest != "", b.Digest != ""), a.UsedAt.Compare(b.UsedAt), strings.Compare(a.Path, b.Path))
	})
	var total int64
	for _, b := range all {
		total += b.Bytes
	}
	for _, b := range all {
		switch {
		case b.Digest == "":
			if time.Since(b.UsedAt) < leftover {
				continue
			}
		case total <= limit || keep != nil && keep(b.Digest):
			continue
		}
		if e := b.Remove(); e != nil {
			err = errors.Join(err, e)
			continue
		}
		total -= b.Bytes
		freed += b.Bytes
	}
	return freed, err
}

// Remove deletes the file. It is no error if the file does not exist.
func (b Blob) Remove() error {
	if err := os.Remove(b.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove module: %w", err)
	}
	return nil
}
