package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/node"
)

// TestOtherSecretKey: a server does not start with a key that opens none of its secrets,
// unless the operator declares the key new.
func TestOtherSecretKey(t *testing.T) {
	dir := t.TempDir()
	serve := func(accepted bool) *process {
		return launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			return node.Server(ctx, node.ServerConfig{Data: dir, Listen: "127.0.0.1:0", NewSecretKey: accepted, Ready: ready})
		})
	}
	stop := func(p *process) {
		t.Helper()
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(false)
	if _, err := client(t, p, p.Token).SetSecret(within(t), "", "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	stop(p)
	if err := os.Remove(filepath.Join(dir, "secret.key")); err != nil {
		t.Fatal(err)
	}
	err := node.Server(within(t), node.ServerConfig{Data: dir, Listen: "127.0.0.1:0", Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "key of app default") || !strings.Contains(err.Error(), "--new-secret-key") {
		t.Errorf("got %v", err)
	}
	p = serve(true)
	if _, err := client(t, p, p.Token).SetSecret(within(t), "", "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	stop(p)
	stop(serve(false))
}

// TestMissingSecretKey: a server does not make the key that --secret-key-file names,
// because other servers must have the same one. Its error says how to get it.
func TestMissingSecretKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	err := node.Server(within(t), node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", SecretKey: path, Ready: func(node.Ready) { t.Error("it started") }})
	if err == nil || !strings.Contains(err.Error(), "copy it from another server") || !strings.Contains(err.Error(), "wheelwork secret key add "+path) {
		t.Errorf("got %v", err)
	}
}
