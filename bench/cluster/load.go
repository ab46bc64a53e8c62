package main

import (
	"context"
	_ "embed"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/drive"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// trivialModule does nothing and succeeds.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

// singles triggers n runs one at a time, each after the end of the previous one. It
// returns how long each trigger waited for its acknowledgement, which takes one append.
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
	return took, drive.CheckRuns(ctx, c, job, ids)
}

// putJob applies a job without a schedule.
func putJob(ctx context.Context, c *sdk.Client, job string) error {
	_, err := c.Apply(ctx, &sdk.Job{Name: job, Handler: &sdk.Handler{Module: "trivial@1"}})
	return err
}

// load applies a job and triggers n runs of it with [drive.Load].
func load(ctx context.Context, c *sdk.Client, job string, n, pending int) (time.Duration, error) {
	if err := putJob(ctx, c, job); err != nil {
		return 0, err
	}
	return drive.Load(ctx, c, job, n, pending)
}
