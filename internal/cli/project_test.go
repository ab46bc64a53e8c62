package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wheelworkhq/wheelwork/examples/greet"
)

// TestProject runs the scripts that need no server.
func TestProject(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/project",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			self, err := exec.LookPath("wheelwork") // testscript puts it on the PATH
			if err != nil {
				for _, v := range e.Vars {
					if path, ok := strings.CutPrefix(v, "PATH="); ok {
						self, err = filepath.Join(filepath.SplitList(path)[0], "wheelwork"), nil
					}
				}
			}
			e.Setenv("WHEELWORK", self)
			return errors.Join(err, os.WriteFile(filepath.Join(e.WorkDir, "greet.wasm"), greet.Module, 0o600))
		},
	})
}
