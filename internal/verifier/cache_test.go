package verifier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// digestOf returns a digest for tests that need no bytes.
func digestOf(name string) string { return modules.Digest([]byte(name)) }

// fill publishes an entry with one file of so many bytes, and sets its last use.
func fill(t *testing.T, c *codeCache, name string, bytes int, used time.Time) {
	t.Helper()
	folder := c.stage()
	if folder == "" {
		t.Fatal("there is no folder to fill")
	}
	writeFile(t, filepath.Join(folder, "engine", "code"), make([]byte, bytes))
	c.publish(folder, digestOf(name))
	if err := os.Chtimes(c.entry(digestOf(name)), used, used); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCodeCacheBound fills a cache beyond its bound: the least recently used entry goes.
func TestCodeCacheBound(t *testing.T) {
	c := &codeCache{dir: filepath.Join(t.TempDir(), "code"), max: 2500}
	now := time.Now()
	if c.get(digestOf("a")) != "" {
		t.Error("an entry is there before it was filled")
	}
	fill(t, c, "a", 1000, now.Add(-3*time.Hour))
	fill(t, c, "b", 1000, now.Add(-2*time.Hour))
	if c.get(digestOf("a")) == "" {
		t.Fatal("a is gone while there is room")
	}
	fill(t, c, "c", 1000, now)
	for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if got := c.get(digestOf(name)) != ""; got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}
	fill(t, c, "larger than the cache", 3000, now)
	if left, err := os.ReadDir(c.dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v; want nothing beyond the bound", left, err)
	}
}

// TestCodeCacheDamage changes an entry in each way that a disk or a child could: it must never
// be returned again.
func TestCodeCacheDamage(t *testing.T) {
	for name, damage := range map[string]func(entry string) error{
		"a flipped bit": func(entry string) error {
			return os.WriteFile(filepath.Join(entry, "engine", "code"), append(make([]byte, 999), 1), 0o600)
		},
		"a file that was cut": func(entry string) error { return os.Truncate(filepath.Join(entry, "engine", "code"), 10) },
		"a file that is gone": func(entry string) error { return os.Remove(filepath.Join(entry, "engine", "code")) },
		"one more file":       func(entry string) error { return os.WriteFile(filepath.Join(entry, "engine", "evil"), nil, 0o600) },
		"another name": func(entry string) error {
			return os.Rename(filepath.Join(entry, "engine", "code"), filepath.Join(entry, "engine", "evil"))
		},
		"a link":        func(entry string) error { return os.Symlink("/etc/passwd", filepath.Join(entry, "engine", "evil")) },
		"no sum":        func(entry string) error { return os.Remove(filepath.Join(entry, sumFile)) },
		"an empty sum":  func(entry string) error { return os.Truncate(filepath.Join(entry, sumFile), 0) },
		"no folder":     os.RemoveAll,
		"an empty file": func(entry string) error { return errors.Join(os.RemoveAll(entry), os.WriteFile(entry, nil, 0o600)) },
	} {
		c := &codeCache{dir: t.TempDir(), max: 1 << 20}
		fill(t, c, "a", 1000, time.Now())
		if c.get(digestOf("a")) == "" {
			t.Fatal("it is not there before the damage")
		}
		if err := damage(c.entry(digestOf("a"))); err != nil {
			t.Fatal(err)
		}
		if c.get(digestOf("a")) != "" {
			t.Errorf("%s: the entry is used", name)
		}
		fill(t, c, "a", 1000, time.Now())
		if c.get(digestOf("a")) == "" {
			t.Errorf("%s: the entry was not filled again", name)
		}
	}
}

// TestCodeCacheAfterACrash: a folder that a killed server was filling is removed, and is no
// entry.
func TestCodeCacheAfterACrash(t *testing.T) {
	dir := t.TempDir()
	killed := &codeCache{dir: dir, max: 1 << 20}
	fill(t, killed, "a", 1000, time.Now())
	left := killed.stage()
	c := &codeCache{dir: dir, max: 1 << 20}
	if c.get(digestOf("a")) == "" {
		t.Error("the entry is gone after a restart")
	}
	c.discard(c.stage(), false)
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s is still there", left)
	}
}

