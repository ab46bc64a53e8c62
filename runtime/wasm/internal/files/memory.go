package files

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// memory is a directory in memory that exists for the duration of one task.
type memory struct {
	sys.UnimplementedFS
	root     *node
	budget   *budget
	readOnly bool
	inode    uint64
}

// node is a file or a directory.
type node struct {
	inode   uint64
	entries map[string]*node // of a directory; nil: a file
	data    []byte
	changed int64 // nanoseconds since 1970
	read    int64 // likewise; a read does not change it
	open    int   // number of open handles
	linked  bool  // whether a directory has an entry for it
}

// Memory returns an empty directory that can hold quota bytes.
func Memory(quota int64, write bool, work func(bytes int)) FS {
	m := &memory{budget: newBudget(quota, work), readOnly: !write}
	m.root = m.node(true)
	m.root.linked = true
	return m
}

func (m *memory) Close() error { return nil }

func (m *memory) node(dir bool) *node {
	m.inode++
	n := &node{inode: m.inode, changed: time.Now().UnixNano()}
	n.read = n.changed
	if dir {
		n.entries = map[string]*node{}
	}
	return n
}

// find returns the node at a path.
func (m *memory) find(p string) (*node, sys.Errno) {
	slash := namesDirectory(p)
	p, errno := m.budget.clean(p)
	if errno != 0 {
		return nil, errno
	}
	n := m.root
	if p == "." {
		return n, 0
	}
	for _, name := range strings.Split(p, "/") {
		if n.entries == nil {
			return nil, sys.ENOTDIR
		}
		if n = n.entries[name]; n == nil {
			return nil, sys.ENOENT
		}
	}
	if slash && n.entries == nil {
		return nil, sys.ENOTDIR
	}
	return n, 0
}

// place returns the directory of a path's last element, and that element. The element
// need not exist.
func (m *memory) place(p string) (dir *node, name string, errno sys.Errno) {
	if m.readOnly {
		return nil, "", sys.EROFS
	}
	slash := namesDirectory(p)
	if p, errno = m.budget.clean(p); errno != 0 {
		return nil, "", errno
	}
	if p == "." {
		return nil, "", sys.EINVAL
	}
	if dir, errno = m.find(path.Dir(p)); errno != 0 {
		return nil, "", errno
	}
	if dir.entries == nil {
		return nil, "", sys.ENOTDIR
	}
	name = path.Base(p)
	if n := dir.entries[name]; slash && n != nil && n.entries == nil {
		return nil, "", sys.ENOTDIR
	}
	return dir, name, 0
}

// add adds an entry to a directory.
func (m *memory) add(dir *node, name string, isDir bool) (*node, sys.Errno) {
	if errno := m.budget.take(entryCharge); errno != 0 {
		return nil, errno
	}
	n := m.node(isDir)
	n.linked = true
	dir.entries[name] = n
	dir.changed = n.changed
	return n, 0
}

// drop removes an entry. Its bytes are freed when its last handle is closed.
func (m *memory) drop(dir *node, name string) {
	n := dir.entries[name]
	delete(dir.entries, name)
	n.linked = false
	m.budget.bytes += entryCharge
	m.release(n)
}

func (m *memory) release(n *node) {
	if !n.linked && n.open == 0 {
		m.budget.bytes += int64(len(n.data))
		n.data = nil
	}
}

func (m *memory) OpenFile(p string, flag sys.Oflag, _ fs.FileMode) (sys.File, sys.Errno) {
	if m.readOnly && writes(flag) {
		return nil, sys.EROFS
	}
	n, errno := m.find(p)
	switch {
	case errno == sys.ENOENT && flag&sys.O_CREAT != 0:
		if flag&sys.O_DIRECTORY != 0 {
			return nil, sys.EINVAL
		}
		if namesDirectory(p) {
			return nil, sys.EISDIR
		}
		dir, name, errno := m.place(p)
		if errno != 0 {
			return nil, errno
		}
		if n, errno = m.add(dir, name, false); errno != 0 {
			return nil, errno
		}
	case errno != 0:
		return nil, errno
	case flag&sys.O_CREAT != 0 && flag&sys.O_EXCL != 0:
		return nil, sys.EEXIST
	case n.entries != nil && writes(flag):
		return nil, sys.EISDIR
	case n.entries == nil && flag&sys.O_DIRECTORY != 0:
		return nil, sys.ENOTDIR
	}
	if m.budget.open == 0 {
		return nil, sys.EIO
	}
	f := &memoryFile{fs: m, node: n, append: flag&sys.O_APPEND != 0, write: flag&(sys.O_WRONLY|sys.O_RDWR) != 0, read: flag&sys.O_WRONLY == 0}
	f.seek = f.move
	if flag&sys.O_TRUNC != 0 && n.entries == nil {
		m.resize(n, 0)
	}
	m.budget.open--
	n.open++
	return f, 0
}

