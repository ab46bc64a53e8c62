package house

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// TestProtos lints the .proto files, and compares them with api/baseline.binpb: what
// clients use is neither renamed nor removed. It also removes a field, which buf must find.
func TestProtos(t *testing.T) {
	buf, err := exec.LookPath("buf")
	if err != nil {
		testkit.Lacks(t, "buf is missing: npm has it as @bufbuild/buf")
	}
	api := filepath.Join(root, "api")
	run := func(dir string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), buf, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	baseline, err := filepath.Abs(filepath.Join(api, "baseline.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(api, "lint"); err != nil {
		t.Errorf("buf lint: %v\n%s", err, out)
	}
	if out, err := run(api, "breaking", "--against", baseline); err != nil {
		t.Errorf("buf breaking: %v: keep the names and numbers that clients use, or say in the commit why they cannot stay, and write the baseline again (CONTRIBUTING.md)\n%s", err, out)
	}

	broken := t.TempDir()
	for _, suffix := range []string{".proto", "buf.yaml"} {
		if err := copyFiles(api, broken, suffix); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(broken, "v1", "job.proto")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	field := []byte("  string description = 3;\n")
	if !bytes.Contains(text, field) {
		t.Fatalf("job.proto has no %q to remove", field)
	}
	if err := os.WriteFile(file, bytes.Replace(text, field, nil, 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run(broken, "breaking", "--against", baseline); err == nil || !regexp.MustCompile(`Previously present field "3"`).MatchString(out) {
		t.Errorf("buf finds no fault with a field that is gone: %v\n%s", err, out)
	}
}

// TestImportedProtosAreUnchanged compares the .proto files of others with the digests in
// their README.
func TestImportedProtosAreUnchanged(t *testing.T) {
	dir := filepath.Join(root, "api", "third_party", "googleapis")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([0-9a-f]{64})` \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 2 {
		t.Fatalf("README.md lists %d files, want 2", len(rows))
	}
	for _, row := range rows {
		b, err := os.ReadFile(filepath.Join(dir, row[1]))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != row[2] {
			t.Errorf("%s is not the file as published: sha256 %x", row[1], sum)
		}
	}
}
