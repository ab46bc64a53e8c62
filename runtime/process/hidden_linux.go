package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HideMemory prevents other processes of the same user from reading the memory of this
// process, which contains tokens, keys and secrets. It also prevents the kernel from
// writing that memory to a core dump. The setting does not apply to the programs that
// this process starts.
func HideMemory() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn core dumps off: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the memory of this process: %w", err)
	}
	return nil
}
