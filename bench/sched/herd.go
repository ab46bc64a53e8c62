package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// neighbours is the number of jobs of the other app, each due every second.
const neighbours = 20

// herd measures very many jobs that are due in the same second, and the jobs of another
// app at that time.
func (b *bench) herd(ctx context.Context) (err error) {
	d, err := b.start(ctx, "herd")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	for _, app := range []string{"", "other"} {
		if err := d.push(ctx, app, "trivial", trivialModule); err != nil {
			return err
		}
	}
	for i := range neighbours {
		if _, err := d.Apply(ctx, &sdk.Job{
			App: "other", Name: "second-" + strconv.Itoa(i), Handler: &sdk.Handler{Module: trivial}, Schedule: &sdk.Schedule{Every: "1s"},
		}); err != nil {
			return err
		}
	}
	n := b.size.herd
	// The server arms runs up to two seconds ahead.
	due := time.Now().Add(time.Duration(n)*time.Second/10_000 + 4*time.Second).Truncate(time.Second)
	at := due.UTC().Format(time.RFC3339)
	if _, err := b.apply(ctx, d, "apply jobs of one second", n, func(i int) *sdk.Job {
		return &sdk.Job{Name: "herd-" + strconv.Itoa(i), Handler: &sdk.Handler{Module: trivial}, Schedule: &sdk.Schedule{At: at}}
	}); err != nil {
		return err
	}
	if time.Until(due) < 2*time.Second {
		return errors.New("the jobs of the herd could not be stored before they were due: the machine is too busy, try again")
	}
	b.note("wait until the herd has run")
	if err := await(ctx, time.After(time.Until(due))); err != nil {
		return err
	}
	if err := d.awaitEnds(ctx, "", int64(n)); err != nil {
		return err
	}
	return b.count(ctx, d, n, due)
}

// count reads all runs of the herd, and the runs of the other app in the same time.
func (b *bench) count(ctx context.Context, d *dev, n int, due time.Time) error {
	b.note("count the runs")
	seen := make([]int, n)
	var lags []time.Duration
	var end time.Time
	for run, err := range d.Runs(ctx, sdk.RunQuery{}) {
		if err != nil {
			return err
		}
		i, err := strconv.Atoi(strings.TrimPrefix(run.GetJob(), "herd-"))
		if err != nil || i < 0 || i >= n {
			return fmt.Errorf("there is a run of job %q", run.GetJob())
		}
		if run.GetState() != sdk.Succeeded {
			return fmt.Errorf("run %s is %s: %s", run.GetId(), run.GetState(), run.GetError())
		}
		seen[i]++
		lags = append(lags, lag(run))
		if at := run.GetFinishedAt().AsTime(); at.After(end) {
			end = at
		}
	}
	lost, doubled := 0, 0
	for _, times := range seen {
		switch {
		case times == 0:
			lost++
		case times > 1:
			doubled += times - 1
		}
	}
	over := end
	if second := due.Add(time.Second); second.After(over) { // each of the neighbours is due once in it
		over = second
	}
	others, err := d.beside(ctx, due, over)
	if err != nil {
		return err
	}
	if len(lags) == 0 || len(others) == 0 {
		return fmt.Errorf("%d runs of the herd and %d beside it: too few to measure", len(lags), len(others))
	}
	slices.Sort(lags)
	slices.Sort(others)
	for _, row := range []struct {
		name, unit string
		value      float64
		goal       *report.Goal
	}{
		{"lost", "jobs", float64(lost), report.AtMost(0)},
		{"doubled", "runs", float64(doubled), report.AtMost(0)},
		{"p50", "ms", quantile(lags, 0.5), nil},
		{"p99", "ms", quantile(lags, 0.99), b.atFull(report.AtMost(1000))},
		{"rate", "runs/s", float64(n) / max(end.Sub(due), time.Millisecond).Seconds(), nil},
		{"other/p99", "ms", quantile(others, 0.99), report.AtMost(50)},
	} {
		b.report.Add("herd/100k/"+row.name, row.value, row.unit, row.goal)
		b.report.Note(fmt.Sprintf("%d jobs", n))
	}
	b.report.Note(fmt.Sprintf("%d runs of the other app beside %d jobs", len(others), n))
	return nil
}

// beside returns the lags of the runs of the other app that are planned between two
// times, once all of them have started.
func (d *dev) beside(ctx context.Context, from, until time.Time) (lags []time.Duration, err error) {
	if err := await(ctx, time.After(time.Until(until))); err != nil {
		return nil, err
	}
	err = poll(ctx, 50*time.Millisecond, func() (bool, error) {
		lags = lags[:0]
		for run, err := range d.Runs(ctx, sdk.RunQuery{App: "other"}) {
			if err != nil {
				return false, err
			}
			switch at := run.GetPlannedAt().AsTime(); {
			case at.Before(from): // the list is newest first
				return true, nil
			case at.After(until):
			case run.GetStartedAt() == nil:
				return false, nil
			default:
				lags = append(lags, lag(run))
			}
		}
		return true, nil
	})
	return lags, err
}

// lag is the time from the planned time of a run to the start of its handler, with a
// resolution of a millisecond. Server and host have the same clock here.
func lag(run *sdk.Run) time.Duration {
	started := run.GetStartedAt()
	if a := run.GetAttempts(); len(a) > 0 && a[0].GetStartedAt() != nil {
		started = a[0].GetStartedAt()
	}
	return started.AsTime().Sub(run.GetPlannedAt().AsTime())
}
