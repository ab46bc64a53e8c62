package main

import (
	"context"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// waitTells is the time after which a waiting run's reason is printed, and the interval
// of the checks afterwards.
const waitTells = 2 * time.Second

// waits prints to standard error why a run has not started, each time the reason changes.
type waits struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	waiting bool
}

// tellWaits starts the checks; stop ends them and may be called twice.
func (c *cli) tellWaits(ctx context.Context, client *sdk.Client, id string) *waits {
	w := &waits{waiting: true}
	ctx, w.end = context.WithCancel(ctx)
	w.done.Go(func() {
		tick := time.NewTicker(waitTells)
		defer tick.Stop()
		for last := ""; ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !w.isWaiting() {
				continue
			}
			why, err := client.ExplainRun(ctx, c.app, id)
			if err != nil || why.GetWhy() == "" || why.GetWhy() == last { // the watching call reports errors
				continue
			}
			last = why.GetWhy()
			c.followed()
			c.note("run %s is %s: %s", id, why.GetState(), last)
		}
	})
	return w
}

// state records the state of the run.
func (w *waits) state(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = state == "queued" || state == "dispatched" || state == "armed"
}

func (w *waits) isWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

func (w *waits) stop() {
	w.end()
	w.done.Wait()
}
