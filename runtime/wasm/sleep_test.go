package wasm

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
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
		used   int64 // of 100 bytes
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
				x := newCall(t.Context(), &runtime.Task{Deadline: start.Add(3 * time.Second)}, sink, make(chan struct{}, 1))
				x.ration = &ration{max: 100}
				x.ration.used.Store(c.used)
				if err := x.acquireSlot(); err != nil {
					t.Fatal(err)
				}
				func() {
					defer func() { recover() }() // the host ends a guest by a panic
					x.sleep(c.d)
				}()
				if n := len(sink.asked); n != c.asked || sink.woken != c.woken || time.Since(start) != c.took || x.cause != c.cause {
					t.Errorf("asked %d times, woken %d times, after %v, ended because of %v", n, sink.woken, time.Since(start), x.cause)
				}
			})
		})
	}
}

// TestPollLendsTheSlot checks that a guest also lends its slot when it sleeps in
// poll_oneoff, as the standard libraries of languages do.
func TestPollLendsTheSlot(t *testing.T) {
	e := newEngine(t, Config{Slots: 1})
	digest := load(t, e, fixture(t, "sleep"))
	ctx, cancel := context.WithCancel(t.Context())
	sink := &lender{asked: make(chan struct{}, 1)}
	ended := make(chan runtime.Result)
	go func() { ended <- e.Run(ctx, runtime.Task{Digest: digest}, sink) }()
	<-sink.asked
	cancel()
	if r := <-ended; r.Outcome != runtime.Stopped || sink.woken != 1 {
		t.Errorf("woken %d times: %+v", sink.woken, r)
	}
}
