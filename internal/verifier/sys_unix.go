//go:build unix

package verifier

import (
	"fmt"
	"os/exec"
	"syscall"
)

// group starts the child in a process group of its own, and ends all of it on cancellation.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// setLimits bounds this process: cpu is in seconds of processor time, data in bytes, file in
// bytes of a file that it writes. The soft
// limit of the processor time is also the hard one: Go would handle the signal of a lower
// soft limit.
func setLimits(cpu, data, file uint64) error {
	for _, l := range []struct {
		what  int
		limit uint64
	}{{syscall.RLIMIT_CPU, cpu}, {syscall.RLIMIT_DATA, data}, {syscall.RLIMIT_CORE, 0}, {syscall.RLIMIT_FSIZE, file}} {
		if err := syscall.Setrlimit(l.what, rlimit(l.limit)); err != nil {
			return fmt.Errorf("limit the upload verifier: %w", err)
		}
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) // runs come first; the child also works without
	return nil
}
