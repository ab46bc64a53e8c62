//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mq

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockDir takes the exclusive lock of a log directory. The kernel releases it when the
// process ends in any way. The returned function releases it earlier.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock, err = flock(dir, f)
	if err != nil {
		return nil, err
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// lockExisting takes the lock of a log for reading: it creates and writes nothing.
// Without a lock file no process has the log open.
func lockExisting(dir string) (unlock func() error, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, errors.New("this is not the directory of a log"))
	}
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return flock(dir, f)
}

// flock locks f, the lock file of dir, and takes ownership of it.
func flock(dir string, f *os.File) (unlock func() error, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f.Close, nil
	}
	defer func() { _ = f.Close() }()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, lockedBy(dir, f)
	}
	return nil, os.NewSyscallError("flock", err)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func lockedBy(dir string, f *os.File) error {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return fmt.Errorf("%w: %s is open in another process; stop that process or choose another directory", ErrLocked, dir)
	}
	return fmt.Errorf("%w: %s is open in process %d; stop that process or choose another directory", ErrLocked, dir, pid)
}
