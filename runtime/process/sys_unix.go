//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// killGroup kills a process and its group. It is no error if they have ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// detach puts a program into a session of its own, so that it does not end when the
// terminal is closed.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
