package main

import (
	"context"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// waitTells is how long a run waits before the reason is printed, and then how often the
// reason is looked at.
const waitTells = 2 * time.Second

// waits prints on standard error why a run that is waited for has not started, each time
// the reason changes.
type waits struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	waiting bool
}

// tellWaits begins; stop ends it, and may be called twice.
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
			if err != nil || why.GetWhy() == "" || why.GetWhy() == last { // an error is told by the call that watches
				continue
			}
			last = why.GetWhy()
			c.followed()
			c.note("run %s is %s: %s", id, why.GetState(), last)
		}
	})
	return w
}

// state notes the state of the run.
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
