package runview

import (
	"context"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// reasonInterval is the time after which a waiting run's reason is printed, and the interval
// of the checks afterwards.
const reasonInterval = 2 * time.Second

// reasons prints to standard error why a run has not started, each time the reason changes.
type reasons struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	waiting bool
}

// tellReasons starts the checks; stop ends them and may be called twice.
func (v Viewer) tellReasons(ctx context.Context, client *sdk.Client, id string) *reasons {
	r := &reasons{waiting: true}
	ctx, r.end = context.WithCancel(ctx)
	r.done.Go(func() {
		tick := time.NewTicker(reasonInterval)
		defer tick.Stop()
		for last := ""; ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !r.isWaiting() {
				continue
			}
			why, err := client.ExplainRun(ctx, v.App, id)
			if err != nil || why.GetWhy() == "" || why.GetWhy() == last { // the watching call reports errors
				continue
			}
			last = why.GetWhy()
			v.ClearStatus()
			v.Note("run %s is %s: %s", id, why.GetState(), last)
		}
	})
	return r
}

// state records the state of the run.
func (r *reasons) state(state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = state == "queued" || state == "dispatched" || state == "armed"
}

func (r *reasons) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

func (r *reasons) stop() {
	r.end()
	r.done.Wait()
}
