//go:build unix

package transport

import "syscall"

// openFiles returns how many files the process may have open, at most enoughFiles.
func openFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return enoughFiles
	}
	return int(min(uint64(l.Cur), enoughFiles)) //nolint:unconvert // signed on some systems
}
