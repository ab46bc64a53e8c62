package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// trivialModule does nothing, successfully.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

const producers = 64

// singles triggers runs one at a time, each when the one before has ended, and
// returns how long each waited for its acknowledgement: for one append.
func singles(ctx context.Context, c *sdk.Client, n int) ([]time.Duration, error) {
	const job, warmUp = "single", 30
	if err := putJob(ctx, c, job); err != nil {
		return nil, err
	}
	var took []time.Duration
	var ids []string
	for i := range warmUp + n {
		begin := time.Now()
		answer, err := c.Trigger(ctx, sdk.Trigger{Job: job})
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			took = append(took, time.Since(begin))
		}
		ids = append(ids, answer.RunID)
		for _, err := range c.Watch(ctx, "", answer.RunID) { // ends with the run
			if err != nil {
				return nil, err
			}
		}
	}
	return took, checkRuns(ctx, c, job, ids)
}

// putJob makes a job that only triggers start.
func putJob(ctx context.Context, c *sdk.Client, job string) error {
	_, err := c.Apply(ctx, &sdk.Job{Name: job, Handler: &sdk.Handler{Module: "trivial@1"}})
	return err
}

// load makes a job, triggers n runs of it from all producers, and returns how
// long it took until the last one had ended. It fails unless each ended exactly once.
func load(ctx context.Context, c *sdk.Client, job string, n, pending int) (time.Duration, error) {
	if err := putJob(ctx, c, job); err != nil {
		return 0, err
	}
	before, err := c.Overview(ctx, "")
	if err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	var ids [producers][]string
	begin := time.Now()
	group, triggering := errgroup.WithContext(ctx)
	for p := range producers {
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
	return time.Since(begin), checkRuns(ctx, c, job, slices.Concat(ids[:]...))
}

// produce is one producer: it triggers runs while some are left, at most pending
// at once, and waits for their acknowledgements before it goes on.
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

// awaitEnds asks for the counters, which cost the server nothing, until so many
// runs have ended.
func awaitEnds(ctx context.Context, c *sdk.Client, want int64) error {
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

// checkRuns compares the runs of a job with those that were acknowledged: each
// is there once, has succeeded, and there is no other.
func checkRuns(ctx context.Context, c *sdk.Client, job string, acknowledged []string) error {
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
