package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// process returns a command with flags of each kind.
func process() (*cobra.Command, *Source) {
	root := &cobra.Command{Use: "wheelwork", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("ca-cert", "", "")
	root.PersistentFlags().String("token", "", "")
	cmd := &cobra.Command{Use: "host", Short: "Run a host", RunE: func(*cobra.Command, []string) error { return nil }}
	root.AddCommand(cmd)
	cmd.Flags().String("data", "data", "")
	cmd.Flags().String("token-file", "", "")
	cmd.Flags().Int("slots", 4, "")
	cmd.Flags().StringSlice("http-allow", nil, "")
	cmd.Flags().StringToString("label", nil, "")
	return cmd, Add(cmd)
}

// apply parses a command line and applies variables and a file to it.
func apply(t *testing.T, args []string, env map[string]string, file string) ([]Setting, string, error) {
	t.Helper()
	cmd, s := process()
	path := filepath.Join(t.TempDir(), "host.yaml")
	if file != "" {
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	var warned strings.Builder
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		return s.Apply(cmd, Environment{Get: func(n string) string { return env[n] }, Names: slices.Collect(maps.Keys(env))}, []*cobra.Command{cmd}, func(f string, a ...any) { fmt.Fprintf(&warned, f, a...) })
	}
	cmd.Root().SetArgs(append([]string{"host"}, args...))
	err := cmd.Root().Execute()
	all := s.Settings(cmd)
	for i := range all {
		all[i].Origin = Origin(strings.ReplaceAll(string(all[i].Origin), path, "FILE"))
	}
	return all, warned.String(), err
}

func TestPrecedence(t *testing.T) {
	env := map[string]string{"WHEELWORK_SLOTS": "6", "WHEELWORK_DATA": "from-env", "WHEELWORK_LABEL": "zone=b", "WHEELWORK_CA_CERT": ""}
	got, warned, err := apply(t, []string{"--slots", "7"}, env, "slots: 5\ndata: from-file\nhttp-allow: [a.example, 'b.example:8443']\nlabel: {disk: 'fast, local', rank: 1}\nca-cert: ca.pem\n")
	if err != nil || warned != "" {
		t.Fatal(err, warned)
	}
	want := []Setting{
		{"ca-cert", "ca.pem", "file FILE"},
		{"data", "from-env", "environment WHEELWORK_DATA"},
		{"http-allow", "a.example,b.example:8443", "file FILE"},
		{"label", "zone=b", "environment WHEELWORK_LABEL"},
		{"slots", "7", "flag"},
		{"token-file", "", "default"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("settings %v\nwant %v", got, want)
	}
	got, _, err = apply(t, nil, nil, "label: {disk: 'fast, local', rank: 1}")
	if err != nil || !strings.Contains(got[3].Value, "disk=fast, local") || !strings.Contains(got[3].Value, "rank=1") {
		t.Errorf("a map: %v, %v", got[3], err)
	}
}

func TestMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		env        map[string]string
		file, want string
	}{
		"unknown key":            {nil, "slot: 3", `there is no setting "slot" of wheelwork host: did you mean "slots"?`},
		"unlike any key":         {nil, "xylophone: 3", `there is no setting "xylophone" of wheelwork host; see`},
		"global of callers":      {nil, "token: abc", "a secret does not belong into this file"},
		"wrong number":           {nil, "slots: many", "slots (file"},
		"list for one":           {nil, "data: [a]", "want one value, not a list"},
		"map for one":            {nil, "data: {a: b}", "want one value, not a map"},
		"nothing":                {nil, "data:", "it has no value"},
		"nested list":            {nil, "http-allow: [[a]]", "want a list of texts"},
		"no map":                 {nil, "- data", "want fields, found a list"},
		"key twice":              {nil, "data: a\ndata: b", "already defined"},
		"wrong variable":         {map[string]string{"WHEELWORK_SLOTS": "many"}, "", "slots (environment WHEELWORK_SLOTS)"},
		"a key in a variable":    {map[string]string{"WHEELWORK_TOKEN_FILE": "-----BEGIN KEY"}, "", "set the variable to its path"},
		"file that is not there": {map[string]string{"WHEELWORK_CONFIG": "/none/such.yaml"}, "", "no such file"},
	} {
		if _, _, err := apply(t, nil, tt.env, tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, tt.want)
		}
	}
}

func TestVariables(t *testing.T) {
	_, warned, err := apply(t, nil, map[string]string{
		"WHEELWORK_SLOT": "3", "WHEELWORK_TOKEN": "of-callers", "WHEELWORK_URL": "http://127.0.0.1:1", "PATH": "/bin",
		"WHEELWORK_SERVICE_HOST": "10.0.0.1", "WHEELWORK_PORT_7700_TCP": "tcp://10.0.0.1:7700", "WHEELWORK_DTA": "",
	}, "")
	if want := `unknown variables are ignored: WHEELWORK_SLOT: did you mean "WHEELWORK_SLOTS"?`; err != nil || warned != want {
		t.Errorf("warned %q, %v; want %q", warned, err, want)
	}
}

// TestSecretVariable sets a secret in a variable of its own, which only callers may do with theirs.
func TestSecretVariable(t *testing.T) {
	cmd, s := process()
	cmd.Flags().String("server-token-file", "", "")
	env := map[string]string{"WHEELWORK_SERVER_TOKEN": "hush-hush"}
	err := s.Apply(cmd, Environment{Get: func(n string) string { return env[n] }, Names: slices.Collect(maps.Keys(env))}, nil, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "set WHEELWORK_SERVER_TOKEN_FILE to its path") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}
