// Package files gives a guest files for the length of one task: an empty
// directory in memory, or one of this machine. A guest gets no further than
// the directory, whatever lies in it, writes no more than its quota, and can
// make the host wait for nothing but a disk.
//
// One goroutine uses a file system at a time.
package files

import (
	"path"
	"strings"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// Bounds of one file system.
const (
	maxOpen     = 256
	maxPath     = 4096
	maxNameLen  = 255
	maxOffset   = 1 << 40
	entryCharge = 512 // what an entry costs of the quota beside its bytes
)

// FS is a file system for a guest. Close it when the task has ended.
type FS interface {
	sys.FS
	Close() error
}

// budget is what is left of a file system's bounds.
type budget struct {
	bytes int64
	open  int
	work  func(bytes int)
}

// newBudget returns the budget of a new file system. work is told of every
// operation before it is done; it may panic to end the guest.
func newBudget(quota int64, work func(bytes int)) *budget {
	return &budget{bytes: quota, open: maxOpen, work: work}
}

// take takes bytes off the quota. There is no number for a full disk in the
// engine: a guest sees an input or output error.
func (b *budget) take(n int64) sys.Errno {
	if n > b.bytes {
		return sys.EIO
	}
	b.bytes -= n
	return 0
}

// writes says whether a file opened so can be changed.
func writes(flag sys.Oflag) bool {
	return flag&(sys.O_WRONLY|sys.O_RDWR|sys.O_CREAT|sys.O_TRUNC|sys.O_APPEND) != 0
}

// clean returns the path below the file system's root, "." for the root itself.
// What leads above it leads to it.
func (b *budget) clean(p string) (string, sys.Errno) {
	b.work(len(p))
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return "", sys.ENAMETOOLONG
	}
	p = path.Clean("/" + p)[1:]
	if p == "" {
		return ".", 0
	}
	for _, name := range strings.Split(p, "/") {
		if len(name) > maxNameLen {
			return "", sys.ENAMETOOLONG
		}
	}
	return p, 0
}

// unimplemented is one step further away than position, whose Seek so wins.
type unimplemented struct{ sys.UnimplementedFile }

// position gives a file its Seek. It is generic only because vet takes every
// Seek of an int64 for that of io.Seeker, which the engine's is not.
type position[T ~int64] struct {
	seek func(offset T, whence int) (T, sys.Errno)
}

func (p position[T]) Seek(offset T, whence int) (T, sys.Errno) { return p.seek(offset, whence) }
