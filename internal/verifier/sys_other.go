//go:build !unix

package verifier

import (
	"fmt"
	"os/exec"
	"runtime"
)

func group(*exec.Cmd) {}

// setLimits fails: an upload is not parsed in a process without limits.
func setLimits(_, _, _ uint64) error {
	return fmt.Errorf("limit the upload verifier: %s has no limits for a process", runtime.GOOS)
}
