// Package clienttypescript tests the client of this folder.
package clienttypescript

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// tools are the programs that the test needs, which one folder of npm's packages has.
var tools = []string{"openapi-typescript", "redocly", "tsc"}

// TestClient lints the OpenAPI document of a server, makes types of it, compiles the client
// with them, and runs it.
func TestClient(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short: builds the program and compiles TypeScript")
	}
	packages := installed(t)
	server := dev(t)
	dir := t.TempDir()
	for _, name := range []string{"main.ts", "package.json", "tsconfig.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "openapi.json"), document(t, server.URL))

	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "WHEELWORK_URL="+server.URL, "WHEELWORK_TOKEN="+server.Token, "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	if out := run("redocly", "lint", "--extends=recommended", "--format=stylish", "openapi.json"); regexp.MustCompile(`(?i)\b[1-9]\d* (error|warning)`).MatchString(out) {
		t.Errorf("redocly:\n%s", out)
	}
	run("openapi-typescript", "openapi.json", "-o", "api.d.ts")
	run("tsc")
	got := strings.Split(strings.TrimSpace(run("node", "main.js")), "\n")
	want := []string{`^job typed: created$`, `^jobs: typed$`, `^run: succeeded, 1 attempt: Hello, TypeScript!$`, `^HTTP 404, code 5: .*"not-there"`}
	if len(got) != len(want) {
		t.Fatalf("the client printed\n%s", strings.Join(got, "\n"))
	}
	for i, line := range got {
		if !regexp.MustCompile(want[i]).MatchString(line) {
			t.Errorf("line %d is %q, want %s", i+1, line, want[i])
		}
	}
}

// installed returns the folder of npm's packages that has all tools.
func installed(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		testkit.Lacks(t, "node is missing")
	}
	packages := ""
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			testkit.Lacks(t, "%s is missing: examples/client-typescript/README.md names the packages of npm that this test needs", tool)
		}
		packages = filepath.Dir(filepath.Dir(path)) // of node_modules/.bin/TOOL
	}
	for _, name := range []string{"openapi-fetch", filepath.Join("@types", "node")} {
		if _, err := os.Stat(filepath.Join(packages, name)); err != nil {
			testkit.Lacks(t, "the package %s is missing beside %s: %v", name, tools[len(tools)-1], err)
		}
	}
	return packages
}

type ready struct{ URL, Token string }

// dev starts `wheelwork dev` and waits until it serves.
func dev(t *testing.T) ready {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "wheelwork")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/wheelworkhq/wheelwork/cmd/wheelwork").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var said bytes.Buffer
	file := filepath.Join(dir, "ready")
	cmd := exec.CommandContext(ctx, binary, "dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--ready-file", file)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		if text, err := os.ReadFile(file); err == nil {
			var r ready
			if err := json.Unmarshal(text, &r); err == nil {
				return r
			}
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("wheelwork dev ended: %v\n%s", err, said.String())
		case <-limit:
			t.Fatal("wheelwork dev is not ready after a minute")
		}
	}
}

// document reads the OpenAPI document, without a token.
func document(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", resp.Status, err)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
