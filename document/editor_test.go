package document

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// TestEditor opens documents as an editor with yaml-language-server does, with the settings
// and the line that docs/reference/README.md names: it reports mistakes, shows the help of a
// field and completes fields.
func TestEditor(t *testing.T) {
	if _, err := exec.LookPath("yaml-language-server"); err != nil {
		testkit.Lacks(t, "yaml-language-server is not installed: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wheelwork.schema.json"), Schema(), 0o600); err != nil {
		t.Fatal(err)
	}
	const line = "# yaml-language-server: $schema=wheelwork.schema.json\n"
	right := "name: nightly-totals\nhandler: {module: totals@1}\nretry:\n  max: 3\n"
	wrong := "name: nightly-totals\nretry:\n  max: 300\n  tries: 3\n---\n%skind: Calender\nname: x\n---\n%skind: Alias\nmodule: m\nname: prod\n"
	for name, schemas := range map[string]map[string]string{
		"line in each document": {},
		"settings of a folder":  {"./wheelwork.schema.json": "jobs/**/*.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := ""
			if len(schemas) == 0 {
				prefix = strings.ReplaceAll(line, "wheelwork.schema.json", "../wheelwork.schema.json")
			}
			e := startEditor(t, dir, schemas)
			found := e.open(t, "jobs/wrong.yaml", prefix+fmt.Sprintf(wrong, prefix, prefix))
			for _, want := range []string{"above the maximum of 100", "Property tries is not allowed", `Valid values: "AlertChannel", "AlertRule", "Alias"`, `Missing property "version"`} {
				if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("the editor reports %q, and not %q", found, want)
				}
			}
			if found := e.open(t, "jobs/right.yaml", prefix+right); len(found) > 0 {
				t.Errorf("the editor reports %q in a document without a mistake", found)
			}
			last := strings.Count(prefix+right, "\n") - 1
			if help := e.ask(t, "textDocument/hover", "jobs/right.yaml", last, 3); !strings.Contains(help, jobKind.Field("retry.max").Help) {
				t.Errorf("the help of retry.max is %s", help)
			}
			e.open(t, "jobs/partly.yaml", prefix+right+"  b\n")
			for _, name := range []string{"backoff", "first", "jitter", "limit"} {
				if names := e.ask(t, "textDocument/completion", "jobs/partly.yaml", last+1, 3); !strings.Contains(names, `"label":"`+name+`"`) {
					t.Errorf("the completions are %s, and not %s", names, name)
				}
			}
		})
	}
}

// editor speaks the language server protocol.
type editor struct {
	dir      string
	in       io.Writer
	next     int
	answers  chan message // to requests
	reported chan message // publishDiagnostics
}

type message struct {
	ID     *int            `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

func startEditor(t *testing.T, dir string, schemas map[string]string) *editor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, "yaml-language-server", "--stdio")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait() //nolint:errcheck // it was killed
	})
	e := &editor{dir: dir, in: in, answers: make(chan message, 100), reported: make(chan message, 100)}
	go e.read(out, schemas)
	e.request(t, "initialize", map[string]any{
		"rootUri": "file://" + dir, "workspaceFolders": []any{map[string]string{"uri": "file://" + dir, "name": "jobs"}},
		"capabilities": map[string]any{"workspace": map[string]any{"configuration": true, "workspaceFolders": true}, "textDocument": map[string]any{"hover": map[string]any{}, "completion": map[string]any{}}},
	})
	e.send(t, map[string]any{"method": "initialized", "params": map[string]any{}})
	return e
}

// read handles the messages of the server until it ends.
func (e *editor) read(out io.Reader, schemas map[string]string) {
	defer close(e.answers)
	defer close(e.reported)
	for r := bufio.NewReader(out); ; {
		header, err := textproto.NewReader(r).ReadMIMEHeader()
		if err != nil {
			return
		}
		n, _ := strconv.Atoi(header.Get("Content-Length"))
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		var m message
		if json.Unmarshal(body, &m) != nil {
			return
		}
		switch {
		case m.Method == "workspace/configuration":
			yaml := map[string]any{"validate": true, "hover": true, "completion": true, "schemas": schemas}
			e.write(map[string]any{"id": m.ID, "result": []any{yaml, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}}}) //nolint:errcheck // the server has ended
		case m.Method == "textDocument/publishDiagnostics":
			e.reported <- m
		case m.Method != "" && m.ID != nil:
			e.write(map[string]any{"id": m.ID, "result": nil}) //nolint:errcheck // the server has ended
		case m.ID != nil:
			e.answers <- m
		}
	}
}

func (e *editor) write(m map[string]any) error {
	m["jsonrpc"] = "2.0"
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return err
}

func (e *editor) send(t *testing.T, m map[string]any) {
	t.Helper()
	if err := e.write(m); err != nil {
		t.Fatal(err)
	}
}

// request returns the result of a request.
func (e *editor) request(t *testing.T, method string, params any) string {
	t.Helper()
	e.next++
	e.send(t, map[string]any{"id": e.next, "method": method, "params": params})
	for m := range e.answers {
		if *m.ID == e.next {
			return string(m.Result)
		}
	}
	t.Fatalf("%s: the server ended without an answer", method)
	return ""
}

func (e *editor) uri(file string) string { return "file://" + filepath.Join(e.dir, file) }

func (e *editor) ask(t *testing.T, method, file string, line, character int) string {
	t.Helper()
	return e.request(t, method, map[string]any{"textDocument": map[string]any{"uri": e.uri(file)}, "position": map[string]any{"line": line, "character": character}})
}

// open opens a file and returns the texts of the mistakes that are reported in it.
func (e *editor) open(t *testing.T, file, text string) []string {
	t.Helper()
	e.send(t, map[string]any{"method": "textDocument/didOpen", "params": map[string]any{"textDocument": map[string]any{"uri": e.uri(file), "languageId": "yaml", "version": 1, "text": text}}})
	for m := range e.reported {
		var p struct {
			URI         string
			Diagnostics []struct{ Message string }
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if p.URI != e.uri(file) {
			continue
		}
		texts := []string{}
		for _, d := range p.Diagnostics {
			texts = append(texts, d.Message)
		}
		return texts
	}
	t.Fatal("the server ended and has reported nothing")
	return nil
}
