package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// singly measures single runs of an idle server, one at a time. A function of this
// process, which is a worker of the server, reports when a handler starts: the clock of a
// guest has steps of a millisecond, and a call of a guest takes a microsecond longer (see
// ./runtime). The duration of whole runs is measured with a guest.
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

// awake returns a pause as in the prototype from which the goals come. The machine does
// not go to sleep in it. dozing returns a longer pause, after which processors, the disk
// and the layers below a virtual machine must wake up at each step of a run.
func awake() time.Duration { return time.Duration(200+rand.IntN(800)) * time.Microsecond }

func dozing() time.Duration { return 10 * time.Millisecond }

func (b *bench) singles(ctx context.Context, d *dev, started <-chan time.Time) error {
	for _, row := range []struct {
		name  string
		runs  int
		pause func() time.Duration
	}{{"idle/", b.size.singles, awake}, {"idle/asleep/", b.size.singles / 4, dozing}} {
		starts, ends, err := d.latencies(ctx, row.runs, row.pause, started)
		if err != nil {
			return err
		}
		b.report.Add(row.name+"start/p50", quantile(starts, 0.5), "ms", report.AtMost(0.5))
		b.report.Add(row.name+"start/p99", quantile(starts, 0.99), "ms", report.AtMost(2))
		b.report.Add(row.name+"end/p50", quantile(ends, 0.5), "ms", report.AtMost(0.8))
		b.report.Add(row.name+"end/p99", quantile(ends, 0.99), "ms", nil)
	}
	return b.syncs(ctx)
}

// latencies measures the given number of runs of each kind, and returns the latencies
// sorted.
func (d *dev) latencies(ctx context.Context, runs int, pause func() time.Duration, started <-chan time.Time) (starts, ends []time.Duration, err error) {
	warmUp := min(runs, 50) // until the module is compiled and the connections are open
	for i := range warmUp + runs {
		time.Sleep(pause())
		begin := time.Now()
		if _, err := d.Trigger(ctx, sdk.Trigger{Job: "native"}); err != nil {
			return nil, nil, err
		}
		var start time.Duration
		select {
		case at := <-started:
			start = at.Sub(begin)
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		time.Sleep(pause())
		end, err := d.single(ctx)
		if err != nil {
			return nil, nil, err
		}
		if i >= warmUp {
			starts, ends = append(starts, start), append(ends, end)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	return starts, ends, nil
}

// syncs measures the share of the disk in such a latency: writing a page and syncing it,
// with the same two pauses.
func (b *bench) syncs(ctx context.Context) error {
	f, err := os.CreateTemp(b.dir, "sync-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the folder is removed as well
	defer f.Close()           //nolint:errcheck // nothing of it is needed
	page := make([]byte, 4<<10)
	pages := b.size.singles / 4
	for range 2 * pages { // space that was written before, as in the journal
		if _, err := f.Write(page); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	at := int64(0)
	for _, row := range []struct {
		name  string
		pause func() time.Duration
	}{{"idle/sync/p50", awake}, {"idle/asleep/sync/p50", dozing}} {
		var took []time.Duration
		for range pages {
			if err := ctx.Err(); err != nil {
				return err
			}
			time.Sleep(row.pause())
			begin := time.Now()
			if _, err := f.WriteAt(page, at); err != nil {
				return err
			}
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				return err
			}
			took, at = append(took, time.Since(begin)), at+int64(len(page))
		}
		slices.Sort(took)
		b.report.Add(row.name, quantile(took, 0.5), "ms", nil)
	}
	return nil
}

// single returns the duration of one run, from before the producer's call until the
// producer learns that its end is durable.
func (d *dev) single(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	run, err := d.TriggerAndWait(ctx, sdk.Trigger{Job: "guest"})
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	if run.GetState() != sdk.Succeeded {
		return 0, fmt.Errorf("run %s: %s: %s", run.GetId(), run.GetState(), run.GetError())
	}
	return took, nil
}
