package module

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// TestMain keeps the modules that the tests compile out of the user's cache.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wheelwork-compiled-")
	if err != nil {
		panic(err)
	}
	os.Setenv(cacheVariable, dir)
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// execute executes a command line that begins behind "wheelwork module". It returns what
// the command writes, and the error that decides the exit code.
func execute(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()
	var o, e strings.Builder
	root := &cobra.Command{Use: "wheelwork", SilenceErrors: true, SilenceUsage: true}
	root.SetIn(strings.NewReader(""))
	root.SetOut(&o)
	root.SetErr(&e)
	root.AddCommand(Command(output.New(root, os.Getenv), connect.New(root, os.Getenv), os.Getenv))
	root.SetArgs(append([]string{"module"}, args...))
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// failed reports whether an error is a failure with a code, and with a text in its
// message.
func failed(err error, code, text string) bool {
	var f *command.Failure
	return errors.As(err, &f) && f.Code == code && strings.Contains(f.Message, text)
}
