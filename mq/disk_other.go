//go:build !linux

package mq

import (
	"errors"
	"os"
)

func dataSync(f *os.File) error { return f.Sync() }

// diskSpace reports an unknown size, so Config.ReserveBytes has no effect on this system.
// A full disk is detected when the next segment is filled, which is before any record
// needs it.
func diskSpace(string) (free, total int64, err error) { return 0, 0, nil }

func createToFill(path string, _ access) (*os.File, []byte, error) { return createPaged(path) }

func directly(f *os.File) (file, error) {
	return nil, errors.Join(errors.New(`the "direct" writer needs Linux, choose "pwrite"`), f.Close())
}

func mapFile(f *os.File) (file, error) {
	return nil, errors.Join(errors.New(`the "mmap" writer needs Linux, choose "pwrite"`), f.Close())
}
