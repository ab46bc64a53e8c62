package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
	wasys "github.com/tetratelabs/wazero/sys"
)

// dir is a directory of this machine. os.Root confines every path to it, also through
// symbolic links.
type dir struct {
	sys.UnimplementedFS
	root     *os.Root
	budget   *budget
	readOnly bool
}

// Open returns a directory of this machine. The quota counts all bytes that a task
// writes, even if it removes them again.
func Open(path string, quota int64, write bool, work func(bytes int)) (FS, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory: %w", err)
	}
	return &dir{root: root, budget: newBudget(quota, work), readOnly: !write}, nil
}

func (d *dir) Close() error { return d.root.Close() }

// errno translates an error to an error number. The system has no number for an escape
// from the root, which must not look like a broken disk.
func errno(err error) sys.Errno {
	if err == nil {
		return 0
	}
	if e := sys.UnwrapOSError(err); e != sys.EIO {
		return e
	}
	return sys.EPERM
}

// clean is clean of budget, and refuses a path to a file that ends with a slash.
func (d *dir) clean(p string) (string, sys.Errno) {
	clean, bad := d.budget.clean(p)
	if bad != 0 || !namesDirectory(p) {
		return clean, bad
	}
	if info, err := d.root.Stat(clean); err == nil && !info.IsDir() {
		return "", sys.ENOTDIR
	}
	return clean, 0
}

func (d *dir) OpenFile(p string, flag sys.Oflag, _ fs.FileMode) (sys.File, sys.Errno) {
	slash := namesDirectory(p)
	p, bad := d.clean(p)
	if bad != 0 {
		return nil, bad
	}
	if d.readOnly && writes(flag) {
		return nil, sys.EROFS
	}
	if d.budget.open == 0 {
		return nil, sys.EIO
	}
	info, err := d.root.Lstat(p)
	switch {
	case err == nil && flag&sys.O_NOFOLLOW != 0 && info.Mode()&fs.ModeSymlink != 0:
		return nil, sys.ELOOP
	case err != nil && flag&sys.O_CREAT != 0 && slash:
		return nil, sys.EISDIR
	case err != nil && flag&sys.O_CREAT != 0:
		if e := d.budget.take(entryCharge); e != 0 {
			return nil, e
		}
	}
	// nonblock, because the file may be a pipe without another end.
	f, err := d.root.OpenFile(p, osFlag(flag)|nonblock, 0o600)
	if err != nil {
		return nil, errno(err)
	}
	info, err = f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular() && !info.IsDir():
		err = fs.ErrPermission
	case flag&sys.O_DIRECTORY != 0 && !info.IsDir():
		_ = f.Close()
		return nil, sys.ENOTDIR
	}
	if err != nil {
		_ = f.Close()
		return nil, errno(err)
	}
	d.budget.open--
	open := &dirFile{dir: d, file: f, path: p, isDir: info.IsDir(), append: flag&sys.O_APPEND != 0, write: flag&(sys.O_WRONLY|sys.O_RDWR) != 0}
	open.seek = open.move
	return open, 0
}

// osFlag omits append, which dirFile implements: the system would refuse writes at an
// offset.
func osFlag(flag sys.Oflag) int {
	out := os.O_RDONLY
	switch {
	case flag&sys.O_RDWR != 0:
		out = os.O_RDWR
	case flag&sys.O_WRONLY != 0:
		out = os.O_WRONLY
	}
	for from, to := range map[sys.Oflag]int{sys.O_CREAT: os.O_CREATE, sys.O_EXCL: os.O_EXCL, sys.O_TRUNC: os.O_TRUNC} {
		if flag&from != 0 {
			out |= to
		}
	}
	return out
}

// stat hides owners and devices from the guest.
func stat(info fs.FileInfo) wasys.Stat_t {
	st := wasys.NewStat_t(info)
	st.Dev = 0
	return st
}

func (d *dir) Stat(p string) (wasys.Stat_t, sys.Errno) { return d.look(p, (*os.Root).Stat) }

