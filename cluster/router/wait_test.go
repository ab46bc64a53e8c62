package router_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
)

// standby is a partition that this server does not own.
type standby struct{}

func (standby) Serving() *router.Services             { return nil }
func (standby) Code() *modules.Store                  { return nil }
func (standby) CopyOut(context.Context, string) error { return nil }

// viewOf returns the view of a server that receives nothing from etcd.
func viewOf(partitions ...string) *cluster.View {
	r := cluster.NewView(nil, "main", "me", "h:0", slog.New(slog.DiscardHandler))
	r.Partitions = partitions
	return r
}

// TestRouterWaitsForAnOwner: a call that waits for a partition ends as soon as the
// partition has an owner.
func TestRouterWaitsForAnOwner(t *testing.T) {
	r := viewOf("main")
	x := &router.Router{Forwarder: router.Forwarder{View: r, Partitions: map[string]router.Hosted{"main": standby{}}}, Writes: func(string) bool { return false }}
	done := make(chan error, 1)
	go func() {
		_, err := x.Enter(t.Context(), "main", "pay")
		done <- err
	}()
	r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "me"}}) // this server is about to serve it
	r.ReceiveOwners(map[string]etcd.Owner{})
	r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "you", Address: "h:1"}})
	select {
	case err := <-done:
		if router.AddressIn(err) != "h:1" {
			t.Errorf("%v", err)
		}
	case <-time.After(router.Patience + 10*time.Second):
		t.Error("it waits for ever")
	}
}

// TestCallsWaitForTheTable: a server that has just started does not look for apps in the
// fallback partition before it knows where the apps are.
func TestCallsWaitForTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &router.Router{Forwarder: router.Forwarder{
			View: cluster.NewView(nil, "main", "s", "127.0.0.1:1", slog.New(slog.DiscardHandler)), Partitions: map[string]router.Hosted{"main": standby{}, "main.1": standby{}},
		}}
		r.View.Partitions = []string{"main", "main.1"}
		if partition, err := r.PartitionOf(t.Context(), "a", false); status.Code(err) != codes.Unavailable {
			t.Errorf("without the table the app is in %q: %v", partition, err)
		}
		type answer struct {
			partition string
			err       error
		}
		got := make(chan answer, 1)
		go func() {
			partition, err := r.PartitionOf(t.Context(), "a", false)
			got <- answer{partition, err}
		}()
		synctest.Wait()
		r.View.Receive([]etcd.Fact{{Key: cluster.RowApp + "a", Value: "main.1"}}, true)
		if a := <-got; a != (answer{"main.1", nil}) {
			t.Errorf("with the table the app is in %q: %v", a.partition, a.err)
		}
		if partition, err := r.PartitionOf(t.Context(), "nowhere", false); partition != "main" || err != nil {
			t.Errorf("an app that is nowhere is in %q: %v", partition, err)
		}
	})
}
