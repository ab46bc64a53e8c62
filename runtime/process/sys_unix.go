//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"
)

// killGroup kills a process and its group.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) } // it may be gone, which is what is wanted

func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// detach takes a program out of the session, so that a terminal that is closed
// does not end it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
