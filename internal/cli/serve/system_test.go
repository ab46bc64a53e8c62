package serve

import (
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/cli/config"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"

	"github.com/spf13/cobra"
)

// TestRefuseSystem checks the processes that must not run on Windows: each refuses with one
// sentence that names the reason.
func TestRefuseSystem(t *testing.T) {
	getenv := func(string) string { return "" }
	for name, reason := range missing {
		for system, refused := range map[string]bool{"windows": true, "plan9": true, "linux": false, "freebsd": false} {
			root := &cobra.Command{Use: "wheelwork", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(*cobra.Command, []string) error { return nil }}
			all := Commands(output.New(root, getenv), connect.New(root, getenv), config.Environment{Get: getenv})
			root.AddCommand(all...)
			cmd, _, err := root.Find([]string{name})
			if err != nil || cmd.Name() != name {
				t.Fatalf("%s: %v, %v", name, cmd, err)
			}
			cmd.RunE = func(*cobra.Command, []string) error { return nil }
			refuseSystem(cmd, system)
			root.SetArgs([]string{name})
			err = root.Execute()
			switch {
			case !refused && err != nil:
				t.Errorf("%s on %s: %v", name, system, err)
			case refused && (err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), system)):
				t.Errorf("%s on %s: %v, want it to say %q", name, system, err, reason)
			}
		}
	}
}
