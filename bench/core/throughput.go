package main

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// trivialModule does nothing, successfully.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

const producers = 64

// throughput measures runs from end to end: triggered by 64 producers, run, and
// durably ended. Producers, server and host share the machine's processors.
func (b *bench) throughput(ctx context.Context) (err error) {
	d, err := startDev(ctx, b.binary, filepath.Join(b.dir, "throughput"), false)
	if err != nil {
		return err
	}
	defer d.stopInto(&err)
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	for _, row := range []struct {
		name, job string
		pending   int // triggers of one producer that are not acknowledged
		goal      *report.Goal
	}{
		{"throughput/64", "single", 1, report.AtLeast(20_000)},
		{"throughput/batch100", "batch", 100, nil},
	} {
		b.note("%s: %d runs", row.name, b.size.runs)
		warm := row.job + "-warm"
		if err := putJob(ctx, c, warm, trivialModule); err != nil {
			return err
		}
		if err := putJob(ctx, c, row.job, trivialModule); err != nil {
			return err
		}
		if _, err := load(ctx, c, warm, b.size.warmUp, row.pending); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		took, err := load(ctx, c, row.job, b.size.runs, row.pending)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		b.report.Add(row.name, float64(b.size.runs)/took.Seconds(), "runs/s", row.goal)
	}
	return nil
}

// load triggers n runs of a job from all producers and returns how long it took
// until the last one had ended. It fails unless each ended exactly once.
func load(ctx context.Context, c *sdk.Client, job string, n, pending int) (time.Duration, error) {
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
	return took, checkRuns(ctx, c, job, slices.Concat(ids[:]...))
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
	const patience = 30 * time.Second // without any run ending
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

// putJob makes a job that only triggers start. Every job has a module version of
// its own name.
func putJob(ctx context.Context, c *sdk.Client, job string, code []byte) error {
	if _, _, err := c.PushModule(ctx, sdk.Upload{Name: job, Version: "1", Code: code}); err != nil {
		return err
	}
	_, err := c.Apply(ctx, &sdk.Job{Name: job, Handler: &sdk.Handler{Module: job + "@1"}})
	return err
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
