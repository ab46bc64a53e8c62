// Package files provides the files of a guest for the duration of one task: an empty
// directory in memory, or a directory of this machine. A guest cannot leave the
// directory, whatever it contains. It cannot write more than its quota, and it can make
// the host wait only for a disk.
//
// A file system must be used by one goroutine at a time.
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
	entryCharge = 512 // cost of an entry in the quota, in addition to its bytes
)

// FS is a file system for a guest. The host must close it when the task has ended.
type FS interface {
	sys.FS
	Close() error
}

// budget is the rest of a file system's bounds.
type budget struct {
	bytes int64
	open  int
	work  func(bytes int)
}

// newBudget returns the budget of a new file system. The file system calls work before
// every operation; work may panic to end the guest.
func newBudget(quota int64, work func(bytes int)) *budget {
	return &budget{bytes: quota, open: maxOpen, work: work}
}

// take charges bytes to the quota. The engine has no error number for a full disk, so a
// guest gets an input/output error.
func (b *budget) take(n int64) sys.Errno {
	if n > b.bytes {
		return sys.EIO
	}
	b.bytes -= n
	return 0
}

// writes reports whether a file opened with the flags can be changed.
func writes(flag sys.Oflag) bool {
	return flag&(sys.O_WRONLY|sys.O_RDWR|sys.O_CREAT|sys.O_TRUNC|sys.O_APPEND) != 0
}

// clean returns the path relative to the file system's root, "." for the root. A path
// above the root becomes the root. It removes slashes at the end; see namesDirectory.
func (b *budget) clean(p string) (string, sys.Errno) {
	b.work(len(p))
	switch {
	case len(p) > maxPath:
		return "", sys.ENAMETOOLONG
	case strings.ContainsRune(p, 0):
		return "", sys.EINVAL
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

// namesDirectory reports whether a path ends with a slash. Such a path is valid for a
// directory only.
func namesDirectory(p string) bool { return strings.HasSuffix(p, "/") }

// unimplemented is embedded one level deeper than position, so that the Seek of position
// takes precedence.
type unimplemented struct{ sys.UnimplementedFile }

// position implements Seek of a file. It is generic only because vet expects every Seek
// with an int64 to be that of io.Seeker, and the engine's differs.
type position[T ~int64] struct {
	seek func(offset T, whence int) (T, sys.Errno)
}

func (p position[T]) Seek(offset T, whence int) (T, sys.Errno) { return p.seek(offset, whence) }
