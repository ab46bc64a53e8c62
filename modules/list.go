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

// Blob is a file of the store.
type Blob struct {
	Digest string // "": what is left of a write that was broken off
	Path   string
	Bytes  int64
	UsedAt time.Time // when it was put or last marked with Touch
}

// List returns every file of the store, in no order.
func (s *Store) List() ([]Blob, error) {
	var all []Blob
	err := filepath.WalkDir(filepath.Join(s.dir, "sha256"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we looked
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

// Touch marks a blob as used now, for Trim.
func (s *Store) Touch(digest string) {
	if path, err := s.path(digest); err == nil {
		now := time.Now()
		_ = os.Chtimes(path, now, now) // a cache that forgets too early fetches again
	}
}

// boolCompare puts false first: what is left of broken writes goes before blobs do.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// leftover is the age at which a file without a digest is no write that goes on.
const leftover = time.Hour

// Trim removes the blobs that were not used for the longest time until the
// others take at most limit bytes. keep says of which it must not: nil is none.
// What broken writes left behind goes as well. It returns what became free.
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

// Remove drops the file; one that is gone is no error.
func (b Blob) Remove() error {
	if err := os.Remove(b.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove module: %w", err)
	}
	return nil
}
