package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// TestProject runs the scripts that need no server.
func TestProject(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/project",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			self, err := exec.LookPath("wheelwork") // testscript puts it on the PATH
			if err != nil {
				for _, v := range e.Vars {
					if path, ok := strings.CutPrefix(v, "PATH="); ok {
						self, err = filepath.Join(filepath.SplitList(path)[0], "wheelwork"), nil
					}
				}
			}
			e.Setenv("WHEELWORK", self)
			return errors.Join(err, os.WriteFile(filepath.Join(e.WorkDir, "greet.wasm"), greet.Module, 0o600))
		},
	})
}

// TestTemplates creates a project of each language, builds it and runs its cases, where
// the tools are installed.
func TestTemplates(t *testing.T) {
	for _, k := range kits() {
		t.Run(k.language, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && slices.Contains([]string{script.Python, script.JavaScript, "go"}, k.language) {
				t.Skip("what is of some megabytes takes long to compile, under the race detector minutes")
			}
			dir := filepath.Join(t.TempDir(), "hello")
			var out strings.Builder
			do := func(args ...string) int {
				out.Reset()
				return run(t.Context(), args, strings.NewReader(""), &out, &out, os.Getenv)
			}
			if code := do("module", "new", "hello", "--lang", k.language, "--dir", dir); code != exitOK {
				t.Fatalf("new: %s", out.String())
			}
			p, err := readProject(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.build(t.Context(), false)
			var missing *toolchain.MissingError
			if errors.As(err, &missing) {
				lacking(t, missing)
			}
			if err != nil {
				t.Fatal(err)
			}
			if known, ok := script.ByLanguage(k.language); ok {
				if _, err := localInterpreter(known.Digest); errors.Is(err, interpreter.ErrMissing) {
					lacking(t, err)
				}
			}
			if code := do("module", "test", dir); code != exitOK || strings.Count(out.String(), "passed") != 2 {
				t.Errorf("test: exit code %d\n%s", code, out.String())
			}
			// The same cases must fail with another handler.
			cases := filepath.Join(dir, casesFile)
			text, err := os.ReadFile(cases)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(cases, []byte(strings.Replace(string(text), "hello Ada", "good day Ada", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if code := do("module", "test", dir); code != exitFail || !strings.Contains(out.String(), "1 of 2 cases failed") {
				t.Errorf("cases that do not fit: exit code %d\n%s", code, out.String())
			}
		})
	}
}

func lacking(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("WHEELWORK_REQUIRE") == "all" {
		t.Fatalf("WHEELWORK_REQUIRE=all: %v", err)
	}
	t.Skip(err)
}

// TestScriptAlone runs a script of a single file, and checks the errors for its mistakes.
func TestScriptAlone(t *testing.T) {
	known, _ := script.ByLanguage(script.JavaScript)
	if _, err := localInterpreter(known.Digest); errors.Is(err, interpreter.ErrMissing) {
		lacking(t, err)
	}
	file := filepath.Join(t.TempDir(), "hello.js")
	do := func(source string) (int, string) {
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut strings.Builder
		code := run(t.Context(), []string{"module", "run", file, "--input", "Ada"}, strings.NewReader(""), &out, &errOut, os.Getenv)
		return code, out.String() + "|" + errOut.String()
	}
	if code, said := do(`export default (ctx) => { console.log("here"); return "hello " + ctx.text(); };`); code != exitOK || said != "hello Ada|here\n" {
		t.Errorf("exit code %d: %q", code, said)
	}
	if code, said := do(`export default (ctx => {`); code != exitFail || !strings.Contains(said, "SyntaxError") || !strings.Contains(said, "hello.js:1") {
		t.Errorf("exit code %d: %q", code, said)
	}
}

// TestFetchInterpreterFromFile installs an interpreter from a file instead of a registry.
func TestFetchInterpreterFromFile(t *testing.T) {
	known, _ := script.ByLanguage(script.JavaScript)
	code, err := localInterpreter(known.Digest)
	if errors.Is(err, interpreter.ErrMissing) {
		lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "quickjs.wasm")
	var out strings.Builder
	fetch := func(data []byte, args ...string) int {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		args = append([]string{"module", "fetch-interpreter", "js", "--dir", filepath.Join(dir, "kept"), "--from", file}, args...)
		return run(context.Background(), args, strings.NewReader(""), &out, &out, os.Getenv)
	}
	if got := fetch(code[:len(code)-1]); got != exitFail || !strings.Contains(out.String(), "has the digest") {
		t.Errorf("a cut file: exit code %d: %s", got, out.String())
	}
	if got := fetch([]byte("no package")); got != exitFail || !strings.Contains(out.String(), "not a gzipped tar") {
		t.Errorf("no package: exit code %d: %s", got, out.String())
	}
	if got := fetch(code, "-o", "json"); got != exitOK || !strings.Contains(out.String(), known.Digest) {
		t.Errorf("the interpreter: exit code %d: %s", got, out.String())
	}
	if got := fetch([]byte("not looked at")); got != exitOK {
		t.Errorf("what is there already: exit code %d: %s", got, out.String())
	}
}

// TestPackedScriptIsAModule checks that a server would accept a packed script.
func TestPackedScriptIsAModule(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte("def main(ctx): pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, err := readModule(filepath.Join(dir, "main.py"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := wasm.Inspect(code)
	if err != nil || info.Kind != wasm.Script {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "wheelwork.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readModule(filepath.Join(dir, "wheelwork.py")); err == nil || !strings.Contains(err.Error(), "the name of the SDK") {
		t.Errorf("a script with the SDK's name: %v", err)
	}
}

// TestCasesWithServices gives a handler values and a secret, and checks the values
// afterwards.
func TestCasesWithServices(t *testing.T) {
	dir := t.TempDir()
	code, err := os.ReadFile("../../sdk/guest/conformance/testdata/c.wasm")
	if err != nil {
		t.Fatal(err)
	}
	code, err = wasm.WithManifest(code, `{"handlers":[{"name":"main"}],"capabilities":{"kv":["state"],"secrets":["token"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	const cases = `
cases:
  - name: secret
    env: {CASE: secret}
    secrets: {token: abc}
    output: abc
  - name: no secret of another case
    env: {CASE: secret}
    output: "no entry\n"
  - name: entries
    env: {CASE: kv}
    kv: {state: {k: before, other: kept}}
    kv_after: {state: {other: KEPT}}
    output_contains: ["before\n"]
`
	file, list := filepath.Join(dir, "c.wasm"), filepath.Join(dir, "cases.yaml")
	for _, tt := range []struct {
		cases, want string
		code        int
	}{
		{strings.Replace(cases, "KEPT", "kept", 1), "entries                    passed", exitOK},
		{strings.Replace(cases, "KEPT", "lost", 1), `kv state/other "kept", want "lost"`, exitFail},
		{strings.Replace(cases, "{other: KEPT}", "{}", 1), `kv state/other "kept", want no such key`, exitFail},
	} {
		if err := errors.Join(os.WriteFile(file, code, 0o600), os.WriteFile(list, []byte(tt.cases), 0o600)); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		got := run(t.Context(), []string{"module", "test", "--module", file, "--cases", list}, strings.NewReader(""), &out, &out, os.Getenv)
		if got != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", got, tt.code, tt.want, out.String())
		}
	}
}

// TestDocumentedCases parses the documents of docs/languages.md as the commands do.
func TestDocumentedCases(t *testing.T) {
	text, err := os.ReadFile("../../docs/languages.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d documents, want a project and its cases", len(blocks))
	}
	dir := t.TempDir()
	project, cases := filepath.Join(dir, projectFile), filepath.Join(dir, casesFile)
	if err := errors.Join(os.WriteFile(project, blocks[0][1], 0o600), os.WriteFile(cases, blocks[1][1], 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := readProject(dir); err != nil {
		t.Error(err)
	}
	if list, err := readCases(cases); err != nil || len(list) != 3 {
		t.Errorf("%d cases: %v", len(list), err)
	}
}
