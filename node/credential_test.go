package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/node"
)

func writeToken(t *testing.T, dir, name string) (file string) {
	t.Helper()
	file = filepath.Join(dir, name)
	if err := credential.GenerateToken(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestGenerateToken: a token is long, private and never replaced.
func TestGenerateToken(t *testing.T) {
	dir := t.TempDir()
	file := writeToken(t, dir, "token")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(strings.TrimSpace(string(text))) < 35 {
		t.Errorf("%q, %v", text, err)
	}
	if err := credential.GenerateToken(file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second token in the same file: %v", err)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(text) {
		t.Errorf("the file was changed: %v", err)
	}
	if other, err := os.ReadFile(writeToken(t, dir, "other")); err != nil || string(other) == string(text) {
		t.Errorf("two tokens are equal: %v", err)
	}
	if err := credential.GenerateToken(filepath.Join(dir, "nowhere", "token")); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("in a directory that is not there: %v", err)
	}
}

// TestCredentialFiles: nothing starts with a credential file that other users can read or
// write, or whose content can be guessed.
func TestCredentialFiles(t *testing.T) {
	t.Parallel()
	const good = "ww_a-token-of-this-test-that-is-long"
	write := func(t *testing.T, path, text string, mode os.FileMode) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noKey := write(t, filepath.Join(t.TempDir(), "key"), "no key", 0o600)
	server := func(cfg node.ServerConfig) error {
		cfg.Listen = "192.0.2.1:1" // the address of another machine: otherwise it would start
		cfg.Certificates.Cert = "no-certificate"
		if cfg.Certificates.Key == "" {
			cfg.Certificates.Key = noKey
		}
		return node.Server(t.Context(), cfg)
	}
	for name, start := range map[string]func(t *testing.T, text string, mode os.FileMode) (file string, err error){
		"--token-file of a server": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			file := write(t, filepath.Join(t.TempDir(), "f"), text, mode)
			return file, server(node.ServerConfig{Data: t.TempDir(), TokenFile: file, ServerTokenFile: writeToken(t, t.TempDir(), "s")})
		},
		"--server-token-file of a server": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			file := write(t, filepath.Join(t.TempDir(), "f"), text, mode)
			return file, server(node.ServerConfig{Data: t.TempDir(), ServerTokenFile: file})
		},
		"--server-token-file of a nameserver": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			file := write(t, filepath.Join(t.TempDir(), "f"), text, mode)
			return file, node.Nameserver(t.Context(), node.NameserverConfig{Listen: "192.0.2.1:1", TLSCert: "no", TLSKey: noKey, TokenFile: writeToken(t, t.TempDir(), "h"), ServerTokenFile: file})
		},
		"--token-file of a host": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			file := write(t, filepath.Join(t.TempDir(), "f"), text, mode)
			return file, node.Host(t.Context(), node.HostConfig{Server: "192.0.2.1:1", TokenFile: file})
		},
		"the administrator's token": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			dir := t.TempDir()
			return write(t, filepath.Join(dir, "token"), text, mode), server(node.ServerConfig{Data: dir})
		},
		"the token of workers": func(t *testing.T, text string, mode os.FileMode) (string, error) {
			dir := t.TempDir()
			return write(t, filepath.Join(dir, "host-token"), text, mode), server(node.ServerConfig{Data: dir})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []os.FileMode{0o644, 0o604, 0o602, 0o620, 0o666} {
				file, err := start(t, good, mode)
				if err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) {
					t.Errorf("mode %o: %v", mode, err)
				}
			}
			for _, mode := range []os.FileMode{0o600, 0o400, 0o640} {
				if file, err := start(t, good, mode); err == nil || strings.Contains(err.Error(), file) {
					t.Errorf("mode %o is refused: %v", mode, err)
				}
			}
			if _, err := start(t, strings.Repeat("a", 15), 0o600); err == nil || !strings.Contains(err.Error(), "wheelwork token generate") {
				t.Errorf("a token of 15 characters: %v", err)
			}
		})
	}
	t.Run("keys", func(t *testing.T) {
		dir := t.TempDir()
		key := write(t, filepath.Join(dir, "key"), "no key", 0o644)
		for flag, err := range map[string]error{
			"--tls-key":       server(node.ServerConfig{Data: filepath.Join(dir, "a"), Certificates: node.CertificatesConfig{Key: key}}),
			"--etcd-key":      server(node.ServerConfig{Data: filepath.Join(dir, "b"), Etcd: node.EtcdConfig{Key: key}}),
			"secret.key":      node.Server(t.Context(), node.ServerConfig{Data: filepath.Join(dir, "c"), Listen: "127.0.0.1:0", SecretKey: key}),
			"of a nameserver": node.Nameserver(t.Context(), node.NameserverConfig{TokenFile: writeToken(t, dir, "h"), TLSCert: "no", TLSKey: key}),
		} {
			if err == nil || !strings.Contains(err.Error(), "chmod 600 "+key) {
				t.Errorf("%s: %v", flag, err)
			}
		}
	})
}