// resize truncates a file, or extends it with zeros.
func (m *memory) resize(n *node, size int64) sys.Errno {
	more := size - int64(len(n.data))
	if errno := m.budget.take(more); errno != 0 {
		return errno
	}
	if more > 0 {
		n.data = slices.Grow(n.data, int(more))
		clear(n.data[len(n.data):size]) // removes bytes from before an earlier truncation
	}
	n.data = n.data[:size]
	n.changed = time.Now().UnixNano()
	return 0
}

func (n *node) stat() wasys.Stat_t {
	mode := fs.FileMode(0o600)
	if n.entries != nil {
		mode = fs.ModeDir | 0o700
	}
	return wasys.Stat_t{Ino: n.inode, Mode: mode, Nlink: 1, Size: int64(len(n.data)), Atim: n.read, Mtim: n.changed, Ctim: n.changed}
}

func (m *memory) Stat(p string) (wasys.Stat_t, sys.Errno) {
	n, errno := m.find(p)
	if errno != 0 {
		return wasys.Stat_t{}, errno
	}
	return n.stat(), 0
}

func (m *memory) Lstat(p string) (wasys.Stat_t, sys.Errno) { return m.Stat(p) }

func (m *memory) Readlink(p string) (string, sys.Errno) {
	if _, errno := m.find(p); errno != 0 {
		return "", errno
	}
	return "", sys.EINVAL // there are no symbolic links
}

func (m *memory) Mkdir(p string, _ fs.FileMode) sys.Errno {
	dir, name, errno := m.place(p)
	if errno != 0 {
		return errno
	}
	if dir.entries[name] != nil {
		return sys.EEXIST
	}
	_, errno = m.add(dir, name, true)
	return errno
}

func (m *memory) Rmdir(p string) sys.Errno {
	dir, name, errno := m.place(p)
	if errno != 0 {
		return errno
	}
	switch n := dir.entries[name]; {
	case n == nil:
		return sys.ENOENT
	case n.entries == nil:
		return sys.ENOTDIR
	case len(n.entries) > 0:
		return sys.ENOTEMPTY
	}
	m.drop(dir, name)
	return 0
}

func (m *memory) Unlink(p string) sys.Errno {
	dir, name, errno := m.place(p)
	if errno != 0 {
		return errno
	}
	switch n := dir.entries[name]; {
	case n == nil:
		return sys.ENOENT
	case n.entries != nil:
		return sys.EISDIR
	}
	m.drop(dir, name)
	return 0
}

func (m *memory) Rename(from, to string) sys.Errno {
	src, name, errno := m.place(from)
	if errno != 0 {
		return errno
	}
	dst, target, errno := m.place(to)
	if errno != 0 {
		return errno
	}
	n, old := src.entries[name], dst.entries[target]
	switch {
	case n == nil:
		return sys.ENOENT
	case n == old:
		return 0
	case n.holds(dst):
		return sys.EINVAL
	case old != nil && old.entries != nil && n.entries == nil:
		return sys.EISDIR
	case old != nil && old.entries == nil && n.entries != nil, n.entries == nil && namesDirectory(to):
		return sys.ENOTDIR
	case old != nil && len(old.entries) > 0:
		return sys.ENOTEMPTY
	}
	if old != nil {
		m.drop(dst, target)
	}
	delete(src.entries, name)
	dst.entries[target] = n
	return 0
}

// holds reports whether d is n or below n.
func (n *node) holds(d *node) bool {
	if n == d {
		return true
	}
	for _, e := range n.entries {
		if e.entries != nil && e.holds(d) {
			return true
		}
	}
	return false
}

func (m *memory) Chmod(p string, _ fs.FileMode) sys.Errno {
	_, _, errno := m.place(p)
	if errno == 0 {
		_, errno = m.find(p)
	}
	return errno
}

