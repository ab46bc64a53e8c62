package process

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// separate makes a program the leader of its own group. The kernel kills it when the
// thread that starts it ends.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait waits for the end of a program. It calls ended while the kernel still reserves the
// PID, which it does until the parent has waited for the process.
func wait(cmd *exec.Cmd, ended func()) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	ended()
	_ = cmd.Wait() // the error is also in the ProcessState
}
