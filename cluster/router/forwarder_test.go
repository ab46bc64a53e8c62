package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// TestRedirect: the owner that an error names is found in this process, and by a program
// that received the error.
func TestRedirect(t *testing.T) {
	to := &apiv1.Assignment{Server: "s2", Address: "h:2", Unit: "main.1"}
	for app, want := range map[string]string{
		"pay": "the app pay is on the server s2: use h:2",
		"":    "the app of the partition main.1 is on the server s2: use h:2",
	} {
		var err error = &router.Redirect{App: app, To: to}
		for where, err := range map[string]error{"here": err, "received": status.FromProto(status.Convert(err).Proto()).Err()} {
			if s := status.Convert(err); router.OwnerIn(err).GetServer() != "s2" || router.AddressIn(err) != "h:2" || s.Code() != codes.FailedPrecondition || s.Message() != want {
				t.Errorf("%s: got %v, %v", where, router.OwnerIn(err), err)
			}
		}
	}
	if a := router.AddressIn(status.Error(codes.FailedPrecondition, "drained")); a != "" {
		t.Errorf("an error without an assignment names %q", a)
	}
}

// TestRepeat: a call is repeated after a change or a pause, while its error allows that
// and for Patience at most.
func TestRepeat(t *testing.T) {
	moving, final := errors.New("moving"), errors.New("final")
	again := func(err error) bool { return errors.Is(err, moving) }
	synctest.Test(t, func(t *testing.T) {
		f := &router.Forwarder{View: viewOf("main")}
		calls := 0
		begin := time.Now()
		err := f.Repeat(t.Context(), again, func(context.Context) error { calls++; return moving })
		if took := time.Since(begin); !errors.Is(err, moving) || took != router.Patience || calls < 10 {
			t.Errorf("a partition that moves for ever: %v after %v and %d calls", err, took, calls)
		}
		calls = 0
		if err := f.Repeat(t.Context(), again, func(context.Context) error { calls++; return final }); !errors.Is(err, final) || calls != 1 {
			t.Errorf("an error that is final: %v after %d calls", err, calls)
		}
		calls, begin = 0, time.Now()
		err = f.Repeat(t.Context(), again, func(context.Context) error {
			if calls++; calls == 1 {
				f.View.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "you", Address: "h:1"}})
				return moving
			}
			return nil
		})
		if took := time.Since(begin); err != nil || calls != 2 || took != 0 {
			t.Errorf("after a change: %v after %v and %d calls", err, took, calls)
		}
	})
}

// TestCallReachesTheOwner: a call that another server has to answer goes there once.
func TestCallReachesTheOwner(t *testing.T) {
	f := &router.Forwarder{View: viewOf("main"), Partitions: map[string]router.Hosted{"main": standby{}}, Peers: &router.Peers{Own: identity(t, "shared"), Key: identity(t, "ws_key")}}
	defer f.Peers.Close() //nolint:errcheck // a test's
	f.View.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "you", Address: "127.0.0.1:1"}})
	var reached []string
	err := f.Call(t.Context(), "main", "pay", func(*router.Services) error {
		reached = append(reached, "here")
		return nil
	}, func(o router.Owner) error {
		reached = append(reached, o.Address)
		return nil
	})
	if err != nil || len(reached) != 1 || reached[0] != "127.0.0.1:1" {
		t.Errorf("it reached %q: %v", reached, err)
	}
	if err := f.Here(t.Context(), "main", "pay", func(*router.Services) error { return nil }); router.AddressIn(err) != "127.0.0.1:1" {
		t.Errorf("a call for this server: %v", err)
	}
}
