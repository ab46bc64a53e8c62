package contexts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

func TestPath(t *testing.T) {
	for _, tt := range []struct {
		xdg, home, want string
	}{
		{"/xdg", "/home/ada", "/xdg/wheelwork/config.yaml"},
		{"", "/home/ada", "/home/ada/.config/wheelwork/config.yaml"},
		{"relative", "/home/ada", "/home/ada/.config/wheelwork/config.yaml"},
		{"", "", ""},
	} {
		env := map[string]string{"XDG_CONFIG_HOME": tt.xdg, "HOME": tt.home}
		got, err := Path(func(name string) string { return env[name] })
		if got != filepath.FromSlash(tt.want) || (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, ErrNowhere) {
			t.Errorf("XDG_CONFIG_HOME=%s HOME=%s: %q, %v, want %q", tt.xdg, tt.home, got, err, tt.want)
		}
	}
}

// TestSave writes a file, also through a symbolic link, and reads it again.
func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wheelwork", "config.yaml")
	file, err := Load(path)
	if err != nil || len(file.Contexts) != 0 {
		t.Fatalf("a missing file: %v, %v", file, err)
	}
	file.Current = "prod"
	file.Contexts["prod"] = Context{URL: "https://a.example,https://b.example", TokenFile: "/secrets/token", CACert: "/ca.pem", App: "shop"}
	file.Contexts["test"] = Context{URL: "http://127.0.0.1:7700"}
	if err := file.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	linked, err := Load(link)
	if err != nil {
		t.Fatal(err)
	}
	delete(linked.Contexts, "test")
	if err := linked.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
	delete(file.Contexts, "test")
	again, err := Load(path)
	if err != nil || !reflect.DeepEqual(again, file) {
		t.Errorf("read %+v, %v, want %+v", again, err, file)
	}
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(names) != 1 {
		t.Errorf("the directory has %v, %v, want the file alone", names, err)
	}
}

func TestMistakes(t *testing.T) {
	for name, tt := range map[string]struct{ source, want string }{
		"unknown key":         {"contexts:\n  prod:\n    tokn-file: a\n", "line 3: there is no field tokn-file: did you mean token-file?"},
		"unknown top key":     {"curent-context: a\n", "line 1: there is no field curent-context: did you mean current-context?"},
		"key twice":           {"contexts:\n  a: {url: http://x}\n  a: {url: http://y}\n", "already defined"},
		"two documents":       {"current-context: a\n---\ncurrent-context: b\n", "more than one document"},
		"no address":          {"contexts: {prod: {url: localhost:7700}}", `context prod: url "localhost:7700" is not the address of a server`},
		"no name":             {"contexts: {'a b': {url: http://x}}", `context "a b" is not a name`},
		"a list":              {"- a\n", "want fields, found a list"},
		"too large":           {strings.Repeat("# comment\n", maxFile/10+1), "is larger than 1 MiB"},
		"a token, not a file": {"contexts: {prod: {token: abc}}", "there is no field token"},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(tt.source), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it to name the file and say %q", name, err, tt.want)
		}
	}
}

// TestPrivate reads files with the permissions of others.
func TestPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, private := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o644: false, 0o604: false, 0o620: false, 0o602: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); (err == nil) != private {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestGet(t *testing.T) {
	file := &File{Contexts: map[string]Context{"prod": {URL: "http://x"}}}
	_, err := file.Get("prd")
	var failure *command.Failure
	if !errors.As(err, &failure) || failure.Code != "not_found" || !strings.Contains(err.Error(), `did you mean "prod"?`) {
		t.Errorf("%v", err)
	}
	if c, err := file.Get("prod"); err != nil || c.URL != "http://x" {
		t.Errorf("%v, %v", c, err)
	}
}

// FuzzDecode reads any bytes, and reads again what it has written of them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("current-context: a\ncontexts:\n  a: {url: 'http://x', token-file: t, app: shop}\n"))
	f.Add([]byte("contexts: &x {a: {url: http://x}}\ncurrent-context: *x\n"))
	f.Fuzz(func(t *testing.T, source []byte) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		file := &File{Contexts: map[string]Context{}, path: path}
		if file.decode(source) != nil {
			return
		}
		if err := file.Save(); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(file) {
			t.Errorf("read %v, %v, want %v", again, err, file)
		}
	})
}
