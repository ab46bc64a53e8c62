package node

import (
	"errors"
	"io/fs"
	"os"
)

// cordonFile is the file, in the data directory of a host, that exists while the host is
// cordoned.
const cordonFile = "cordoned"

// cordoned reports whether a host was cordoned when its last process ended.
func cordoned(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// storeCordon stores whether a host is cordoned.
func storeCordon(path string, on bool) error {
	if on {
		return os.WriteFile(path, nil, 0o600)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
