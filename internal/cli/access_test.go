package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/node"
)

// TestAccess uses the commands about tokens and bindings on a running server, as an administrator, a
// maintainer of one app, and a producer.
func TestAccess(t *testing.T) {
	ready := startDev(t, filepath.Join(t.TempDir(), "data"))
	type object = map[string]any
	read := func(out string) object {
		t.Helper()
		m := object{}
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return m
	}
	with := func(token any) node.Ready {
		r := ready
		r.Token = token.(string)
		return r
	}
	who := read(call(t, ready, 0, "whoami", "-o", "json"))
	if who["principal"] != "legacy-admin" || who["kind"] != "user" {
		t.Errorf("the administrator is %v", who)
	}
	if b := who["bindings"].([]any); len(b) != 1 || b[0].(object)["role"] != "admin" || b[0].(object)["scope"] != "cluster" {
		t.Errorf("the administrator has %v", b)
	}

	// The app of WHEELWORK_APP, which call sets, is no scope.
	call(t, ready, 2, "token", "create", "ci", "--role", "producer")
	call(t, ready, 2, "token", "create", "ci", "--app", "shop")
	call(t, ready, 2, "token", "create", "ci", "--role", "producer", "--app", "shop", "--cluster")
	call(t, ready, 2, "binding", "add", "ci", "--role", "producer")
	call(t, ready, 2, "binding", "add", "ci", "--role", "producer", "--app", "shop", "--expires", "yesterday")
	call(t, ready, 1, "token", "create", "ci", "--role", "root", "--cluster")
	call(t, ready, 1, "binding", "add", "nobody", "--role", "viewer", "--cluster")

	maintainer := read(call(t, ready, 0, "token", "create", "ada", "--role", "maintainer", "--app-prefix", "shop*", "-o", "json"))
	producer := read(call(t, with(maintainer["token"]), 0, "token", "create", "orders", "--role", "producer", "--app", "shop", "-o", "json"))
	for _, field := range []string{"id", "token", "expires_at"} {
		if text, _ := producer[field].(string); text == "" {
			t.Errorf("a new token has no %s: %v", field, producer)
		}
	}
	if who := read(call(t, with(producer["token"]), 0, "whoami", "-o", "json")); who["principal"] != "orders" || who["kind"] != "service" || who["token"] != producer["id"] {
		t.Errorf("the producer is %v", who)
	}
	call(t, with(producer["token"]), 0, "job", "list", "--app", "shop")
	call(t, with(producer["token"]), 1, "job", "list", "--app", "bank")
	call(t, with(producer["token"]), 1, "token", "list")
	call(t, with(maintainer["token"]), 1, "token", "create", "x", "--role", "viewer", "--app", "bank")
	call(t, with(maintainer["token"]), 1, "token", "create", "x", "--role", "admin", "--app", "shop")

	names := func(r node.Ready, args ...string) (all []string) {
		for line := range strings.Lines(call(t, r, 0, append(args, "-o", "jsonl")...)) {
			o := read(line)
			if text, has := o["token"]; has && text != "" {
				t.Errorf("a list shows the text of a token: %v", o)
			}
			all = append(all, o["principal"].(string))
		}
		slices.Sort(all)
		return all
	}
	for _, tt := range []struct {
		as   node.Ready
		args []string
		want string
	}{
		{ready, []string{"token", "list"}, "ada orders"},
		{ready, []string{"token", "list", "--app", "shop"}, "ada orders"},
		{ready, []string{"token", "list", "--app", "bank"}, ""},
		{with(maintainer["token"]), []string{"token", "list", "--app", "shop"}, "ada orders"},
		{ready, []string{"binding", "list"}, ""},
	} {
		if got := strings.Join(names(tt.as, tt.args...), " "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.args, got, tt.want)
		}
	}

	bound := read(call(t, ready, 0, "binding", "add", "orders", "--role", "viewer", "--app", "bank", "--expires", "30d", "-o", "json"))
	call(t, with(producer["token"]), 0, "job", "list", "--app", "bank")
	if got := names(ready, "binding", "list", "--app", "bank"); len(got) != 1 || bound["id"] == "" || bound["expires_at"] == nil {
		t.Errorf("the bindings are %v, the new one %v", got, bound)
	}
	if got := names(with(maintainer["token"]), "binding", "list"); len(got) != 0 {
		t.Errorf("a maintainer of shop sees the bindings of bank: %v", got)
	}
	call(t, ready, 1, "binding", "remove", "orders", "--role", "operator", "--app", "bank")
	call(t, ready, 0, "binding", "remove", "orders", "--role", "viewer", "--app", "bank")
	call(t, ready, 1, "binding", "remove", bound["id"].(string))
	call(t, with(producer["token"]), 1, "job", "list", "--app", "bank")

	id := producer["id"].(string)
	rotated := read(call(t, ready, 0, "token", "rotate", id, "--keep", "1h", "-o", "json"))
	call(t, with(producer["token"]), 0, "whoami")
	call(t, with(rotated["token"]), 0, "whoami")
	again := read(call(t, ready, 0, "token", "rotate", id, "--keep", "0s", "--ttl", "never", "-o", "json"))
	if again["expires_at"] != nil || again["id"] != id {
		t.Errorf("a token without an end: %v", again)
	}
	call(t, with(producer["token"]), 1, "whoami")
	call(t, with(rotated["token"]), 1, "whoami")
	call(t, with(again["token"]), 0, "whoami")
	call(t, with(maintainer["token"]), 1, "token", "revoke", "tok-none")
	call(t, ready, 0, "token", "revoke", id)
	call(t, with(again["token"]), 1, "whoami")

	// The audit log has the changes, the newest first.
	codes := func(r node.Ready, args ...string) (all []string) {
		for line := range strings.Lines(call(t, r, 0, append([]string{"audit"}, args...)...)) {
			o := read(line)
			for _, field := range []string{"time", "code", "actor", "address", "app", "object", "outcome", "before", "after"} {
				if _, has := o[field]; !has {
					t.Errorf("an event has no %s: %v", field, o)
				}
			}
			all = append(all, o["code"].(string)+" "+o["app"].(string)+" "+o["outcome"].(string))
		}
		return all
	}
	shop := codes(ready, "list", "--app", "shop", "-o", "jsonl")
	if len(shop) != 3 || shop[0] != "access.token shop ok" {
		t.Errorf("the events of shop are %v", shop)
	}
	everything := codes(ready, "export")
	if len(everything) < 8 || len(codes(ready, "list", "-o", "jsonl")) != len(everything) || len(codes(ready, "list", "--code", "access.revoked", "--since", "1h", "-o", "jsonl")) != 1 {
		t.Errorf("all events are %v", everything)
	}
	if got := codes(with(maintainer["token"]), "list", "-o", "jsonl"); len(got) != len(shop) {
		t.Errorf("a maintainer of shop sees %v", got)
	}
	if out := call(t, ready, 0, "audit", "verify"); !strings.Contains(out, "intact") {
		t.Errorf("the log is %s", out)
	}
	call(t, with(maintainer["token"]), 1, "audit", "verify")
	call(t, ready, 2, "audit", "list", "--since", "soon")
	exported := filepath.Join(t.TempDir(), "audit.jsonl")
	call(t, ready, 0, "audit", "export", "--file", exported)
	call(t, ready, 1, "audit", "export", "--file", exported) // it is there
	if text, err := os.ReadFile(exported); err != nil || strings.Count(string(text), "\n") != len(everything) {
		t.Errorf("the file has %s, %v", text, err)
	}

	// The reason of a refusal reaches the user.
	var out, errOut strings.Builder
	code := execute(context.Background(), []string{"job", "list", "--url", ready.URL, "--token", maintainer["token"].(string), "--app", "bank"}, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
	if text := errOut.String(); code != 1 || !strings.Contains(text, "ada (") || !strings.Contains(text, "lacks the permission jobs.read in the app bank") || !strings.Contains(text, "wheelwork binding add ada --role ") {
		t.Errorf("exit code %d, %s", code, text)
	}
}
