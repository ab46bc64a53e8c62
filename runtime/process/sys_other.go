//go:build !unix

package process

import (
	"os"
	"os/exec"
)

func separate(*exec.Cmd) {}

func detach(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() }

func terminateGroup(*os.Process) {}

func wait(cmd *exec.Cmd, ended func()) {
	_ = cmd.Wait() // the error is also in the ProcessState
	ended()
}