func (d *dir) Lstat(p string) (wasys.Stat_t, sys.Errno) { return d.look(p, (*os.Root).Lstat) }

func (d *dir) look(p string, by func(*os.Root, string) (fs.FileInfo, error)) (wasys.Stat_t, sys.Errno) {
	p, bad := d.clean(p)
	if bad != 0 {
		return wasys.Stat_t{}, bad
	}
	info, err := by(d.root, p)
	if err != nil {
		return wasys.Stat_t{}, errno(err)
	}
	return stat(info), 0
}

func (d *dir) Readlink(p string) (string, sys.Errno) {
	p, bad := d.clean(p)
	if bad != 0 {
		return "", bad
	}
	to, err := d.root.Readlink(p)
	return to, errno(err)
}

// change calls f, which changes the directory, if the guest may write.
func (d *dir) change(p string, f func(p string) error) sys.Errno {
	p, bad := d.clean(p)
	switch {
	case bad != 0:
		return bad
	case d.readOnly:
		return sys.EROFS
	case p == ".":
		return sys.EINVAL
	}
	return errno(f(p))
}

func (d *dir) Mkdir(p string, _ fs.FileMode) sys.Errno {
	if d.readOnly {
		return sys.EROFS
	}
	if e := d.budget.take(entryCharge); e != 0 {
		return e
	}
	return d.change(p, func(p string) error { return d.root.Mkdir(p, 0o700) })
}

func (d *dir) Rmdir(p string) sys.Errno { return d.remove(p, true) }

func (d *dir) Unlink(p string) sys.Errno { return d.remove(p, false) }

func (d *dir) remove(p string, isDir bool) sys.Errno {
	st, bad := d.Lstat(p)
	switch {
	case bad != 0:
		return bad
	case isDir && !st.Mode.IsDir():
		return sys.ENOTDIR
	case !isDir && st.Mode.IsDir():
		return sys.EISDIR
	}
	return d.change(p, d.root.Remove)
}

func (d *dir) Rename(from, to string) sys.Errno {
	slash := namesDirectory(to)
	return d.change(to, func(to string) error {
		from, bad := d.clean(from)
		switch {
		case bad != 0:
			return bad
		case from == ".":
			return sys.EINVAL
		}
		if slash { // only a directory may get such a name
			if info, err := d.root.Lstat(from); err == nil && !info.IsDir() {
				return sys.ENOTDIR
			}
		}
		return rename(d.root, from, to)
	})
}

// Chmod has no effect: only the user of the host may read files that a task wrote.
func (d *dir) Chmod(p string, _ fs.FileMode) sys.Errno {
	return d.change(p, func(p string) error {
		_, err := d.root.Stat(p)
		return err
	})
}

func (d *dir) Utimens(p string, atim, mtim int64) sys.Errno {
	return d.change(p, func(p string) error { return d.root.Chtimes(p, at(atim), at(mtim)) })
}

