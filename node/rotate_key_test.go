package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestRotateKey replaces the key of the secrets while the server works. The old key cannot
// be removed as long as a secret needs it.
func TestRotateKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret.key")
	requests := make(chan node.Reload[node.ServerConfig])
	cfg := node.ServerConfig{Data: dir, Reload: requests}
	p := serve(t, cfg, nil)
	c := client(t, p, p.Token)
	keys, err := credential.SecretKeys(file, false)
	if err != nil {
		t.Fatal(err)
	}
	old := keys.IDs()[0]
	apps := []string{"", "other"}
	for _, app := range apps {
		for _, name := range []string{"first", "second"} {
			if _, err := c.SetSecret(within(t), app, name, []byte("value")); err != nil {
				t.Fatal(err)
			}
		}
	}
	reseal := func(app, key string, resealed int32) {
		t.Helper()
		r, err := c.ResealSecrets(within(t), app)
		if err != nil || r.GetKey() != key || r.GetSecrets() != 2 || r.GetResealed() != resealed || len(r.GetUnreadable()) > 0 {
			t.Errorf("app %q: %v, %v, want %d with %s", app, r, err, resealed, key)
		}
	}
	reseal("", old, 0)
	newest, err := credential.AddSecretKey(file)
	if err != nil {
		t.Fatal(err)
	}
	reseal("", old, 0) // the server has not reloaded
	wantReload(t, requests, cfg, "")
	reseal("", newest, 2)
	reseal("", newest, 0) // again
	remove := func() {
		t.Helper()
		if err := credential.RemoveSecretKey(file, old); err != nil {
			t.Fatal(err)
		}
	}
	both, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	remove()
	wantReload(t, requests, cfg, "has lost the key "+old+", with which 2 secrets are sealed")
	if err := os.WriteFile(file, []byte("what is this"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantReload(t, requests, cfg, "does not hold the keys of the secrets")
	if err := os.WriteFile(file, both, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := c.Secrets(within(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	reseal("other", newest, 2)
	after, err := c.Secrets(within(t), "other")
	if err != nil || len(after) != 2 || after[0].GetVersion() != before[0].GetVersion() || !after[0].GetUpdatedAt().AsTime().Equal(before[0].GetUpdatedAt().AsTime()) {
		t.Errorf("the secrets were %v, and are %v, %v", before, after, err)
	}
	remove()
	wantReload(t, requests, cfg, "")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	// A start with the new key alone opens every secret: it would be refused otherwise.
	p = serve(t, node.ServerConfig{Data: dir}, nil)
	c = client(t, p, p.Token)
	reseal("", newest, 0)
	reseal("other", newest, 0)
	if r, err := c.ResealSecrets(within(t), "empty"); err != nil || r.GetSecrets() != 0 {
		t.Errorf("an app without secrets: %v, %v", r, err)
	}
	if _, err := c.ResealSecrets(within(t), "no app"); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a wrong name: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	// A secret whose key is lost stays as it is, and the call says which.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p = serve(t, node.ServerConfig{Data: dir, NewSecretKey: true}, nil)
	c = client(t, p, p.Token)
	if r, err := c.ResealSecrets(within(t), ""); err != nil || r.GetResealed() != 0 || strings.Join(r.GetUnreadable(), " ") != "first second" {
		t.Errorf("with a lost key: %v, %v", r, err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestRotateKeyOfCluster: a new key seals when all servers have it, and until then the
// call to seal all secrets with it says which server does not.
func TestRotateKeyOfCluster(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	w.etcd = beside(t)
	type server struct {
		*process
		file     string
		cfg      node.ServerConfig
		requests chan node.Reload[node.ServerConfig]
	}
	first := filepath.Join(w.dir, "first.key")
	old, err := credential.AddSecretKey(first)
	if err != nil {
		t.Fatal(err)
	}
	copyKeys := func(to string) {
		t.Helper()
		text, err := os.ReadFile(first)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start := func(i int, file string) *server {
		t.Helper()
		s := &server{file: file, requests: make(chan node.Reload[node.ServerConfig])}
		if err := os.MkdirAll(w.data(i), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.data(i), "token"), []byte(adminToken+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cfg = node.ServerConfig{Data: w.data(i), Listen: testkit.FreeAddress(t), Nameserver: w.names.GRPC, TokenFile: filepath.Join(w.dir, "shared"), SecretKey: file, Reload: s.requests}
		s.cfg.Etcd.Endpoints, s.cfg.Etcd.Units = []string{w.etcd}, 2
		s.process = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
			cfg := s.cfg
			cfg.Ready = ready
			return node.Server(ctx, cfg)
		})
		return s
	}
	second := filepath.Join(w.dir, "second.key")
	copyKeys(second)
	one, two := start(0, first), start(1, second)
	c := client(t, one.process, adminToken)
	eventually := func(what string, f func() (bool, error)) {
		t.Helper()
		ctx := within(t)
		for {
			ok, err := f()
			if ok {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	eventually("both servers", func() (bool, error) {
		s, err := c.Cluster(within(t))
		return len(s.GetServers()) == 2, err
	})
	if _, err := c.SetSecret(within(t), "", "s", []byte("value")); err != nil {
		t.Fatal(err)
	}
	newest, err := credential.AddSecretKey(first)
	if err != nil {
		t.Fatal(err)
	}
	id := func(s *server) string {
		text, err := os.ReadFile(filepath.Join(s.cfg.Data, "server-id"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	// Both answer the same, whichever owns the app.
	ones, twos := client(t, one.process, adminToken), client(t, two.process, adminToken)
	wantReload(t, one.requests, one.cfg, "")
	wantReload(t, two.requests, two.cfg, "") // with the old file
	// The owner answers: with the old key if it is the second server, and otherwise that the
	// second one lacks the new key.
	eventually("a server lacks the key", func() (bool, error) {
		r, err := ones.ResealSecrets(within(t), "")
		return r.GetKey() == old || err != nil && strings.Contains(err.Error(), newest+": "+id(two)), err
	})
	if _, err := twos.SetSecret(within(t), "", "meanwhile", []byte("value")); err != nil {
		t.Fatal(err)
	}
	copyKeys(second)
	wantReload(t, two.requests, two.cfg, "")
	eventually("both have the key", func() (bool, error) {
		r, err := twos.ResealSecrets(within(t), "")
		// The secret that was set meanwhile was sealed with the old key, as each server had it.
		return err == nil && r.GetKey() == newest && r.GetSecrets() == 2 && r.GetResealed() == 2 && len(r.GetUnreadable()) == 0, err
	})
	for _, s := range []*server{one, two} {
		if err := credential.RemoveSecretKey(s.file, old); err != nil {
			t.Fatal(err)
		}
		wantReload(t, s.requests, s.cfg, "")
	}
	if r, err := ones.ResealSecrets(within(t), ""); err != nil || r.GetSecrets() != 2 || r.GetResealed() != 0 || len(r.GetUnreadable()) > 0 {
		t.Errorf("with the new key alone: %v, %v", r, err)
	}
	if err := errors.Join(one.stop(), two.stop()); err != nil {
		t.Fatal(err)
	}
}
