package node_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// TestSharedJournalMistakes: mistakes are reported before anything is done.
func TestSharedJournalMistakes(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{Data: used, Listen: "127.0.0.1:0", Ready: ready})
	})
	conn, ctx := dial(t, p, p.Token)
	if _, err := apiv1.NewAppsClient(conn).PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	nobody := node.EtcdConfig{Endpoints: []string{"http://127.0.0.1:1"}}
	for _, c := range []struct {
		name string
		cfg  node.ServerConfig
		want string
	}{
		{"no port", node.ServerConfig{Data: filepath.Join(t.TempDir(), "d"), Listen: "127.0.0.1:0", Etcd: nobody}, "--advertise"},
		{"a directory with a journal", node.ServerConfig{Data: used, Listen: "127.0.0.1:17701", Etcd: nobody}, "journal of its own"},
		{"half of a certificate", node.ServerConfig{Data: filepath.Join(t.TempDir(), "d"), Listen: "127.0.0.1:17701", Etcd: node.EtcdConfig{Endpoints: nobody.Endpoints, Cert: "/nowhere"}}, "certificates"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c.cfg.Ready = func(node.Ready) { t.Errorf("%s: it started", c.name); cancel() }
		if err := node.Server(ctx, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
	}
}
