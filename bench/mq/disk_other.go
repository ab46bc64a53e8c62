//go:build !linux

package main

import (
	"errors"
	"os"
)

func fdatasync(f *os.File) error { return f.Sync() }

func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
