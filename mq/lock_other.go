//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package mq

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lockDir takes the exclusive lock of a log directory by creating a file that must not
// exist. Unlike a kernel lock it survives a crash; the error says what to do then.
func lockDir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		pid, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w: %s was opened by process %s; stop it, or delete %s if it is gone", ErrLocked, dir, pid, path)
	}
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprint(f, os.Getpid())
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return func() error { return os.Remove(path) }, nil
}

// lockExisting takes the lock of a log for reading. On this system that temporarily
// writes the lock file.
func lockExisting(dir string) (unlock func() error, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, errors.New("this is not the directory of a log"))
	}
	return lockDir(dir)
}
