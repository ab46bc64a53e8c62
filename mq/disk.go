package mq

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// disk is everything that the log asks of the file system, in one directory. Tests replace it to lose writes, to
// fill up and to fail.
type disk interface {
	// names lists the files of the directory.
	names() ([]string, error)
	// open opens an existing file for reading and writing through the given access.
	open(name string, how access) (file, error)
	// fill makes a file of n durable zero bytes for use through the given access, replacing an older file. Its
	// blocks are then allocated and initialised: a later write changes no metadata and cannot run out of space.
	// It gives up with ErrClosed when stop is closed.
	fill(name string, n int64, how access, stop <-chan struct{}) error
	// holds returns an error when the file of that name is not f, or cannot be opened for writing.
	holds(name string, f file) error
	rename(from, to string) error
	remove(name string) error
	// sync makes creations, renames and removals so far durable.
	sync() error
	// space returns the free and the total bytes of the file system. A total of 0 means unknown.
	space() (free, total int64, err error)
}

// file is one open segment, and the door behind which the two writers are.
type file interface {
	io.ReaderAt
	io.WriterAt
	// sync makes the bytes [off, off+n) durable. The first error is final: the kernel may have dropped the bytes
	// and would report success the next time.
	sync(off, n int64) error
	size() (int64, error)
	Close() error
}

// access is the way to a file's bytes.
type access uint8

const (
	accessRead   access = iota // pread only
	accessPwrite               // pwrite and fdatasync
	accessDirect               // the same around the page cache
	accessMmap                 // stores through a mapping and msync
)

func (a access) String() string {
	switch a {
	case accessDirect:
		return "direct"
	case accessMmap:
		return "mmap"
	}
	return "pwrite"
}

// dir is the real disk.
type dir string

func (d dir) path(name string) string { return filepath.Join(string(d), name) }

func (d dir) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (d dir) open(name string, how access) (file, error) {
	flag := os.O_RDWR
	if how == accessRead {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(d.path(name), flag, 0)
	if err != nil {
		return nil, err
	}
	switch how {
	case accessMmap:
		return mapFile(f)
	case accessDirect:
		return directly(f)
	}
	return plainFile{f}, nil
}

func (d dir) fill(name string, n int64, how access, stop <-chan struct{}) (err error) {
	f, chunk, err := createToFill(d.path(name), how)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	for off := int64(0); off < n; off += int64(len(chunk)) {
		if off%fillChunk == 0 && isClosed(stop) {
			return ErrClosed
		}
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), n-off)], off); err != nil {
			return err
		}
	}
	return dataSync(f)
}

// fillChunk is the unit of direct writes, and of looking whether to give up.
const fillChunk = 256 << 10

// createPaged creates a file to fill page by page through the page cache.
func createPaged(path string) (f *os.File, chunk []byte, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	return f, zeroPage[:], err
}

func isClosed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

func (d dir) holds(name string, f file) error {
	named, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer named.Close() //nolint:errcheck // nothing was written to it
	of, err := named.Stat()
	if err != nil {
		return err
	}
	opened, ok := f.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return fmt.Errorf("%s: a file of another disk", name)
	}
	is, err := opened.Stat()
	if err == nil && !os.SameFile(of, is) {
		err = errOtherFile
	}
	return err
}

func (d dir) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d dir) remove(name string) error     { return os.Remove(d.path(name)) }

func (d dir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d dir) space() (free, total int64, err error) { return diskSpace(string(d)) }

// plainFile writes with pwrite and syncs the data of the whole file. Segments are filled before they are used, so
// that a sync has no size or extent to record.
type plainFile struct{ *os.File }

func (f plainFile) sync(int64, int64) error { return dataSync(f.File) }

func (f plainFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	return info.Size(), nil
}
