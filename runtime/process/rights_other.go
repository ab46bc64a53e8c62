//go:build !linux

package process

import (
	"errors"
	"os/exec"
)

func (a *account) become(*exec.Cmd) {}

func (g *group) enter(*exec.Cmd) {}

func mayChangeUser() error { return errors.New("programs run as other users on Linux only") }

func mayLimitOthers() bool { return false }

// limit does nothing: this system has no way to limit another process.
func limit(int, int64) error { return nil }
