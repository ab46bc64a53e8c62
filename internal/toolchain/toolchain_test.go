package toolchain

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, language := range Languages() {
		if _, err := os.Stat("/usr/bin/rustc"); err == nil && language == Rust {
			continue // found in the folders that distributions use
		}
		err := Build(t.Context(), Source{Language: language, Dir: t.TempDir(), Main: "main"}, filepath.Join(t.TempDir(), "out.wasm"))
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Language != language || missing.Install == "" {
			t.Errorf("%s without its compiler: %v", language, err)
		}
	}
	if _, err := NPMRegistry(t.Context()); err == nil || !strings.Contains(err.Error(), "npm") {
		t.Errorf("NPMRegistry without npm: %v", err)
	}
}

func TestUnknownLanguage(t *testing.T) {
	err := Build(t.Context(), Source{Language: "cobol"}, "out.wasm")
	if err == nil || !strings.Contains(err.Error(), "it is one of go, rust, c, zig, assemblyscript") {
		t.Errorf("Build = %v", err)
	}
}

// TestCompilerSays checks that an error contains the compiler's message.
func TestCompilerSays(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { undefinedThing() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ngo 1.24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Build(t.Context(), Source{Language: Go, Dir: dir}, filepath.Join(t.TempDir(), "out.wasm"))
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") || !strings.Contains(err.Error(), "main.go:3") {
		t.Errorf("Build = %v", err)
	}
}

// TestFindInProject finds the tools that npm installed for a project, from a folder below
// it.
func TestFindInProject(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	tool := filepath.Join(dir, "node_modules", ".bin", "asc")
	below := filepath.Join(dir, "handlers", "hello")
	if err := errors.Join(os.MkdirAll(filepath.Dir(tool), 0o755), os.MkdirAll(below, 0o755), os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	got, err := find(Source{Language: AssemblyScript, Dir: below}, "asc", "")
	if err != nil || got != tool {
		t.Errorf("find = %s, %v", got, err)
	}
}

// TestZigLib finds the library beside the compiler in npm's package.
func TestZigLib(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "node_modules", "@zigc", "cli", "bin", "zig")
	std := filepath.Join(dir, "node_modules", "@zigc", "lib", "std")
	link := filepath.Join(dir, "zig")
	err := errors.Join(
		os.MkdirAll(filepath.Dir(tool), 0o755), os.MkdirAll(std, 0o755),
		os.WriteFile(tool, nil, 0o755), os.WriteFile(filepath.Join(std, "std.zig"), nil, 0o644), os.Symlink(tool, link),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := filepath.EvalSymlinks(zigLib(link)); got != filepath.Dir(std) {
		if want, _ := filepath.EvalSymlinks(filepath.Dir(std)); got != want {
			t.Errorf("zigLib = %s, want %s", got, want)
		}
	}
	if got := zigLib(filepath.Join(dir, "elsewhere")); got != "" {
		t.Errorf("zigLib of a compiler that came another way = %s", got)
	}
}

// TestFromInside builds a project from within its folder, as people do: asc needs the
// output path relative to the source.
func TestFromInside(t *testing.T) {
	bin, dir, out := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "out.wasm")
	script := "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\ncase $2 in /*) exit 1;; esac\necho built > \"$2\"\n"
	if err := os.WriteFile(filepath.Join(bin, "asc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	link := filepath.Join(filepath.Dir(bin), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(link, "a", "b")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, from := range []string{dir, filepath.Base(dir), "." + string(filepath.Separator) + filepath.Base(dir), inside} {
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		if err := Build(t.Context(), Source{Language: AssemblyScript, Dir: from, Main: "main.ts"}, out); err != nil {
			t.Errorf("built from %q: %v", from, err)
		}
		if text, err := os.ReadFile(out); string(text) != "built\n" {
			t.Errorf("built from %q: it wrote %q, %v", from, text, err)
		}
	}
}
