package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogin creates a user, who signs in, replaces the first password and uses the session, until it
// signs out or is disabled.
func TestLogin(t *testing.T) {
	ready := startDev(t, filepath.Join(t.TempDir(), "data"))
	config := t.TempDir()
	as := func(want int, input string, args ...string) string {
		t.Helper()
		var out, errOut strings.Builder
		getenv := func(name string) string {
			return map[string]string{"WHEELWORK_URL": ready.URL, "XDG_CONFIG_HOME": config}[name]
		}
		if code := execute(context.Background(), args, strings.NewReader(input), &out, &errOut, getenv); code != want {
			t.Fatalf("wheelwork %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errOut.String())
		}
		return out.String() + errOut.String()
	}
	var made struct{ Password string }
	if err := json.Unmarshal([]byte(call(t, ready, 0, "user", "create", "ada", "-o", "json")), &made); err != nil || len(made.Password) < 20 {
		t.Fatal(made, err)
	}
	call(t, ready, 1, "user", "create", "ada")
	call(t, ready, 0, "binding", "add", "ada", "--role", "viewer", "--app", "shop")
	const chosen = "five words make a phrase"
	as(2, "", "login")
	as(1, "", "login", "--user", "ada")
	if text := as(1, "wrong\n", "login", "--user", "ada"); !strings.Contains(text, "the name or the password is wrong") {
		t.Error(text)
	}
	if text := as(1, "wrong\n", "login", "--user", "nobody"); !strings.Contains(text, "the name or the password is wrong") {
		t.Error(text)
	}
	if text := as(1, made.Password+"\nshort\n", "login", "--user", "ada"); !strings.Contains(text, "at least") && !strings.Contains(text, "the least is") {
		t.Error(text)
	}
	as(0, made.Password+"\n"+chosen+"\n", "login", "--user", "ada")
	as(1, made.Password+"\n", "login", "--user", "ada")
	if text := as(0, "", "whoami"); !strings.Contains(text, "ada") || !strings.Contains(text, "viewer") {
		t.Error(text)
	}
	as(0, "", "job", "list", "--app", "shop")
	as(1, "", "job", "list", "--app", "bank")
	files, err := filepath.Glob(filepath.Join(config, "wheelwork", "sessions", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	var sessions []struct{ ID, Principal string }
	if err := json.Unmarshal([]byte(as(0, "", "session", "list", "-o", "json")), &sessions); err != nil || len(sessions) != 1 || sessions[0].Principal != "ada" {
		t.Fatal(sessions, err)
	}
	as(1, "", "session", "end", "ses-none")
	as(0, "", "session", "end", sessions[0].ID)
	if text := as(1, "", "whoami"); !strings.Contains(text, "has ended") {
		t.Error(text)
	}
	as(0, chosen+"\n", "login", "--user", "ada")
	as(0, "", "logout")
	if _, err := os.Stat(files[0]); err == nil {
		t.Error("the session stays on the disk")
	}
	as(1, "", "whoami")
	as(0, chosen+"\n", "login", "--user", "ada")
	call(t, ready, 0, "user", "disable", "ada")
	if text := as(1, "", "whoami"); !strings.Contains(text, "has ended") {
		t.Error(text)
	}
	as(1, chosen+"\n", "login", "--user", "ada")
	call(t, ready, 0, "user", "disable", "ada", "--undo")
	as(0, chosen+"\n", "login", "--user", "ada")
	call(t, ready, 0, "user", "passwd", "ada")
	as(1, "", "whoami")
	if text := call(t, ready, 0, "user", "list"); !strings.Contains(text, "ada") || !strings.Contains(text, "viewer in app:shop") {
		t.Error(text)
	}
}
