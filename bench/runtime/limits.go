package main

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// lifetime is the deadline of a guest that never ends.
const lifetime = 10 * time.Millisecond

// limits measures guests that never end: how long after its deadline such a guest is
// stopped, and how long it delays the garbage collector of the process.
func (b *bench) limits(ctx context.Context) error {
	b.note("run guests that never end")
	e, err := wasm.New(ctx, wasm.Config{})
	if err != nil {
		return err
	}
	defer e.Close(ctx) //nolint:errcheck // frees memory
	digest, err := load(ctx, e, cGuest, manifest("reset"))
	if err != nil {
		return err
	}
	var late []time.Duration
	for range b.size.deadlines {
		start := time.Now()
		r := e.Run(ctx, runtime.Task{Digest: digest, Handler: "loop", Deadline: start.Add(lifetime)}, silent{})
		late = append(late, time.Since(start)-lifetime)
		if r.Outcome != runtime.TimedOut {
			return fmt.Errorf("a guest that never ends: %+v", r)
		}
	}
	b.addDurations("deadline/overshoot", late, report.AtMost(5))
	alone := collections(b.size.deadlines)
	waits, whole, err := stalls(ctx, e, digest, b.size.deadlines)
	if err != nil {
		return err
	}
	b.addDurations("gc/stall", whole, report.AtMost(2))
	b.addDurations("gc/alone", alone, nil)
	b.addDurations("gc/wait", waits, report.AtMost(2))
	return nil
}

// addDurations adds a row whose goal applies to the median. On a shared machine the
// maximum depends more on the machine than on the program.
func (b *bench) addDurations(name string, all []time.Duration, goal *report.Goal) {
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.report.Add(name, ms(all[len(all)/2]), "ms", goal)
	b.report.Note(fmt.Sprintf("the median of %d; the worst %.2f ms", len(all), ms(all[len(all)-1])))
}

// collections measures garbage collections without a running guest.
func collections(n int) (all []time.Duration) {
	for range n {
		time.Sleep(time.Millisecond)
		start := time.Now()
		goruntime.GC()
		all = append(all, time.Since(start))
	}
	return all
}

// stalls runs n garbage collections while a guest has the processor, and returns how long
// they took in whole. During n further collections it returns in waits the longest time
// that a runnable goroutine waited. That goroutine waits for the guest and for the
// collector, and for the time that the collector waits until the guest lets it stop the
// world.
func stalls(ctx context.Context, e *wasm.Engine, digest string, n int) (waits, whole []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan runtime.Result, 1)
	go func() { ended <- e.Run(ctx, runtime.Task{Digest: digest, Handler: "loop"}, silent{}) }()
	for range n {
		time.Sleep(time.Millisecond) // until the guest has the processor
		start := time.Now()
		goruntime.GC()
		whole = append(whole, time.Since(start))
	}
	for range n {
		time.Sleep(time.Millisecond)
		collected := make(chan struct{})
		go func() {
			goruntime.GC()
			close(collected)
		}()
		longest, ended := time.Duration(0), false
		for at := time.Now(); !ended; {
			goruntime.Gosched()
			now := time.Now()
			longest, at = max(longest, now.Sub(at)), now
			select {
			case <-collected:
				ended = true
			default:
			}
		}
		waits = append(waits, longest)
	}
	cancel()
	if r := <-ended; r.Outcome != runtime.Stopped {
		return nil, nil, fmt.Errorf("a guest that was cancelled: %+v", r)
	}
	return waits, whole, nil
}
