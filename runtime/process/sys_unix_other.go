//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// separate makes a program the leader of its own group.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// wait waits for the end of a program and then calls ended. In between, another program
// may receive the PID: there is no portable way to learn of the end and still reserve the
// PID.
func wait(cmd *exec.Cmd, ended func()) {
	_ = cmd.Wait() // the error is also in the ProcessState
	ended()
}
