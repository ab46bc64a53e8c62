package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestProducer runs the program twice against a server of its own, the second time with a
// job that an interrupted run has left behind.
func TestProducer(t *testing.T) {
	ready := start(t)
	var out strings.Builder
	if err := run(t.Context(), &out, ready.URL, ready.Token, 10_000); err != nil {
		t.Fatal(err)
	}
	leave(t, ready, name(3))
	if err := run(t.Context(), &out, ready.URL, ready.Token, 100); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.String())
	if n := strings.Count(out.String(), " jobs in "); n != 8 {
		t.Errorf("%d steps in two runs, want 8:\n%s", n, out.String())
	}
	if err := run(t.Context(), io.Discard, ready.URL, "wrong", 1); err == nil {
		t.Error("a wrong token was accepted")
	}
}

func leave(t *testing.T, ready node.Ready, job string) {
	t.Helper()
	client, err := sdk.Dial(t.Context(), ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	if _, err := client.Apply(t.Context(), &sdk.Job{Name: job, Handler: &sdk.Handler{Module: "producer-example@1"}}); err != nil {
		t.Fatal(err)
	}
}

// start runs a server until the test ends.
func start(t *testing.T) node.Ready {
	t.Helper()
	dir := t.TempDir() // first, so that it is removed last
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan node.Ready, 1), make(chan error, 1)
	go func() {
		ended <- node.Dev(ctx, node.DevConfig{
			Data: dir, Listen: "127.0.0.1:0", Ready: func(r node.Ready) { ready <- r },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case r := <-ready:
		return r
	case err := <-ended:
		ended <- nil // for the cleanup
		t.Fatal(err)
		return node.Ready{}
	}
}
