package wasm

import (
	"context"
	"testing"

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
