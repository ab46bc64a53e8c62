package credential_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
)

// TestKeyFile: a key file is made, grows and shrinks, keeps its mode, and stays as it is
// when a command fails.
func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	ids := func() string {
		t.Helper()
		keys, err := credential.SecretKeys(path, false)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(keys.IDs(), " ")
	}
	if _, err := credential.SecretKeys(path, false); err == nil || !strings.Contains(err.Error(), "there is no file") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := credential.SecretKeys(path, true); err != nil {
		t.Fatal(err)
	}
	first := ids()
	if again, err := credential.SecretKeys(path, true); err != nil || strings.Join(again.IDs(), " ") != first {
		t.Errorf("made again: %v, %v", again.IDs(), err)
	}
	mode := fs.FileMode(0o640)
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	second, err := credential.AddSecretKey(path)
	if err != nil || ids() != first+" "+second {
		t.Fatalf("%s, %v", ids(), err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != mode {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if err := credential.RemoveSecretKey(path, second); err == nil || ids() != first+" "+second {
		t.Errorf("the newest key was removed: %s, %v", ids(), err)
	}
	if err := credential.RemoveSecretKey(path, first); err != nil || ids() != second {
		t.Errorf("%s, %v", ids(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) != 1 {
		t.Errorf("beside it there is %v, %v", left, err)
	}

	for name, text := range map[string]string{"too long": strings.Repeat("#", keyring.MaxFile+1), "of another kind": "key\n", "empty": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := credential.AddSecretKey(path)
		_, err2 := credential.SecretKeys(path, true)
		if err3 := credential.RemoveSecretKey(path, first); err == nil || err2 == nil || err3 == nil {
			t.Errorf("a file %s: %v, %v, %v", name, err, err2, err3)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("a file %s has changed: %v", name, err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := credential.AddSecretKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that all users read: %v", err)
	}
	if _, err := credential.AddSecretKey(filepath.Join(path, "below")); err == nil {
		t.Error("a key was added below a file")
	}
}
