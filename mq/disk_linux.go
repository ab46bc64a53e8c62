package mq

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dataSync makes the bytes of f durable. It repeats a sync that a signal interrupted,
// because that is not a failure. It returns every other error.
func dataSync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// createToFill creates a file and returns the piece of zeros to fill it with.
//
// For pwrite the fill bypasses the page cache. That is several times faster and leaves
// the cache to data in use. The flusher writes whole pages, so no page has to be read
// back. For a mapping the fill writes single pages through the cache. The cache manages
// a file in pieces as large as its first writes, and a store through the mapping later
// dirties a whole piece: up to 2 MiB after larger writes.
func createToFill(path string, how access) (*os.File, []byte, error) {
	if how == accessMmap {
		return createPaged(path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_DIRECT, 0o600)
	if err != nil {
		return createPaged(path) // this file system has no direct writes
	}
	return f, alignedBytes(fillChunk), nil
}

// directFile writes whole pages around the page cache, which saves a copy and the
// bookkeeping of the cache; chooseAccess measures whether that is faster on a disk
// (BenchmarkAppend, ADR 13). All other access goes through the cache. The kernel keeps the
// two views of a file coherent.
type directFile struct {
	plainFile
	direct *os.File
}

// directly returns a directFile for f and takes ownership of f.
func directly(f *os.File) (file, error) {
	direct, err := os.OpenFile(f.Name(), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, closeAfter(f, fmt.Errorf("%w (the file system may not allow direct writes; the writer \"pwrite\" needs none)", err))
	}
	return directFile{plainFile{f}, direct}, nil
}

func (f directFile) WriteAt(p []byte, off int64) (int, error) {
	if (off|int64(len(p)))%pageSize != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))%pageSize != 0 {
		return f.plainFile.WriteAt(p, off)
	}
	return f.direct.WriteAt(p, off)
}

func (f directFile) Close() error { return errors.Join(f.direct.Close(), f.plainFile.Close()) }

func diskSpace(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, os.NewSyscallError("statfs", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// mappedFile writes through a shared mapping and syncs exactly the requested pages. It
// reads with pread, which sees the same pages: a slow read then blocks a system call and
// not a processor of the Go scheduler.
type mappedFile struct {
	*os.File
	mem []byte
}

// mapFile maps f and takes ownership of it.
func mapFile(f *os.File) (file, error) {
	n, err := plainFile{f}.size()
	if err != nil {
		return nil, closeAfter(f, err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, closeAfter(f, os.NewSyscallError("mmap", err))
	}
	// A store dirties the whole folio that contains it. Filling segments page by page
	// keeps folios small. Without read-ahead, evicted pages come back one by one as well.
	_ = unix.Madvise(mem, unix.MADV_RANDOM)
	return &mappedFile{f, mem}, nil
}

func closeAfter(f *os.File, err error) error {
	_ = f.Close()
	return err
}

// WriteAt copies p into the mapping. It returns a fault (bad sector, truncated file, no
// space on a copy-on-write file system) as an error; the process survives.
func (m *mappedFile) WriteAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off+int64(len(p)) > int64(len(m.mem)) {
		return 0, fmt.Errorf("write of %d bytes at %d is outside the mapping of %s", len(p), off, m.Name())
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, fmt.Errorf("store into the mapping of %s: %v", m.Name(), r)
		}
	}()
	return copy(m.mem[off:], p), nil
}

func (m *mappedFile) sync(off, n int64) error {
	page := int64(os.Getpagesize())
	from := off &^ (page - 1)
	to := min((off+n+page-1)&^(page-1), int64(len(m.mem)))
	if to <= from {
		return nil
	}
	return os.NewSyscallError("msync", unix.Msync(m.mem[from:to], unix.MS_SYNC))
}

func (m *mappedFile) size() (int64, error) { return int64(len(m.mem)), nil }

func (m *mappedFile) Close() error {
	err := unix.Munmap(m.mem)
	m.mem = nil
	if closeErr := m.File.Close(); err == nil {
		err = closeErr
	}
	return err
}
