package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rooms are what a store consists of, the view first: without it Open trusts no other.
var rooms = []string{viewName, oldViewName, newViewName, bootedName, snapshotsDir, historyName, keysName, logsName}

// SetAside moves all that is in the closed store in dir to its quarantine, so that Open
// begins with an empty one, and returns the name of the place within dir; "": there was
// nothing. After a crash on the way it can be called again: the rest goes to another place.
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

// KeepQuarantine moves what is in the quarantine of the closed store in from to that of
// the closed store in to. Either may be missing.
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
	for _, p := range places { // each is named by the time at which it was made
		if err := os.Rename(filepath.Join(from, p.Name()), filepath.Join(to, p.Name())); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(to), syncDir(filepath.Dir(to)), syncDir(from))
}
