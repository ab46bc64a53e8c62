package house

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// TestGenerated regenerates api/v1 from its .proto files and compares.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short: compiles the generators")
	}
	protogen := buildGenerators(t)

	temp := t.TempDir()
	api := filepath.Join(root, "api")
	if err := copyFiles(api, temp, ".proto"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(protogen, temp)
	cmd.Dir = filepath.Join(root, "tools") // the generator finds its plugins here
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}

	const remedy = "run `task generate` and commit what it writes"
	want, got := generated(t, temp), generated(t, api)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch text, ok := got[name]; {
		case !ok:
			t.Errorf("api/%s is missing: %s", name, remedy)
		case !bytes.Equal(text, want[name]):
			t.Errorf("api/%s is not what its .proto file makes: %s", name, remedy)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("api/%s is made by no .proto file: remove it", name)
		}
	}
	if len(want) == 0 {
		t.Error("the generator wrote nothing")
	}
}

// buildGenerators compiles protogen, and its plugins into the build cache. It skips the
// test on a machine without the downloaded modules of the tools.
func buildGenerators(t *testing.T) (protogen string) {
	t.Helper()
	protogen = filepath.Join(t.TempDir(), "protogen")
	for _, args := range [][]string{
		{"build", "-o", protogen, "./protogen"},
		{"tool", "-n", "protoc-gen-go"},
		{"tool", "-n", "protoc-gen-go-grpc"},
		{"tool", "-n", "protoc-gen-grpc-gateway"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join(root, "tools")
		if out, err := cmd.CombinedOutput(); err != nil {
			testkit.Lacks(t, "needs the tools of tools/go.mod, which do not build here: %v\n%s", err, out)
		}
	}
	return protogen
}

// copyFiles copies the files that end in suffix from one tree to another.
func copyFiles(from, to, suffix string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		if !strings.HasSuffix(name, suffix) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), text, 0o644)
	})
}

// generated reads the generated files below dir, by path.
func generated(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if strings.HasSuffix(name, ".json") || bytes.HasPrefix(text, []byte("// Code generated ")) {
			out[filepath.ToSlash(below)] = text
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFormatted checks that every Go file is formatted as gofumpt formats it.
func TestFormatted(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short: compiles gofumpt")
	}
	gofumpt := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", append([]string{"tool", "-modfile=tools/go.mod", "gofumpt"}, args...)...)
		cmd.Dir = root
		return cmd.CombinedOutput()
	}
	if out, err := gofumpt("-version"); err != nil {
		testkit.Lacks(t, "needs gofumpt of tools/go.mod, which does not build here: %v\n%s", err, out)
	}
	out, err := gofumpt("-l", ".")
	if err != nil {
		t.Fatalf("gofumpt: %v\n%s", err, out)
	}
	for _, name := range strings.Fields(string(out)) {
		t.Errorf("%s is not as gofumpt writes it: run `task fmt`", name)
	}
}
