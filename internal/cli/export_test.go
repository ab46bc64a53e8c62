package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExportToReceiver delivers the audit log of a running server to an HTTP receiver and to a file, as a
// timer that starts the command from time to time.
func TestExportToReceiver(t *testing.T) {
	ready := startDev(t, filepath.Join(t.TempDir(), "data"))
	var sequences []string
	refuse := false
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []map[string]any
		body, err := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &events); err != nil {
			t.Error(err)
		}
		if refuse || err != nil || !strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, e := range events {
			sequences = append(sequences, e["sequence"].(string))
		}
	}))
	defer receiver.Close()
	dir := t.TempDir()
	secret, state := filepath.Join(dir, "secret"), filepath.Join(dir, "state")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	deliver := []string{"audit", "export", "--webhook", receiver.URL, "--webhook-secret-file", secret, "--state", state, "--batch", "2"}
	want := func(n string) {
		t.Helper()
		if got := strings.Join(sequences, " "); got != n {
			t.Errorf("the receiver has %q, want %q", got, n)
		}
	}
	call(t, ready, 0, "token", "create", "ci", "--role", "producer", "--app", "shop") // two events; dev has made two
	call(t, ready, 0, deliver...)
	want("1 2 3 4")
	call(t, ready, 0, deliver...)
	want("1 2 3 4")
	call(t, ready, 0, "token", "create", "ci", "--role", "producer", "--app", "shop")
	refuse = true
	call(t, ready, 1, deliver...)
	refuse = false
	call(t, ready, 0, "token", "create", "ci", "--role", "producer", "--app", "shop")
	call(t, ready, 0, deliver...)
	want("1 2 3 4 5 6")

	file := filepath.Join(dir, "audit.jsonl")
	call(t, ready, 1, "audit", "export", "--follow", "--timeout", "3s", "--file", file, "--state", filepath.Join(dir, "of-file")) // ended by the timeout
	b, err := os.ReadFile(file)
	if err != nil || strings.Count(string(b), "\n") != 6 || !strings.Contains(string(b), `"sequence":"1"`) {
		t.Errorf("%s, %v", b, err)
	}
	if first := strings.Index(string(b), `"sequence":"1"`); first > strings.Index(string(b), `"sequence":"6"`) {
		t.Errorf("the oldest event is not the first: %s", b)
	}
	for _, wrong := range [][]string{
		{"--webhook", receiver.URL},
		{"--syslog", "tcp://localhost:1"},
		{"--state", state},
		{"--follow", "--until", "1h"},
		{"--webhook", receiver.URL, "--state", state, "--file", file},
		{"--webhook-secret-file", secret},
		{"--follow", "--batch", "0"},
		{"--webhook", "http://siem.example", "--state", filepath.Join(dir, "other")},
	} {
		call(t, ready, 2, append([]string{"audit", "export"}, wrong...)...)
	}
	call(t, ready, 1, "audit", "export", "--webhook", receiver.URL, "--state", filepath.Join(dir, "missing", "state"))
	call(t, ready, 1, "audit", "export", "--webhook", receiver.URL, "--state", state, "--code", "job.")
}
