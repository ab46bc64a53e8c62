package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// dir holds a worker's data on disk: its identity, and its unacknowledged results. Only
// one process uses it at a time.
type dir struct {
	id     string
	spool  *spool
	unlock func() error
}

func openDir(path string, log *slog.Logger) (_ *dir, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("the Dir cannot be made: %w", err)
	}
	d := &dir{}
	if d.unlock, err = lock(filepath.Join(path, "lock")); err != nil {
		return nil, fmt.Errorf("the Dir %s: %w", path, err)
	}
	if d.id, err = identity(filepath.Join(path, "id")); err == nil {
		d.spool, err = openSpool(filepath.Join(path, "results"), log)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the Dir %s: %w", path, err), d.close())
	}
	return d, nil
}

func (d *dir) close() error { return d.unlock() }

var errLocked = errors.New("another worker uses it: give each worker its own directory")

// identity returns the id in a file, and creates the file when missing.
func identity(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(b))
		if !isName(id) {
			return "", fmt.Errorf("the file %s does not contain the id of a worker: delete it to get a new one", path)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := newID()
	return id, writeFile(path, []byte(id+"\n"))
}

// writeFile creates a file atomically and durably.
func writeFile(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// tempPrefix is the prefix of incomplete files.
const tempPrefix = ".new-"

// syncDir makes a rename durable, where the system can sync directories.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
