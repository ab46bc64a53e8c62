package mq

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// disk is the log's interface to the file system, for one directory. Tests replace it by
// disks that lose writes, fill up or fail.
type disk interface {
	// names returns the names of the files in the directory.
	names() ([]string, error)
	// open opens an existing file for reading, and for writing through the given access.
	open(name string, how access) (file, error)
	// fill creates a file of n durable zero bytes for use through the given access and
	// replaces an older file. Its blocks are then allocated and initialised: a later
	// write changes no metadata and cannot run out of space. fill stops with ErrClosed
	// when stop is closed.
	fill(name string, n int64, how access, stop <-chan struct{}) error
	// holds returns an error if the named file is not f, or cannot be opened for writing.
	holds(name string, f file) error
	rename(from, to string) error
	remove(name string) error
	// sync makes earlier creations, renames and removals durable.
	sync() error
	// space returns the free and the total bytes of the file system. A total of 0 means
	// unknown.
	space() (free, total int64, err error)
}

// file is one open segment. It hides which writer is in use.
type file interface {
	io.ReaderAt
	io.WriterAt
	// sync makes the bytes [off, off+n) durable. Its first error is final: the kernel may
	// have dropped the bytes and would report success the next time.
	sync(off, n int64) error
	size() (int64, error)
	Close() error
}

// access is a way to read and write a file.
type access uint8

const (
	accessRead   access = iota // pread only
	accessPwrite               // pwrite and fdatasync
	accessDirect               // pwrite and fdatasync, bypassing the page cache
	accessMmap                 // stores to a mapping and msync
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

// dir is a directory of the real file system.
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

// fillChunk is the size of direct writes, and the interval of checks of stop, in bytes.
const fillChunk = 256 << 10

// createPaged creates a file that is then filled page by page through the page cache.
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

// plainFile writes with pwrite and syncs the data of the whole file. Segments are filled
// before use, so a sync has no size or extent to record.
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
