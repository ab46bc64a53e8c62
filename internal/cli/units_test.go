package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// TestUnits checks the systemd units: each starts a command that exists and reloads it, sets
// variables of its flags only, and is confined. An exposure level of systemd above 2.3 of 10 fails:
// the namespaces that the server's unit leaves to the upload verifier cost 0.6.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("units %v, %v", units, err)
	}
	i := newInvocation([]string{}, strings.NewReader(""), os.Stderr, os.Stderr, func(string) string { return "" })
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/wheelwork (\S+) --config `).FindSubmatch(text)
		if start == nil {
			t.Errorf("%s starts no process with --config", unit)
			continue
		}
		if !strings.Contains(string(text), "\nExecReload=/bin/kill -HUP $MAINPID\n") {
			t.Errorf("%s does not reload its process", unit)
		}
		cmd, _, err := i.root.Find([]string{string(start[1])})
		if err != nil || cmd == i.root {
			t.Errorf("%s starts %s, which is no command", unit, start[1])
			continue
		}
		for _, v := range regexp.MustCompile(`WHEELWORK_([A-Z_]+)=`).FindAllSubmatch(text, -1) {
			if flag := strings.ToLower(strings.ReplaceAll(string(v[1]), "_", "-")); cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s sets --%s, which %s does not have", unit, flag, cmd.Name())
			}
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			testkit.Lacks(t, "systemd-analyze is not installed: %v", err)
		}
		if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=23", unit).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
