package guest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
)

// lender is a sink that lends execution slots.
type lender struct {
	recorder
	full   bool // it refuses to lend
	asked  chan struct{}
	woken  int
	onWake func(ctx context.Context)
}

func (l *lender) Sleep() bool {
	l.asked <- struct{}{}
	return !l.full
}

func (l *lender) Wake(ctx context.Context) {
	l.woken++
	if l.onWake != nil {
		l.onWake(ctx)
	}
}

// TestLongSleepsLendTheSlot checks that the host's slot is free during a sleep of over 50
// ms, unless the host refuses or half of the guests' memory is used. The guest must then
// wait until it has a slot again, but not beyond its deadline.
func TestLongSleepsLendTheSlot(t *testing.T) {
	never := func(ctx context.Context) { <-ctx.Done() }
	for _, c := range []struct {
		name   string
		d      time.Duration
		full   bool
		used   uint64 // of 100 bytes
		onWake func(context.Context)
		asked  int
		woken  int
		took   time.Duration
		cause  error
	}{
		{name: "short", d: 50 * time.Millisecond, took: 50 * time.Millisecond},
		{name: "long", d: 51 * time.Millisecond, asked: 1, woken: 1, took: 51 * time.Millisecond},
		{name: "half of the memory", d: time.Second, used: 50, asked: 1, woken: 1, took: time.Second},
		{name: "more of it", d: time.Second, used: 51, took: time.Second},
		{name: "refused", d: time.Second, full: true, asked: 1, took: time.Second},
		{name: "no slot before the deadline", d: time.Second, onWake: never, asked: 1, woken: 1, took: 3 * time.Second, cause: errDeadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &lender{full: c.full, asked: make(chan struct{}, 1), onWake: c.onWake}
				start := time.Now()
				host := newHost()
				host.Memory = memory.NewBudget(100, nil)
				other := (&memory.Allocator{Limit: 100, Budget: host.Memory}).Allocate(0, 100)
				defer other.Free()
				other.Reallocate(c.used)
				x := NewCall(t.Context(), &runtime.Task{Deadline: start.Add(3 * time.Second)}, sink, host)
				if err := x.acquireSlot(); err != nil {
					t.Fatal(err)
				}
				func() {
					defer func() { recover() }() // the host ends a guest by a panic
					x.Sleep(c.d)
				}()
				if n := len(sink.asked); n != c.asked || sink.woken != c.woken || time.Since(start) != c.took || x.cause != c.cause {
					t.Errorf("asked %d times, woken %d times, after %v, ended because of %v", n, sink.woken, time.Since(start), x.cause)
				}
			})
		})
	}
}

func TestGrantPaysDebts(t *testing.T) {
	c := &Call{attempt: attempt{fuel: 1000}}
	c.slice = 100
	total := int64(0)
	for _, debt := range []int64{0, 30, 0, 700} {
		total += int64(c.grant(100, debt)) + debt
	}
	if total != 1000 || c.fuel != 0 {
		t.Errorf("granted %d of 1000, %d are left", total, c.fuel)
	}
	if left := c.grant(100, 0); left != 0 {
		t.Errorf("granted %d of nothing", left)
	}
}
