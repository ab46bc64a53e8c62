//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"
)

// separate makes a program the leader of a group of its own.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// wait waits for the end of a program and calls ended. Between the two another
// program could get its number: there is no portable way to know of an end and
// keep the number.
func wait(cmd *exec.Cmd, ended func()) {
	_ = cmd.Wait() // the state says what it says
	ended()
}
