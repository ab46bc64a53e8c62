package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// singly measures single runs of an idle server, one each 10 ms. When a handler
// starts is told by a function of this process, which is a worker of the server:
// what a guest is shown of the clock has steps of a millisecond, and a call of a
// guest is a microsecond more (see ./runtime). How long a whole run takes is
// measured with a guest.
func (b *bench) singly(ctx context.Context) (err error) {
	b.note("%d runs, one at a time", b.size.singles)
	d, err := b.start(ctx, "idle")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	if err := d.push(ctx, "", "trivial", trivialModule); err != nil {
		return err
	}
	for _, job := range []*sdk.Job{
		{Name: "native", Handler: &sdk.Handler{Name: "native:bench"}},
		{Name: "guest", Handler: &sdk.Handler{Module: trivial}},
	} {
		if _, err := d.Apply(ctx, job); err != nil {
			return err
		}
	}
	started := make(chan time.Time, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return worker.Run(ctx, worker.Options{Address: d.url, Token: d.hostToken, Logger: slog.New(slog.DiscardHandler)},
			worker.Handle("bench", func(context.Context, *worker.Task) ([]byte, error) {
				started <- time.Now()
				return nil, nil
			}))
	})
	group.Go(func() error {
		defer stop()
		return b.singles(ctx, d, started)
	})
	return group.Wait()
}

func (b *bench) singles(ctx context.Context, d *dev, started <-chan time.Time) error {
	var starts, ends []time.Duration
	pace := time.NewTicker(10 * time.Millisecond) // longer than a run, so that each finds everything asleep
	defer pace.Stop()
	const warmUp = 50 // the module is compiled, the connections are open
	for i := range warmUp + b.size.singles {
		if err := await(ctx, pace.C); err != nil {
			return err
		}
		begin := time.Now()
		if _, err := d.Trigger(ctx, sdk.Trigger{Job: "native"}); err != nil {
			return err
		}
		var start time.Duration
		select {
		case at := <-started:
			start = at.Sub(begin)
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := await(ctx, pace.C); err != nil {
			return err
		}
		end, err := d.single(ctx)
		if err != nil {
			return err
		}
		if i >= warmUp {
			starts, ends = append(starts, start), append(ends, end)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	b.report.Add("idle/start/p50", quantile(starts, 0.5), "ms", report.AtMost(0.5))
	b.report.Add("idle/start/p99", quantile(starts, 0.99), "ms", report.AtMost(2))
	b.report.Add("idle/end/p50", quantile(ends, 0.5), "ms", report.AtMost(0.8))
	b.report.Add("idle/end/p99", quantile(ends, 0.99), "ms", nil)
	return nil
}

// single returns what one run took from before the producer's call until the
// producer was told that its end is durable.
func (d *dev) single(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	answer, err := d.Trigger(ctx, sdk.Trigger{Job: "guest"})
	if err != nil {
		return 0, err
	}
	for _, err := range d.Watch(ctx, "", answer.RunID) { // ends with the run
		if err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	run, err := d.Run(ctx, "", answer.RunID)
	if err != nil {
		return 0, err
	}
	if run.GetState() != sdk.Succeeded {
		return 0, fmt.Errorf("run %s: %s: %s", answer.RunID, run.GetState(), run.GetError())
	}
	return took, nil
}
