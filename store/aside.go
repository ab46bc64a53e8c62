package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rooms are the entries of a store's directory, in the order in which they are set aside.
// The view is first, so that after a crash Open never finds a view without its history.
var rooms = []string{viewName, oldViewName, newViewName, bootedName, snapshotsDir, historyName, keysName, revisionsName, auditName, logsName}

// SetAside moves the content of the closed store in dir to its quarantine, so that Open
// begins with an empty store. It returns the new directory within dir; "": the store was
// empty. After a crash it can be called again; the rest then goes to another directory.
func SetAside(dir, why string) (string, error) {
	place, err := setAside(dir, why)
	if err != nil {
		return place, fmt.Errorf("store: set the store in %s aside: %w", dir, err)
	}
	return place, nil
}

func setAside(dir, why string) (place string, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	for _, room := range rooms {
		from := filepath.Join(dir, room)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if place == "" {
			if place, err = newQuarantine(dir, why+"\n"); err != nil {
				return "", err
			}
		}
		if err := os.Rename(from, filepath.Join(dir, place, room)); err != nil {
			return place, err
		}
	}
	if place == "" {
		return "", nil
	}
	return place, errors.Join(syncDir(filepath.Join(dir, place)), syncDir(dir))
}

// KeepQuarantine moves the content of the quarantine of the closed store in from to that
// of the closed store in to. Either quarantine may be missing.
func KeepQuarantine(from, to string) error {
	if err := keepQuarantine(filepath.Join(from, quarantineName), filepath.Join(to, quarantineName)); err != nil {
		return fmt.Errorf("store: keep the quarantine of %s: %w", from, err)
	}
	return nil
}

func keepQuarantine(from, to string) error {
	places, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(places) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, p := range places { // the names do not collide: each is the time at which the entry was made
		if err := os.Rename(filepath.Join(from, p.Name()), filepath.Join(to, p.Name())); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(to), syncDir(filepath.Dir(to)), syncDir(from))
}
