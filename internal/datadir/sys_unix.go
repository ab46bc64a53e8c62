//go:build unix

package datadir

import (
	"os"
	"syscall"
)

// lockFile locks a file for this process alone, or fails at once.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// FreeBytes returns the free space of a directory's disk, and false if it is unknown.
func FreeBytes(path string) (int64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}

// giveToOwner makes the owner of a directory the owner of a file in it, if this process may do so: a
// service with a user of its own must read what root has written for it.
func giveToOwner(file, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(file, int(owner.Uid), int(owner.Gid))
}
