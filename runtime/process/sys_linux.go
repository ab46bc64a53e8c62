package process

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// separate makes a program the leader of a group of its own, which the kernel
// kills with the thread that starts it.
func separate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait waits for the end of a program and calls ended before its number can be
// another's: until it is waited for, the kernel keeps the number.
func wait(cmd *exec.Cmd, ended func()) {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	ended()
	_ = cmd.Wait() // the state says what it says
}
