//go:build !unix

package datadir

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// lockFile fails: without a lock two processes could write one directory.
func lockFile(*os.File) error {
	return fmt.Errorf("%s: use a machine with Linux, macOS or FreeBSD: %w", runtime.GOOS, errors.ErrUnsupported)
}

// FreeBytes reports that the free space is unknown.
func FreeBytes(string) (int64, bool) { return 0, false }

// giveToOwner does nothing: files have no such owner.
func giveToOwner(string, string) error { return nil }
