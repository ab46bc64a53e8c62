package module

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture returns the path of a module of the runtime's tests.
func fixture(name string) string {
	return filepath.Join("..", "..", "..", "runtime", "wasm", "testdata", name+".wasm")
}

// TestRunWithDirectories gives a program a directory of this machine at the root and at relative
// paths.
func TestRunWithDirectories(t *testing.T) {
	for _, at := range []string{"/", ".", "./in", "in/side", "/data"} {
		dir := t.TempDir()
		if _, errOut, err := execute(t, "run", fixture("files"), "--input", "wnote", "--dir", at+"="+dir); err != nil {
			t.Errorf("%s: %v: %s", at, err, errOut)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "note")); err != nil || string(text) != "SECRET!!" {
			t.Errorf("%s: the file has %q, %v", at, text, err)
		}
		if _, _, err := execute(t, "run", fixture("files"), "--input", "wother", "--dir", at+"="+dir+":ro"); !failed(err, "run_retryable", "unreachable") {
			t.Errorf("%s: writing to a directory that is read only: %v", at, err)
		}
	}
	for pair, want := range map[string]string{"../x=.": "without ..", "/a/=.": "without a slash", "/a/../b=.": "such as /tmp", "/=": "want NAME=PATH"} {
		if _, _, err := execute(t, "run", fixture("files"), "--dir", pair); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--dir %s: %v, want %q", pair, err, want)
		}
	}
	if _, _, err := execute(t, "run", fixture("files"), "--dir", "/=.", "--dir", ".=."); err == nil || !strings.Contains(err.Error(), "the same directory") {
		t.Errorf("the root twice: %v", err)
	}
}

func TestRunOfOtherFiles(t *testing.T) {
	for name, want := range map[string]string{
		"h.ts":     "npx tsc",
		"h.rb":     "no interpreter for it",
		"job.yaml": `wheelwork job apply -f job.yaml`,
		"h.go":     "GOOS=wasip1",
		"h.rs":     "--lang rust",
		"h.txt":    "not WebAssembly",
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("const x: number = 1"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"run", file}, {"push", "h@1", file}, {"inspect", file}} {
			if args[0] == "push" && name == "h.txt" {
				continue // the server refuses it
			}
			if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want %q", args[0], name, err, want)
			}
		}
	}
}

// TestComponentsAreNamed checks that each command says what a component is.
func TestComponentsAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hello.wasm")
	if err := os.WriteFile(file, []byte("\x00asm\x0d\x00\x01\x00\x00\x02\x01x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", file}, {"inspect", file}, {"diff", file, file}, {"test", "--module", file, "--cases", "testdata/one.yaml"}} {
		_, _, err := execute(t, args...)
		if err == nil || !strings.Contains(err.Error(), "this is a component, which is not served: compile to a wasm32-wasip1 core module") {
			t.Errorf("%s: %v", args[0], err)
		}
	}
}

func TestRunWithoutVariables(t *testing.T) {
	with, _, err := execute(t, "run", fixture("args"), "--env", "A=b", "--arg", "x")
	without, _, bareErr := execute(t, "run", fixture("args"), "--env", "A=b", "--arg", "x", "--no-env")
	if err != nil || bareErr != nil {
		t.Fatal(err, bareErr)
	}
	if !strings.Contains(with, "WHEELWORK_RUN_ID=local") || strings.Contains(without, "WHEELWORK") || !strings.Contains(without, "A=b") {
		t.Errorf("with variables %q, without %q", with, without)
	}
}

// TestCompiledModulesAreKept checks that the second run finds the code of the first, and that
// --no-cache keeps none.
func TestCompiledModulesAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "compiled")
	t.Setenv(cacheVariable, dir)
	size := func() (files int) {
		_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				files++
			}
			return nil
		})
		return files
	}
	for i, step := range []struct {
		args []string
		more bool
	}{{[]string{"--no-cache"}, false}, {nil, true}, {nil, false}} {
		before := size()
		if _, _, err := execute(t, append([]string{"run", fixture("args")}, step.args...)...); err != nil {
			t.Fatal(err)
		}
		if got := size() > before; got != step.more {
			t.Errorf("run %d: %d files after %d", i, size(), before)
		}
	}
	if _, _, err := execute(t, "run", fixture("args"), "--compile-cache", "many"); err == nil || !strings.Contains(err.Error(), "want a size") {
		t.Errorf("a cache of no size: %v", err)
	}
}

func TestMaxOutput(t *testing.T) {
	if _, _, err := execute(t, "run", fixture("args"), "--max-output", "4B"); !failed(err, "run_permanent", "output") {
		t.Errorf("an output above the limit: %v", err)
	}
	if _, _, err := execute(t, "run", fixture("args"), "--max-output", "1KiB"); err != nil {
		t.Errorf("an output below it: %v", err)
	}
	if _, _, err := execute(t, "run", fixture("args"), "--max-output", "2GiB"); err == nil || !strings.Contains(err.Error(), "at most 1GiB") {
		t.Errorf("a limit that is too large: %v", err)
	}
}
