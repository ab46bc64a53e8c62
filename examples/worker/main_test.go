package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// TestWorker runs the program beside a server of its own. The server's host executes
// modules and gets none of its runs.
func TestWorker(t *testing.T) {
	ready := start(t)
	quiet := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, worker.Options{Address: ready.URL, Token: ready.HostToken, Dir: t.TempDir(), Name: "bank", Logger: quiet})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	client, err := sdk.Dial(t.Context(), ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	for _, tt := range []struct{ job, handler, input, state, want string }{
		{"transfer", "native:transfer", `{"from":"alice","to":"bob","amount":30}`, "succeeded", `{"alice":70,"bob":50}`},
		{"nonsense", "native:transfer", `{"from":"alice","to":"nobody","amount":1}`, "failed", `"nobody"`},
		{"audit", "native:audit", "", "succeeded", "2 accounts hold 120"},
	} {
		if _, err := client.Apply(t.Context(), &sdk.Job{Name: tt.job, Handler: &sdk.Handler{Name: tt.handler}, Input: tt.input}); err != nil {
			t.Fatal(err)
		}
		a, err := client.Trigger(t.Context(), sdk.Trigger{Job: tt.job, Key: tt.job})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := client.Wait(ctx, "", a.RunID)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", tt.job, err)
		}
		if r.State != tt.state || !strings.Contains(r.Output+r.Error, tt.want) {
			t.Errorf("%s: %s: %s%s", tt.job, r.State, r.Output, r.Error)
		}
	}

	// A worker needs a token for workers, and the administrator's token is not one.
	err = run(t.Context(), worker.Options{Address: ready.URL, Token: ready.Token, Logger: quiet})
	if err == nil || !strings.Contains(err.Error(), "lacks the permission work") {
		t.Errorf("with the administrator's token: %v", err)
	}
	other, err := sdk.Dial(t.Context(), ready.URL, sdk.Options{Token: ready.HostToken})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nothing was sent
	if _, err := other.Run(t.Context(), "", "00000000000000000000000000"); err == nil || !strings.Contains(err.Error(), "lacks the permission") {
		t.Errorf("a run was asked for with a worker's token: %v", err)
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
