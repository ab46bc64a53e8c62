package module

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// TestTemplates creates a project of each language, builds it and runs its cases, where
// the tools are installed.
func TestTemplates(t *testing.T) {
	for _, k := range kits() {
		t.Run(k.language, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && slices.Contains([]string{script.Python, script.JavaScript, "go"}, k.language) {
				t.Skip("compiles a module of several megabytes, which takes minutes under the race detector")
			}
			dir := filepath.Join(t.TempDir(), "hello")
			if _, _, err := execute(t, "new", "hello", "--lang", k.language, "--dir", dir); err != nil {
				t.Fatalf("new: %v", err)
			}
			p, err := readProject(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.build(t.Context(), false)
			var missing *toolchain.MissingError
			if errors.As(err, &missing) {
				testkit.Lacks(t, "%v", missing)
			}
			if err != nil {
				t.Fatal(err)
			}
			if known, ok := script.ByLanguage(k.language); ok {
				if _, err := localInterpreter(known.Digest); errors.Is(err, interpreter.ErrMissing) {
					testkit.Lacks(t, "%v", err)
				}
			}
			if out, _, err := execute(t, "test", dir); err != nil || strings.Count(out, "passed") != 2 {
				t.Errorf("test: %v\n%s", err, out)
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
			if out, _, err := execute(t, "test", dir); !failed(err, "cases_failed", "1 of 2 cases failed") {
				t.Errorf("cases that do not fit: %v\n%s", err, out)
			}
		})
	}
}

// TestScriptAlone runs a script of a single file, and checks the errors for its mistakes.
func TestScriptAlone(t *testing.T) {
	known, _ := script.ByLanguage(script.JavaScript)
	if _, err := localInterpreter(known.Digest); errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	file := filepath.Join(t.TempDir(), "hello.js")
	do := func(source string) (string, error) {
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errOut, err := execute(t, "run", file, "--input", "Ada")
		return out + "|" + errOut, err
	}
	if said, err := do(`export default (ctx) => { console.log("here"); return "hello " + ctx.text(); };`); err != nil || said != "hello Ada|here\n" {
		t.Errorf("%v: %q", err, said)
	}
	if said, err := do(`export default (ctx => {`); !failed(err, "run_permanent", "SyntaxError") || !strings.Contains(said, "hello.js:1") {
		t.Errorf("%v: %q", err, said)
	}
}

// TestScriptsAreParsed builds and tests projects with an error of syntax.
func TestScriptsAreParsed(t *testing.T) {
	known, _ := script.ByLanguage(script.JavaScript)
	if _, err := localInterpreter(known.Digest); errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	dir := filepath.Join(t.TempDir(), "hello")
	if _, _, err := execute(t, "new", "hello", "--lang", "js", "--dir", dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.js"), []byte("export default function main(ctx) {\n  return foo(;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"build", dir}, {"test", "--build", dir}, {"test", "--module", filepath.Join(dir, "main.js"), "--cases", "testdata/one.yaml"}} {
		if _, _, err := execute(t, args...); !errors.Is(err, wasm.ErrInvalidModule) || !strings.Contains(err.Error(), "main.js:2:14: SyntaxError") {
			t.Errorf("%s: %v", strings.Join(args[:2], " "), err)
		}
	}
	t.Setenv(interpreter.DirVariable, t.TempDir())
	if _, errOut, err := execute(t, "build", dir); err != nil || !strings.Contains(errOut, "the script was not parsed") {
		t.Errorf("without an interpreter: %v: %s", err, errOut)
	}
}

// TestFetchInterpreterFromFile installs an interpreter from a file instead of a registry.
func TestFetchInterpreterFromFile(t *testing.T) {
	known, _ := script.ByLanguage(script.JavaScript)
	code, err := localInterpreter(known.Digest)
	if errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "quickjs.wasm")
	fetch := func(data []byte, args ...string) (string, error) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, _, err := execute(t, append([]string{"fetch-interpreter", "js", "--dir", filepath.Join(dir, "kept"), "--from", file}, args...)...)
		return out, err
	}
	if _, err := fetch(code[:len(code)-1]); err == nil || !strings.Contains(err.Error(), "has the digest") {
		t.Errorf("a cut file: %v", err)
	}
	if _, err := fetch([]byte("no package")); err == nil || !strings.Contains(err.Error(), "not a gzipped tar") {
		t.Errorf("no package: %v", err)
	}
	if out, err := fetch(code, "-o", "json"); err != nil || !strings.Contains(out, known.Digest) {
		t.Errorf("the interpreter: %v: %s", err, out)
	}
	if _, err := fetch([]byte("not looked at")); err != nil {
		t.Errorf("what is there already: %v", err)
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
	code, err := os.ReadFile("../../../sdk/guest/conformance/testdata/c.wasm")
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
		fails       bool
	}{
		{strings.Replace(cases, "KEPT", "kept", 1), "entries                    passed", false},
		{strings.Replace(cases, "KEPT", "lost", 1), `kv state/other "kept", want "lost"`, true},
		{strings.Replace(cases, "{other: KEPT}", "{}", 1), `kv state/other "kept", want no such key`, true},
	} {
		if err := errors.Join(os.WriteFile(file, code, 0o600), os.WriteFile(list, []byte(tt.cases), 0o600)); err != nil {
			t.Fatal(err)
		}
		out, _, err := execute(t, "test", "--module", file, "--cases", list)
		if failed(err, "cases_failed", "cases failed") != tt.fails || err != nil != tt.fails || !strings.Contains(out, tt.want) {
			t.Errorf("%v, want %q:\n%s", err, tt.want, out)
		}
	}
}

// TestDocumentedCases parses the documents of docs/languages.md as the commands do.
func TestDocumentedCases(t *testing.T) {
	text, err := os.ReadFile("../../../docs/languages.md")
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