// at returns a time, or the zero time for a time that must not change.
func at(ns int64) time.Time {
	if ns == sys.UTIME_OMIT {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// dirFile is an open file or directory.
type dirFile struct {
	unimplemented
	position[int64]
	dir                  *dir
	file                 *os.File
	path                 string // the path by which it was opened
	isDir, append, write bool
	closed               bool
}

func (f *dirFile) IsDir() (bool, sys.Errno)        { return f.isDir, 0 }
func (f *dirFile) IsAppend() bool                  { return f.append }
func (f *dirFile) SetAppend(enable bool) sys.Errno { f.append = enable; return 0 }
func (f *dirFile) Sync() sys.Errno                 { return errno(f.file.Sync()) }
func (f *dirFile) Datasync() sys.Errno             { return errno(f.file.Sync()) }

func (f *dirFile) Ino() (wasys.Inode, sys.Errno) {
	st, bad := f.Stat()
	return st.Ino, bad
}

func (f *dirFile) Stat() (wasys.Stat_t, sys.Errno) {
	info, err := f.file.Stat()
	if err != nil {
		return wasys.Stat_t{}, errno(err)
	}
	return stat(info), 0
}

// some converts the result of a read or write. The end of a file is no error.
func some(n int, err error) (int, sys.Errno) {
	if err == io.EOF {
		err = nil
	}
	return n, errno(err)
}

func (f *dirFile) Read(p []byte) (int, sys.Errno) {
	f.dir.budget.work(len(p))
	if f.isDir {
		return 0, sys.EISDIR
	}
	return some(f.file.Read(p))
}

func (f *dirFile) Pread(p []byte, off int64) (int, sys.Errno) {
	f.dir.budget.work(len(p))
	if f.isDir {
		return 0, sys.EISDIR
	}
	return some(f.file.ReadAt(p, off))
}

func (f *dirFile) Write(p []byte) (int, sys.Errno) {
	f.dir.budget.work(len(p))
	whence := io.SeekCurrent
	if f.append {
		whence = io.SeekEnd
	}
	off, err := f.file.Seek(0, whence)
	if err != nil {
		return 0, errno(err)
	}
	if bad := f.pay(off, len(p)); bad != 0 {
		return 0, bad
	}
	return some(f.file.Write(p))
}

func (f *dirFile) Pwrite(p []byte, off int64) (int, sys.Errno) {
	f.dir.budget.work(len(p))
	if bad := f.pay(off, len(p)); bad != 0 {
		return 0, bad
	}
	return some(f.file.WriteAt(p, off))
}

// pay charges the quota for written bytes. A hole before them is charged as if it was
// written.
func (f *dirFile) pay(off int64, n int) sys.Errno {
	if !f.write || f.isDir {
		return sys.EBADF
	}
	if off < 0 || off > maxOffset {
		return sys.EINVAL
	}
	st, bad := f.Stat()
	if bad != 0 {
		return bad
	}
	return f.dir.budget.take(int64(n) + max(off-st.Size, 0))
}

func (f *dirFile) Truncate(size int64) sys.Errno {
	if bad := f.pay(size, 0); bad != 0 {
		return bad
	}
	return errno(f.file.Truncate(size))
}

func (f *dirFile) move(offset int64, whence int) (int64, sys.Errno) {
	n, err := f.file.Seek(offset, whence)
	return n, errno(err)
}

func (f *dirFile) Readdir(n int) ([]sys.Dirent, sys.Errno) {
	f.dir.budget.work(0)
	if !f.isDir {
		return nil, sys.ENOTDIR
	}
	var out []sys.Dirent
	for n <= 0 || len(out) < n {
		step := readdirStep
		if n > 0 {
			step = min(step, n-len(out))
		}
		f.dir.budget.work(256 * step)
		entries, err := f.file.ReadDir(step)
		for _, e := range entries {
			out = append(out, sys.Dirent{Ino: inode(f.file, e.Name()), Name: e.Name(), Type: e.Type()})
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, errno(err)
		}
	}
	return out, 0
}

// readdirStep is the number of entries that are read between two points at which the guest
// can be stopped.
const readdirStep = 256

func (f *dirFile) Utimens(atim, mtim int64) sys.Errno {
	f.dir.budget.work(0)
	if f.dir.readOnly {
		return sys.EROFS
	}
	return errno(chtimes(f.dir.root, f.path, f.file, at(atim), at(mtim)))
}

// chtimesByPath sets the times of an open file by its path, if the path still names it.
func chtimesByPath(root *os.Root, path string, file *os.File, atim, mtim time.Time) error {
	have, err := file.Stat()
	if err != nil {
		return err
	}
	if named, err := root.Stat(path); err != nil || !os.SameFile(have, named) {
		return sys.ENOENT
	}
	return root.Chtimes(path, atim, mtim)
}

func (f *dirFile) Close() sys.Errno {
	if f.closed {
		return 0
	}
	f.closed = true
	f.dir.budget.open++
	return errno(f.file.Close())
}
