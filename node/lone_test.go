package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
)

// lone is a nameserver, and standalone servers.
type lone struct {
	t     *testing.T
	dir   string
	hosts string // file with the token of hosts
	own   string // file with the token of servers
	names *process
}

func newLone(t *testing.T) *lone {
	t.Helper()
	w := &lone{t: t, dir: t.TempDir()}
	w.hosts, w.own = filepath.Join(w.dir, "hosts"), filepath.Join(w.dir, "servers")
	for file, token := range map[string]string{w.hosts: memberToken, w.own: "a-token-of-the-servers-of-this-test"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.names = launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Nameserver(ctx, node.NameserverConfig{Listen: "127.0.0.1:0", TokenFile: w.hosts, ServerTokenFile: w.own, Ready: ready})
	})
	return w
}

// run runs a server that joins a nameserver, or without one is its own, until ctx ends.
func (w *lone) run(ctx context.Context, name, nameserver string, ready func(node.Ready)) error {
	return node.Server(ctx, node.ServerConfig{
		Data: filepath.Join(w.dir, name), Listen: "127.0.0.1:0", Nameserver: nameserver, TokenFile: w.hosts, ServerTokenFile: w.own, Ready: ready,
	})
}

func (w *lone) server(name string) *process {
	w.t.Helper()
	return launch(w.t, func(ctx context.Context, ready func(node.Ready)) error { return w.run(ctx, name, w.names.GRPC, ready) })
}

// until waits until the nameserver sends hosts to an address.
func (w *lone) until(address string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	if err := w.sentTo(ctx, address); err != nil {
		w.t.Fatalf("no host is sent to %s: %v", address, err)
	}
}

func (w *lone) sentTo(ctx context.Context, address string) error {
	conn, _ := dial(w.t, w.names, memberToken)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+memberToken)
	watch, err := apiv1.NewNameserverClient(conn).Watch(ctx, &apiv1.WatchRequest{Host: "h"})
	for err == nil {
		var a *apiv1.Assignment
		if a, err = watch.Recv(); a.GetAddress() == address {
			return nil
		}
	}
	return err
}

// refused runs a server until it ends, and checks that the reason is another server.
func (w *lone) refused(name, nameserver, other string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := w.run(ctx, name, nameserver, nil)
	if ctx.Err() != nil || err == nil {
		w.t.Errorf("a second server works: %v", err)
		return
	}
	for _, want := range []string{"the nameserver refuses this server", other, "wheelwork cluster init", "docs/cluster.md"} {
		if !strings.Contains(err.Error(), want) {
			w.t.Errorf("it does not say %q: %v", want, err)
		}
	}
	if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "rpc error") {
		w.t.Errorf("it is not one sentence: %s", text)
	}
}

// TestSecondServerEnds: a nameserver has one standalone server, which may come back, also
// at another address. A second one ends, until the first one has been gone for a lease.
func TestSecondServerEnds(t *testing.T) {
	t.Parallel()
	w := newLone(t)
	one := w.server("one")
	w.until(one.GRPC)
	w.refused("two", w.names.GRPC, one.GRPC)
	w.until(one.GRPC)
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	again := w.server("one")
	w.until(again.GRPC)
	w.refused("two", w.names.GRPC, again.GRPC)
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !w.takesOver(ctx, "two") { // it is started again until the lease is over
		if ctx.Err() != nil {
			t.Fatal("the second server is refused after the lease of the first one")
		}
	}
}

// takesOver runs a server until hosts are sent to it; false: it was refused before that.
func (w *lone) takesOver(ctx context.Context, name string) bool {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, sent := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- w.run(ctx, name, w.names.GRPC, func(r node.Ready) {
			go func() { sent <- w.sentTo(ctx, r.GRPC) }()
		})
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "wheelwork cluster init") {
			w.t.Fatalf("it ended with %v", err)
		}
		return false
	case err := <-sent:
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			w.t.Fatal(err)
		}
		return true
	}
}

// TestSecondServerAtAServer: a server without a nameserver is its own one, and a
// cluster's server is the nameserver of its cluster. Neither admits a standalone server.
func TestSecondServerAtAServer(t *testing.T) {
	t.Parallel()
	w := newLone(t)
	self := launch(t, func(ctx context.Context, ready func(node.Ready)) error { return w.run(ctx, "one", "", ready) })
	w.refused("two", self.GRPC, self.GRPC)

	cluster := newSeveral(t, 1, "a")
	w.hosts, w.own = cluster.token, ""
	w.refused("two", cluster.at["a"], cluster.at["a"])
}
