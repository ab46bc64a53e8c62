//go:build unix

package files

import (
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// nonblock opens a pipe without waiting for its other end.
const nonblock = unix.O_NONBLOCK

// inode returns the inode of an entry of an open directory, 0 if the entry is gone.
func inode(dir *os.File, name string) (ino uint64) {
	_ = control(dir, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		ino = uint64(st.Ino)
		return nil
	})
	return ino
}

// rename is rename of POSIX, which replaces an empty directory by a directory in one step;
// Go's refuses that. The root confines the parents, and the system follows no link in the
// last element.
func rename(root *os.Root, from, to string) error {
	src, err := openDirectory(root, path.Dir(from))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := openDirectory(root, path.Dir(to))
	if err != nil {
		return err
	}
	defer dst.Close()
	return control(src, func(srcFD int) error {
		return control(dst, func(dstFD int) error {
			return unix.Renameat(srcFD, path.Base(from), dstFD, path.Base(to))
		})
	})
}

// openDirectory opens a directory, and never waits for the other end of a pipe.
func openDirectory(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|nonblock, 0)
}

// control calls f with the descriptor of an open file. It leaves the file's mode as it is,
// unlike [os.File.Fd].
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var bad error
	if err := conn.Control(func(fd uintptr) { bad = f(int(fd)) }); err != nil {
		return err
	}
	return bad
}
