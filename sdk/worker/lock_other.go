//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lock takes a lock by creating a file that must not exist. Unlike a kernel lock it
// survives a crash; the error then says what to do.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w; delete %s if it is gone", errLocked, path)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(f.Close(), os.Remove(path)) }, nil
}
