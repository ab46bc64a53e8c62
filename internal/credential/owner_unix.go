//go:build unix

package credential

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner that another one has.
func keepOwner(path string, of fs.FileInfo) error {
	if s, ok := of.Sys().(*syscall.Stat_t); ok {
		return os.Chown(path, int(s.Uid), int(s.Gid))
	}
	return nil
}
