package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/drive"
	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// pace is the interval between two runs of an idle server. It is longer than a run takes,
// so that each run starts with the process asleep.
const pace = 10 * time.Millisecond

// latency measures single runs of an idle dev. The handler is a function of this process,
// which is a worker of the server: the clock of a guest has steps of a millisecond, and a
// call of a guest takes a microsecond longer.
func (b *bench) latency(ctx context.Context) (err error) {
	b.note("%d runs, one at a time", b.size.singles)
	d, err := startDev(ctx, b.binary, filepath.Join(b.dir, "latency"), false)
	if err != nil {
		return err
	}
	defer d.stopInto(&err)
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	if _, err := c.Apply(ctx, &sdk.Job{Name: "clock", Handler: &sdk.Handler{Name: "native:clock"}}); err != nil {
		return err
	}
	started := make(chan time.Time, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return worker.Run(ctx, worker.Options{Address: d.ready.URL, Token: d.ready.HostToken, Logger: slog.New(slog.DiscardHandler)},
			worker.Handle("clock", func(context.Context, *worker.Task) ([]byte, error) {
				started <- time.Now()
				return nil, nil
			}))
	})
	group.Go(func() error {
		defer stop()
		return b.singles(ctx, c, started)
	})
	return group.Wait()
}

func (b *bench) singles(ctx context.Context, c *sdk.Client, started <-chan time.Time) error {
	var dispatch, complete []time.Duration
	var ids []string
	tick := time.NewTicker(pace)
	defer tick.Stop()
	const warmUp = 50 // until the module is compiled and the connections are open
	for i := range warmUp + b.size.singles {
		<-tick.C
		s, err := single(ctx, c, started)
		if err != nil {
			return err
		}
		ids = append(ids, s.id)
		if i >= warmUp {
			dispatch, complete = append(dispatch, s.dispatch), append(complete, s.complete)
		}
	}
	if err := drive.CheckRuns(ctx, c, "clock", ids); err != nil {
		return err
	}
	b.report.Add("dispatch/idle/p50", milliseconds(quantile(dispatch, 0.50)), "ms", report.AtMost(2))
	b.report.Add("dispatch/idle/p99", milliseconds(quantile(dispatch, 0.99)), "ms", report.AtMost(10))
	b.report.Add("complete/idle/p50", milliseconds(quantile(complete, 0.50)), "ms", nil)
	b.report.Add("complete/idle/p99", milliseconds(quantile(complete, 0.99)), "ms", nil)
	return nil
}

// sample holds the durations of one run. Both begin before the producer's call: dispatch
// ends at the first instruction of the handler, and complete ends when the producer
// learns that the end of the run is durable.
type sample struct {
	id                 string
	dispatch, complete time.Duration
}

func single(ctx context.Context, c *sdk.Client, started <-chan time.Time) (sample, error) {
	begin := time.Now()
	answer, err := c.Trigger(ctx, sdk.Trigger{Job: "clock"})
	if err != nil {
		return sample{}, err
	}
	for _, err := range c.Watch(ctx, "", answer.RunID) { // ends with the run
		if err != nil {
			return sample{}, err
		}
	}
	end := time.Now()
	run, err := c.Run(ctx, "", answer.RunID)
	if err != nil {
		return sample{}, err
	}
	if run.GetState() != sdk.Succeeded {
		return sample{}, fmt.Errorf("run %s: %s: %s", answer.RunID, run.GetState(), run.GetError())
	}
	return sample{id: answer.RunID, dispatch: (<-started).Sub(begin), complete: end.Sub(begin)}, nil
}

// quantile returns the q-quantile: the smallest of the durations that at least a share q
// of them does not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