func (m *memory) Utimens(p string, atim, mtim int64) sys.Errno {
	if m.readOnly {
		return sys.EROFS
	}
	n, errno := m.find(p)
	if errno == 0 {
		n.touch(atim, mtim)
	}
	return errno
}

func (n *node) touch(atim, mtim int64) {
	if atim != sys.UTIME_OMIT {
		n.read = atim
	}
	if mtim != sys.UTIME_OMIT {
		n.changed = mtim
	}
}

// memoryFile is an open file or directory.
type memoryFile struct {
	unimplemented
	position[int64]
	fs                  *memory
	node                *node
	off                 int64
	append, write, read bool
	closed              bool
}

func (f *memoryFile) Ino() (wasys.Inode, sys.Errno)   { return f.node.inode, 0 }
func (f *memoryFile) IsDir() (bool, sys.Errno)        { return f.node.entries != nil, 0 }
func (f *memoryFile) IsAppend() bool                  { return f.append }
func (f *memoryFile) Stat() (wasys.Stat_t, sys.Errno) { return f.node.stat(), 0 }
func (f *memoryFile) Sync() sys.Errno                 { return 0 }
func (f *memoryFile) Datasync() sys.Errno             { return 0 }
func (f *memoryFile) SetAppend(enable bool) sys.Errno { f.append = enable; return 0 }
func (f *memoryFile) Utimens(atim, mtim int64) sys.Errno {
	f.fs.budget.work(0)
	if f.fs.readOnly {
		return sys.EROFS
	}
	f.node.touch(atim, mtim)
	return 0
}

func (f *memoryFile) Read(p []byte) (int, sys.Errno) {
	n, errno := f.Pread(p, f.off)
	f.off += int64(n)
	return n, errno
}

func (f *memoryFile) Pread(p []byte, off int64) (int, sys.Errno) {
	f.fs.budget.work(len(p))
	switch {
	case f.node.entries != nil:
		return 0, sys.EISDIR
	case !f.read:
		return 0, sys.EBADF
	case off < 0:
		return 0, sys.EINVAL
	case off >= int64(len(f.node.data)):
		return 0, 0
	}
	return copy(p, f.node.data[off:]), 0
}

func (f *memoryFile) Write(p []byte) (int, sys.Errno) {
	if f.append {
		f.off = int64(len(f.node.data))
	}
	n, errno := f.Pwrite(p, f.off)
	f.off += int64(n)
	return n, errno
}

func (f *memoryFile) Pwrite(p []byte, off int64) (int, sys.Errno) {
	f.fs.budget.work(len(p))
	switch {
	case !f.write || f.node.entries != nil:
		return 0, sys.EBADF
	case off < 0 || off > maxOffset:
		return 0, sys.EINVAL
	}
	if end := off + int64(len(p)); end > int64(len(f.node.data)) {
		if errno := f.fs.resize(f.node, end); errno != 0 {
			return 0, errno
		}
	}
	f.node.changed = time.Now().UnixNano()
	return copy(f.node.data[off:], p), 0
}

func (f *memoryFile) Truncate(size int64) sys.Errno {
	switch {
	case !f.write || f.node.entries != nil:
		return sys.EBADF
	case size < 0 || size > maxOffset:
		return sys.EINVAL
	}
	return f.fs.resize(f.node, size)
}

func (f *memoryFile) move(offset int64, whence int) (int64, sys.Errno) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		offset += int64(len(f.node.data))
	default:
		return 0, sys.EINVAL
	}
	if offset < 0 || offset > maxOffset {
		return 0, sys.EINVAL
	}
	f.off = offset
	return offset, 0
}

// Readdir continues at its previous position, which is an index into the entries by name.
// As POSIX allows, a removal in between may hide another entry.
func (f *memoryFile) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	f.fs.budget.work(256 * maxOpen)
	if f.node.entries == nil {
		return nil, sys.ENOTDIR
	}
	var names []string
	for name := range f.node.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	names = names[min(f.off, int64(len(names))):]
	if n > 0 {
		names = names[:min(n, len(names))]
	}
	f.off += int64(len(names))
	var out []sys.Dirent
	for _, name := range names {
		e := f.node.entries[name]
		out = append(out, sys.Dirent{Ino: e.inode, Name: name, Type: e.stat().Mode.Type()})
	}
	return out, 0
}

func (f *memoryFile) Close() sys.Errno {
	if !f.closed {
		f.closed = true
		f.fs.budget.open++
		f.node.open--
		f.fs.release(f.node)
	}
	return 0
}
