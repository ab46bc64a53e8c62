package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HideMemory keeps other processes of the same user from reading this one's memory,
// and the kernel from writing it to disk after a crash: tokens, keys and secrets are
// in it. A process that this one starts decides for itself.
func HideMemory() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn core dumps off: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the memory of this process: %w", err)
	}
	return nil
}
