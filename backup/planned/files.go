package planned

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

const (
	timeForm = "20060102T150405Z"
	// refused follows the name of a whole backup whose drill failed. The newest one stays, for
	// the operator to look at.
	refused = ".failed"
)

var (
	backupFile  = regexp.MustCompile(`^wheelwork-([0-9]{8}T[0-9]{6}Z)\.wwb$`)
	refusedFile = regexp.MustCompile(`^wheelwork-[0-9]{8}T[0-9]{6}Z\.wwb\.failed$`)
	partialFile = regexp.MustCompile(`^wheelwork-[0-9]{8}T[0-9]{6}Z\.wwb\.partial-(.+)$`)
)

// nameAt returns the name of a backup that begins at a time.
func nameAt(t time.Time) string { return "wheelwork-" + t.UTC().Format(timeForm) + ".wwb" }

// File is a backup in the directory.
type File struct {
	Name  string
	Bytes int64
	Began time.Time
}

// list returns the backups in a directory, the newest first. Other files are none.
func list(dir string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		found := backupFile.FindStringSubmatch(e.Name())
		if found == nil || !e.Type().IsRegular() {
			continue
		}
		began, err := time.Parse(timeForm, found[1])
		if err != nil {
			continue // a name with an impossible date is not ours
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, File{e.Name(), info.Size(), began})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(b.Name, a.Name) })
	return files, err
}

// prune removes all backups in a directory but the newest keep.
func prune(dir string, keep int) (removed []string, err error) {
	files, err := list(dir)
	if err != nil || len(files) <= keep {
		return nil, err
	}
	for _, f := range files[keep:] {
		if rerr := os.Remove(filepath.Join(dir, f.Name)); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		removed = append(removed, f.Name)
	}
	return removed, errors.Join(err, datadir.SyncDir(dir))
}

// removeRefused removes the backups whose drill failed.
func removeRefused(dir string) error {
	return removeMatching(dir, func(name string) bool { return refusedFile.MatchString(name) })
}

// removePartial removes what a killed process of this server left.
func removePartial(dir, server string) error {
	return removeMatching(dir, func(name string) bool {
		found := partialFile.FindStringSubmatch(name)
		return found != nil && found[1] == server
	})
}

func removeMatching(dir string, match func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() && match(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
