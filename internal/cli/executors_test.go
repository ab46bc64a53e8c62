package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// shown returns the job definitions of a documentation page.
func shown(t *testing.T, page string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var documents [][]byte
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		documents = append(documents, m[1])
	}
	if len(documents) != 4 {
		t.Fatalf("%s shows %d documents", page, len(documents))
	}
	return documents
}

// TestExecutors tests a `wheelwork dev` that may run a signed plugin, a command and
// requests to one server.
func TestExecutors(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "text")
	build := exec.Command("go", "build", "-o", plugin, ".")
	build.Dir = "../../examples/plugin"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	signing := write("signing.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	out, err := exec.Command("wheelwork", "plugin", "sign", plugin, "--key", signing).CombinedOutput()
	if err != nil {
		t.Fatalf("sign: %v\n%s", err, out)
	}
	key := "ed25519:" + base64.StdEncoding.EncodeToString(public)
	if !strings.HasSuffix(string(out), " "+key+"\n") {
		t.Fatalf("sign printed %s, want the key %s", out, key)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skipf("needs cat: %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path == "/broken" {
			http.Error(w, "out of order", http.StatusNotImplemented)
			return
		}
		fmt.Fprintf(w, "%s %s %s%s", r.Method, r.URL, body, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	ready := startDev(t, dir,
		"--plugins", write("plugins.yaml", "plugins:\n- name: text\n  path: text\n  keys: ["+key+"]\n"),
		"--commands", write("commands.yaml", "commands:\n- {name: cat, path: "+cat+", job_args: true}\n- {name: other, path: "+cat+", apps: [elsewhere]}\n"),
		"--http-allow-private", strings.TrimPrefix(server.URL, "http://"))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/executors",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			e.Setenv("WHEELWORK_URL", ready.URL)
			e.Setenv("WHEELWORK_TOKEN", ready.Token)
			e.Setenv("SERVER", server.URL)
			e.Setenv("DATA", filepath.Join(dir, "data"))
			e.Setenv("HOST", strings.TrimPrefix(server.URL, "http://"))
			return os.WriteFile(filepath.Join(e.WorkDir, "docs.yaml"), bytes.Join(shown(t, "../../docs/executors.md"), []byte("---\n")), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"logs": followLog, "field": readField},
	})
}
