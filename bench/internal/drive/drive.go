// Package drive triggers runs on a server through one client, and checks every result
// against the list of runs.
package drive

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// Producers is the number of goroutines that trigger runs.
const Producers = 64

// Load triggers n runs of a job from all producers, each with at most pending
// unacknowledged triggers. It returns the time until the last run had ended, and an error
// unless each run succeeded exactly once.
func Load(ctx context.Context, c *sdk.Client, job string, n, pending int) (time.Duration, error) {
	before, err := c.Overview(ctx, "")
	if err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	var ids [Producers][]string
	begin := time.Now()
	group, triggering := errgroup.WithContext(ctx)
	for p := range Producers {
		group.Go(func() (err error) {
			ids[p], err = produce(triggering, c, job, &left, pending)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := awaitEnds(ctx, c, before.GetSucceededTotal()+before.GetFailedTotal()+int64(n)); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	after, err := c.Overview(ctx, "")
	if err != nil {
		return 0, err
	}
	if failed := after.GetFailedTotal() - before.GetFailedTotal(); failed != 0 {
		return 0, fmt.Errorf("%d runs did not succeed", failed)
	}
	if ended := after.GetSucceededTotal() - before.GetSucceededTotal(); ended != int64(n) {
		return 0, fmt.Errorf("%d runs were triggered and %d have ended", n, ended)
	}
	return took, CheckRuns(ctx, c, job, slices.Concat(ids[:]...))
}

// produce is one producer. While runs are left, it triggers up to pending of them and
// then waits for all their acknowledgements.
func produce(ctx context.Context, c *sdk.Client, job string, left *atomic.Int64, pending int) ([]string, error) {
	var ids []string
	batch := make([]*sdk.Pending, 0, pending)
	for {
		batch = batch[:0]
		for len(batch) < pending && left.Add(-1) >= 0 {
			batch = append(batch, c.TriggerAsync(ctx, sdk.Trigger{Job: job}))
		}
		if len(batch) == 0 {
			return ids, nil
		}
		for _, p := range batch {
			answer, err := p.Wait(ctx)
			if err != nil {
				return nil, err
			}
			ids = append(ids, answer.RunID)
		}
	}
}

// awaitEnds polls the counters, which is cheap for the server, until want runs have
// ended.
func awaitEnds(ctx context.Context, c *sdk.Client, want int64) error {
	const patience = 30 * time.Second // the longest time without an end of a run
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var last int64
	moved := time.Now()
	for {
		o, err := c.Overview(ctx, "")
		if err != nil {
			return err
		}
		ended := o.GetSucceededTotal() + o.GetFailedTotal()
		if ended >= want {
			return nil
		}
		if ended != last {
			last, moved = ended, time.Now()
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("%d of the acknowledged runs do not end: %d queued, %d running", want-ended, o.GetQueued(), o.GetRunning())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CheckRuns compares the runs of a job with the acknowledged IDs: each must be listed
// once and have succeeded, and no other run may be listed.
func CheckRuns(ctx context.Context, c *sdk.Client, job string, acknowledged []string) error {
	seen := make(map[string]int, len(acknowledged))
	for _, id := range acknowledged {
		if _, twice := seen[id]; twice {
			return fmt.Errorf("run %s was acknowledged to two triggers", id)
		}
		seen[id] = 0
	}
	for run, err := range c.Runs(ctx, sdk.RunQuery{Job: job}) {
		if err != nil {
			return err
		}
		n, known := seen[run.GetId()]
		switch {
		case !known:
			return fmt.Errorf("run %s of job %s was never acknowledged", run.GetId(), job)
		case n > 0:
			return fmt.Errorf("run %s is in the list twice", run.GetId())
		case run.GetState() != sdk.Succeeded:
			return fmt.Errorf("run %s is %s: %s", run.GetId(), run.GetState(), run.GetError())
		}
		seen[run.GetId()]++
	}
	for id, n := range seen {
		if n == 0 {
			return fmt.Errorf("run %s was acknowledged and is not in the list", id)
		}
	}
	return nil
}
