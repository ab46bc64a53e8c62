package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestUserListBuiltIn lists the built-in principals of a running server, and tries to disable them.
func TestUserListBuiltIn(t *testing.T) {
	ready := startDev(t, filepath.Join(t.TempDir(), "data"))
	call(t, ready, 0, "user", "create", "ada")
	table := call(t, ready, 0, "user", "list")
	for _, line := range []string{"legacy-admin  user  built in  admin in cluster", "legacy-host   host  built in  worker in cluster"} {
		if !strings.Contains(table, line) {
			t.Errorf("the list has no %q:\n%s", line, table)
		}
	}
	names := ""
	for line := range strings.Lines(call(t, ready, 0, "user", "list", "-o", "jsonl")) {
		p := struct {
			Principal string
			BuiltIn   bool `json:"built_in"`
		}{}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if names += p.Principal + " "; p.BuiltIn != strings.HasPrefix(p.Principal, "legacy-") {
			t.Errorf("%+v", p)
		}
	}
	if names != "ada legacy-admin legacy-host " { // this server accepts no token of another one
		t.Errorf("the list has %s", names)
	}
	for _, command := range []string{"disable", "passwd"} {
		var out, errOut strings.Builder
		code := execute(t.Context(), []string{"user", command, "legacy-admin", "--url", ready.URL, "--token", ready.Token}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
		if code != 1 || !strings.Contains(errOut.String(), "--legacy-tokens off") {
			t.Errorf("user %s: exit code %d, %s", command, code, errOut.String())
		}
	}
	call(t, ready, 1, "user", "disable", "legacy-host", "--undo")
}