// TestCodeCacheThatCannotBeWritten: a directory that cannot be made has no entries, and a
// failure is not repeated at once.
func TestCodeCacheThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, nil)
	c := &codeCache{dir: filepath.Join(file, "code"), max: 1 << 20}
	if folder := c.stage(); folder != "" || c.get(digestOf("a")) != "" {
		t.Errorf("a folder below a file: %q", folder)
	}
	c = &codeCache{dir: t.TempDir(), max: 1 << 20}
	c.discard(c.stage(), true)
	if folder := c.stage(); folder != "" {
		t.Error("after a failure there is a folder to fill at once")
	}
	c.wait = time.Time{}
	c.discard(c.stage(), false)
	if folder := c.stage(); folder == "" {
		t.Error("a caller that has gone counts as a failure of the cache")
	}
}

// scriptAndInterpreter returns a script and the bytes of its interpreter, or skips the test.
func scriptAndInterpreter(t testing.TB, language, source string) (upload *modules.Upload, engine []byte) {
	t.Helper()
	known, _ := script.ByLanguage(language)
	dir, err := interpreter.Dir()
	if err != nil {
		t.Fatal(err)
	}
	engine, err = interpreter.Load(dir, known)
	if errors.Is(err, interpreter.ErrMissing) {
		testkit.Lacks(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	main := map[string]string{script.JavaScript: "main.js", script.Python: "main.py"}[language]
	code, err := script.Pack(script.Script{Language: language, Interpreter: known.Digest, Main: main, Files: map[string]string{main: source}})
	if err != nil {
		t.Fatal(err)
	}
	return uploadOf(t, code), engine
}

// countedChildren returns a command for children, and the limits that each child so far got.
//
// The walls of the verifier would keep the shell from its file, so these tests use none.
func countedChildren(t *testing.T) (command []string, limits func() []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "children")
	child := childCommand(t)
	return []string{"/bin/sh", "-c", `echo "$` + limitsVariable + `" >>"$0"; exec "$@"`, log, child[0], child[1]}, func() []string {
		t.Helper()
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", "_"))
	}
}

// mayWrite reports whether a child with these limits may write files.
func mayWrite(t *testing.T, limits string) bool {
	t.Helper()
	n, err := strconv.ParseInt(strings.Split(limits, "_")[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// TestScriptsShareTheInterpretersCode checks two scripts. A child without a script compiles the
// interpreter for the first one, and no child that has a script may write a file. A damaged
// cache is filled again, also after a restart, and one that cannot be written changes nothing
// but the time.
func TestScriptsShareTheInterpretersCode(t *testing.T) {
	command, children := countedChildren(t)
	dir := filepath.Join(t.TempDir(), "interpreters")
	good, quick := scriptAndInterpreter(t, script.JavaScript, "export default () => 1;")
	bad, _ := scriptAndInterpreter(t, script.JavaScript, "export default () => (;")
	digest := modules.Digest(quick)
	v := New(Config{Command: command, CodeDir: dir, Sandbox: sandbox.Off})
	check := func(name string, wantNew int) {
		t.Helper()
		before := 0
		if name != "first" {
			before = len(children())
		}
		if err := v.CheckScript(t.Context(), good, quick); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := len(children()) - before; got != wantNew {
			t.Errorf("%s: %d children, want %d", name, got, wantNew)
		}
		if err := v.CheckScript(t.Context(), bad, quick); err == nil || !strings.Contains(err.Error(), "main.js:1:23: SyntaxError") {
			t.Errorf("%s: %v, want an error of syntax", name, err)
		}
	}
	check("first", 2)
	if got := children(); !mayWrite(t, got[0]) || mayWrite(t, got[1]) || mayWrite(t, got[2]) {
		t.Errorf("the children have the limits %q: only the first one, which has no script, may write", got)
	}
	check("second", 1)
	entry := v.code.get(digest)
	if entry == "" {
		t.Fatal("there is no code of the interpreter")
	}

	writeFile(t, filepath.Join(entry, "evil"), []byte("x"))
	check("damaged", 2)
	v = New(Config{Command: command, CodeDir: dir, Sandbox: sandbox.Off})
	check("after a restart", 1)

	// An entry with a right sum that the engine cannot use, as one of another version.
	folder := v.code.stage()
	writeFile(t, filepath.Join(folder, "other"), []byte("version"))
	v.code.publish(folder, digest)
	check("another version", 1) // finds out
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, nil)
	v = New(Config{Command: command, CodeDir: dir, Sandbox: sandbox.Off})
	check("a disk that takes nothing", 1)
}

// TestInterpreterUploadFillsTheCache: the check of the interpreter itself already leaves its
// code, so the first script does not compile.
func TestInterpreterUploadFillsTheCache(t *testing.T) {
	command, children := countedChildren(t)
	good, quick := scriptAndInterpreter(t, script.JavaScript, "export default () => 1;")
	v := New(Config{Command: command, CodeDir: t.TempDir(), Sandbox: sandbox.Off})
	for range 2 { // the second app pushes it again
		if _, err := v.Inspect(t.Context(), uploadOf(t, quick), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.CheckScript(t.Context(), good, quick); err != nil {
		t.Fatal(err)
	}
	got := children()
	if len(got) != 3 || !mayWrite(t, got[0]) || mayWrite(t, got[1]) || mayWrite(t, got[2]) {
		t.Errorf("the children have the limits %q, want three of which only the first may write", got)
	}
	if _, err := v.Inspect(t.Context(), uploadOf(t, busyModule(1, 1)), ""); err != nil {
		t.Fatal(err)
	}
	if got := children(); mayWrite(t, got[3]) {
		t.Errorf("the child of an ordinary module may write: %q", got[3])
	}
}

// TestChildMayWriteNoFile tries to write in a process with the limits of a child.
func TestChildMayWriteNoFile(t *testing.T) {
	dir := t.TempDir()
	for bytes, want := range map[int]string{0: "", 10: "0123456789"} {
		path := filepath.Join(dir, fmt.Sprint(bytes))
		out, err := exec.Command(childCommand(t)[0], "limited-writer", path, fmt.Sprint(bytes)).CombinedOutput()
		if err == nil {
			t.Errorf("it wrote more than %d bytes: %s", bytes, out)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("with a limit of %d bytes the file has %q, %v", bytes, got, err)
		}
	}
}

// limitedWriter is the body of that process: it writes 16 bytes.
func limitedWriter(path, limit string) error {
	n, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := setLimits(60, 1<<40, n); err != nil {
		return err
	}
	_, err = f.WriteString("0123456789abcdef")
	return errors.Join(err, f.Close())
}

// BenchmarkCheckScript is the check of a small script: when the verifier has no machine code of
// the interpreter, and when it has.
func BenchmarkCheckScript(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for language, source := range map[string]string{script.JavaScript: "export default () => 1;", script.Python: "def main(ctx):\n    return 1\n"} {
		upload, engine := scriptAndInterpreter(b, language, source)
		check := func(b *testing.B, v *Verifier) {
			if err := v.CheckScript(context.Background(), upload, engine); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(language+"/compiles", func(b *testing.B) {
			for b.Loop() {
				check(b, New(Config{Command: []string{exe, "gate-child"}}))
			}
		})
		b.Run(language+"/cached", func(b *testing.B) {
			v := New(Config{Command: []string{exe, "gate-child"}, CodeDir: b.TempDir()})
			check(b, v)
			for b.Loop() {
				check(b, v)
			}
		})
	}
}
