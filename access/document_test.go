package access

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/access.md")

// permissionTexts says what each permission allows, for docs/access.md.
var permissionTexts = map[string]string{
	"jobs.read":         "show jobs, calendars, apps and their settings, and the overview",
	"runs.read":         "show runs without input and output, and explain them",
	"modules.read":      "show and download modules, aliases and grants",
	"revisions.read":    "show the revisions of definitions",
	"cluster.read":      "show hosts; in the cluster also servers and partitions",
	"queues.read":       "show queues and dead letters without bodies, in the cluster",
	"secrets.read":      "list the names of secrets; no permission shows their values",
	"alerts.read":       "show alerts, rules, silences, deliveries and marks of errors",
	"alerts.operate":    "acknowledge and silence alerts, test channels, retry deliveries, and acknowledge and ignore kinds of errors",
	"alerts.write":      "change alert rules",
	"channels.read":     "show alert channels with their addresses, which may have keys",
	"channels.write":    "change alert channels, which may send secrets of the app",
	"payload.read":      "see inputs and outputs, and find runs by them",
	"logs.read":         "read the logs of runs",
	"kv.read":           "read the values that handlers store",
	"jobs.trigger":      "run jobs now",
	"jobs.operate":      "pause, resume, skip, backfill, cancel, terminate and retry",
	"queues.operate":    "drop dead letters in the cluster; to edit and replay them takes jobs.write and jobs.trigger too",
	"jobs.write":        "create, change and delete jobs, and see their inputs; delete ended runs and their payloads",
	"definitions.write": "apply documents, and change calendars",
	"modules.write":     "push, sign, delete and collect modules; to try a script takes jobs.trigger too",
	"kv.write":          "change values",
	"aliases.write":     "move aliases of modules",
	"grants.write":      "give modules access to secrets, values and addresses",
	"secrets.write":     "set and delete secrets",
	"apps.write":        "change the settings of an app, and delete it",
	"access.read":       "list principals, tokens and bindings of the scope",
	"access.write":      "create tokens and bindings in the scope, with at most the own permissions",
	"audit.read":        "read the audit log",
	"cluster.operate":   "cordon hosts, drain servers, move and split partitions, and seal secrets with a new key",
	"cluster.backup":    "make a backup of everything, and export the keys of the server",
	"metrics.read":      "read `/metrics`",
}

// TestRolesDocument: the table in docs/access.md has the roles and their permissions.
// `go test ./access -run TestRolesDocument -update` writes it.
func TestRolesDocument(t *testing.T) {
	order := roleOrder
	if len(order) != len(roles) {
		t.Fatalf("the table has %d roles, there are %d", len(order), len(roles))
	}
	var b strings.Builder
	b.WriteString("| permission | " + strings.Join(order, " | ") + " | allows to |\n|---|" + strings.Repeat("---|", len(order)+1) + "\n")
	for _, permission := range slices.SortedFunc(maps.Keys(permissionTexts), func(a, b string) int {
		return slices.Index(roles[RoleAdmin], a) - slices.Index(roles[RoleAdmin], b)
	}) {
		fmt.Fprintf(&b, "| `%s` |", permission)
		for _, role := range order {
			mark := ""
			if slices.Contains(roles[role], permission) {
				mark = "●"
			}
			fmt.Fprintf(&b, " %s |", mark)
		}
		fmt.Fprintf(&b, " %s |\n", permissionTexts[permission])
	}
	for _, permission := range roles[RoleAdmin] {
		if permissionTexts[permission] == "" {
			t.Errorf("the permission %s has no text", permission)
		}
	}
	file := filepath.Join("..", "docs", "access.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- the roles, written by a test -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	want := before + begin + b.String() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the roles in %s are not those of this package: go test ./access -run TestRolesDocument -update", file)
	}
}
