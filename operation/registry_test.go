package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func of(app string) *apiv1.Operation {
	return &apiv1.Operation{App: app, Kind: "jobs.pause", Caller: "ann"}
}

// until returns work that ends with a channel or its context.
func until(release <-chan struct{}, err error) func(string) Work {
	return func(string) Work {
		return func(ctx context.Context, p *Progress) error {
			p.Counted(3)
			p.Changed()
			select {
			case <-release:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func start(t *testing.T, r *Registry, o *apiv1.Operation, key string, work func(string) Work) *apiv1.Operation {
	t.Helper()
	op, err := r.Start(o, key, work)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func get(t *testing.T, r *Registry, o *apiv1.Operation) *apiv1.Operation {
	t.Helper()
	op, err := r.Get(o.App, o.Id)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// TestStates lets operations end in each way.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(&Places{})
		release := make(chan struct{})
		good := start(t, r, of("shop"), "", until(release, nil))
		bad := start(t, r, of("shop"), "", until(release, errors.New("the list cannot be read")))
		stopped := start(t, r, of("shop"), "", until(nil, nil))
		left := start(t, r, of("shop"), "", until(nil, nil))
		synctest.Wait()
		if op := get(t, r, good); op.State != "running" || op.GetTotal() != 3 || op.Done != 1 || op.EndedAt != nil || op.Caller != "ann" {
			t.Errorf("at first: %v", op)
		}
		time.Sleep(time.Minute)
		close(release)
		if _, first, err := r.Cancel("shop", stopped.Id, "bob"); err != nil || !first {
			t.Fatal(err)
		}
		synctest.Wait()
		r.Close()
		synctest.Wait()
		for o, want := range map[*apiv1.Operation]string{good: "done  ", bad: "failed the list cannot be read ", stopped: "cancelled  bob", left: "failed " + errClosed.Error() + " "} {
			op := get(t, r, o)
			if got := fmt.Sprintf("%s %s %s", op.State, op.Error, op.CancelledBy); got != want || op.EndedAt.AsTime().Sub(op.StartedAt.AsTime()) != time.Minute {
				t.Errorf("%q, want %q: %v", got, want, op)
			}
		}
		if op, first, err := r.Cancel("shop", good.Id, "bob"); err != nil || first || op.State != "done" || op.CancelledBy != "" {
			t.Errorf("an ended operation was cancelled: %v, %v", op, err)
		}
		if _, err := r.Get("other", good.Id); status.Code(err) != codes.NotFound {
			t.Errorf("in another app: %v", err)
		}
		if _, err := r.Start(of("shop"), "", until(release, nil)); status.Code(err) != codes.Unavailable {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestBounds starts as many operations as may run, in two registries of one server.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := &Places{}
		one, two := NewRegistry(places), NewRegistry(places)
		release := make(chan struct{})
		for i := range maxOfServer {
			r := []*Registry{one, two}[i%2]
			start(t, r, of(fmt.Sprint("app", i/maxOfApp, i%2)), "", until(release, nil))
		}
		if _, err := one.Start(of("more"), "", until(release, nil)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "on this server") {
			t.Errorf("beyond the bound of a server: %v", err)
		}
		close(release)
		synctest.Wait()
		again := make(chan struct{})
		for range maxOfApp {
			start(t, one, of("busy"), "", until(again, nil))
		}
		if _, err := one.Start(of("busy"), "", until(again, nil)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "app busy") {
			t.Errorf("beyond the bound of an app: %v", err)
		}
		start(t, one, of("calm"), "", until(again, nil))
		close(again)
		synctest.Wait()
		start(t, one, of("busy"), "", until(again, nil))
		synctest.Wait()
		if n := places.taken.Load(); n != 0 {
			t.Errorf("%d places are taken after all operations have ended", n)
		}
	})
}

// TestForget lets ended operations grow old, and makes too many.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(&Places{})
		now := make(chan struct{})
		close(now)
		release := make(chan struct{})
		long := start(t, r, of("shop"), "", until(release, nil))
		old := start(t, r, of("shop"), "", until(now, nil))
		time.Sleep(keepEnded - time.Second)
		all := func(*apiv1.Operation) bool { return true }
		if n := len(r.List(all)); n != 2 {
			t.Errorf("%d operations before the time is over", n)
		}
		time.Sleep(2 * time.Second)
		if ops := r.List(all); len(ops) != 1 || ops[0].Id != long.Id {
			t.Errorf("after a day: %v", ops)
		}
		if _, err := r.Get("shop", old.Id); status.Code(err) != codes.NotFound {
			t.Errorf("a forgotten operation: %v", err)
		}
		var last *apiv1.Operation
		for range maxEnded + 10 {
			last = start(t, r, of("shop"), "", until(now, nil))
			synctest.Wait()
		}
		if ops := r.List(all); len(ops) != maxEnded+1 || ops[0].Id != last.Id || ops[maxEnded].Id != long.Id {
			t.Errorf("%d operations, want %d ended ones and the running one", len(ops), maxEnded)
		}
		close(release)
	})
}

// TestKey starts one operation twice.
func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(&Places{})
		release := make(chan struct{})
		first := start(t, r, of("shop"), "k", until(release, nil))
		if again := start(t, r, of("shop"), "k", until(release, nil)); again.Id != first.Id {
			t.Error("the same key made another operation")
		}
		other := of("shop")
		other.Caller = "bob"
		if again := start(t, r, other, "k", until(release, nil)); again.Id == first.Id {
			t.Error("a caller got the operation of another one")
		}
		close(release)
		synctest.Wait()
		if again := start(t, r, of("shop"), "k", until(release, nil)); again.Id != first.Id || again.State != "done" {
			t.Errorf("after its end the key made %v", again)
		}
	})
}

// TestErrors bounds the errors.
func TestErrors(t *testing.T) {
	p := &Progress{op: &apiv1.Operation{}}
	for i := range 2 * maxErrors {
		p.Refused(fmt.Sprint("job", i), status.Error(codes.Internal, strings.Repeat("é", maxError)))
	}
	op := p.Snapshot()
	if op.Failed != 2*maxErrors || len(op.Errors) != maxErrors || !strings.HasPrefix(op.Errors[0], "job0: é") || len(op.Errors[0]) > maxError+16 {
		t.Errorf("%d failed, %d errors: %q", op.Failed, len(op.Errors), op.Errors[0])
	}
}
