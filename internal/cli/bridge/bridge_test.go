package bridge

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// TestRefusedFlags: a bridge does not start with a setting that is missing, wrong or public.
func TestRefusedFlags(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "a-secret\n")
	for _, c := range []struct{ args, want string }{
		{"", "--listen is missing"},
		{"--listen 127.0.0.1:0", "--xxl-token-file is missing"},
		{"--listen 127.0.0.1:0 --xxl-token-file " + file("default", "default_token\n"), "public default"},
		{"--listen 127.0.0.1:0 --xxl-token-file " + file("empty", "\n"), "access token is empty"},
		{"--listen 127.0.0.1:0 --xxl-token-file " + good + " --executor-allow 10.1.0.0", "want a network"},
		{"--listen 127.0.0.1:0 --xxl-token-file " + good + " --zone Mars", "--zone"},
		{"--listen 127.0.0.1:0 --xxl-token-file " + good + " --tls-cert x", "--tls-key"},
	} {
		root := &cobra.Command{Use: "wheelwork", SilenceErrors: true, SilenceUsage: true}
		none := func(string) string { return "" }
		root.AddCommand(Command(output.New(root, none), connect.New(root, none)))
		root.SetArgs(append([]string{"bridge", "xxl-job", "--data", filepath.Join(dir, "data")}, strings.Fields(c.args)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.args, err, c.want)
		}
	}
}
