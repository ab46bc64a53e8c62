package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// calm is one hour. Jobs that a part only stores fire after the part has ended.
const calm = time.Hour

// stored returns the name of the i-th stored job.
func stored(i int) string { return "job-" + strconv.Itoa(i) }

// apply applies n jobs through the one stream of the client, and returns the time until
// all of them were durable.
func (b *bench) apply(ctx context.Context, d *dev, what string, n int, job func(i int) *sdk.Job) (time.Duration, error) {
	var answered atomic.Int64
	defer b.progress(what, n, &answered)()
	var failed atomic.Pointer[error]
	begin := time.Now()
	for i := range n {
		d.ApplyAsync(ctx, job(i)).Then(func(_ sdk.Answer, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			answered.Add(1)
		})
		if failed.Load() != nil {
			break
		}
	}
	err := d.Flush(ctx)
	took := time.Since(begin)
	if first := failed.Load(); first != nil {
		err = *first
	}
	return took, err
}

// store applies n jobs whose schedules spread over the day that begins at from.
func (b *bench) store(ctx context.Context, d *dev, n int, from time.Time, input string) (time.Duration, error) {
	step := 24 * time.Hour / time.Duration(n)
	took, err := b.apply(ctx, d, "apply jobs", n, func(i int) *sdk.Job {
		return &sdk.Job{
			Name: stored(i), Handler: &sdk.Handler{Module: trivial}, Input: input,
			Schedule: &sdk.Schedule{Every: "24h", From: from.Add(time.Duration(i) * step).Format(time.RFC3339)},
		}
	})
	if err != nil {
		return 0, err
	}
	o, err := d.Overview(ctx, "")
	if err == nil && o.GetJobs() != int64(n) {
		err = fmt.Errorf("%d jobs were acknowledged and %d are there", n, o.GetJobs())
	}
	return took, err
}

// server measures creating, updating and holding many jobs, and the restart with them
// after a crash.
func (b *bench) server(ctx context.Context) (err error) {
	n := b.size.jobs
	d, err := b.start(ctx, "server")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	if err := d.push(ctx, "", "trivial", trivialModule); err != nil {
		return err
	}
	from := time.Now().Add(calm).UTC()
	for _, row := range []struct{ name, input string }{{"server/create", "one"}, {"server/update", "two"}} {
		took, err := b.store(ctx, d, n, from, row.input)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		b.report.Add(row.name, float64(n)/took.Seconds(), "jobs/s", report.AtLeast(50_000))
		b.report.Note(fmt.Sprintf("%d jobs", n))
	}

	if err := b.memory(ctx, d, "server/rss"); err != nil {
		return err
	}
	return b.restart(ctx, d)
}

// memory measures the resident memory of an idle server: first shortly after the last
// work, while memory is being returned to the system, and then at rest.
func (b *bench) memory(ctx context.Context, d *dev, row string) error {
	for _, at := range []struct {
		row  string
		wait time.Duration
	}{{row, b.size.settle}, {row + "/rest", b.size.rest}} {
		b.note("leave the server alone for %v", at.wait)
		if err := await(ctx, time.After(at.wait)); err != nil {
			return err
		}
		bytes, err := d.resident()
		if err != nil {
			return err
		}
		b.report.Add(at.row, float64(bytes)/(1<<20), "MiB", b.atFull(report.AtMost(400)))
		b.report.Note(fmt.Sprintf("with its host, %d schedules", b.size.jobs))
	}
	return nil
}

// restart kills the server before a job is due, and measures how long a new server takes
// until that job has run.
func (b *bench) restart(ctx context.Context, d *dev) (err error) {
	b.note("kill the server and start it again")
	due := time.Now().Add(250 * time.Millisecond).UTC()
	if _, err := d.Apply(ctx, &sdk.Job{
		Name: "first", Handler: &sdk.Handler{Module: trivial}, Schedule: &sdk.Schedule{At: due.Format(time.RFC3339Nano)},
	}); err != nil {
		return err
	}
	if err := d.end(syscall.SIGKILL); err != nil {
		return err
	}
	begin := time.Now()
	if d, err = b.start(ctx, "server"); err != nil {
		return err
	}
	defer d.stop(&err)
	if err := poll(ctx, 5*time.Millisecond, func() (bool, error) {
		for run, err := range d.Runs(ctx, sdk.RunQuery{Job: "first"}) {
			return run.GetState() == sdk.Succeeded, err
		}
		if time.Since(begin) > patience {
			return false, fmt.Errorf("a job that was due at the restart has not run for %v", patience)
		}
		return false, nil
	}); err != nil {
		return err
	}
	took := time.Since(begin)
	o, err := d.Overview(ctx, "")
	if err != nil {
		return err
	}
	if want := int64(b.size.jobs) + 1; o.GetJobs() != want {
		return fmt.Errorf("%d of %d acknowledged jobs are there after the restart", o.GetJobs(), want)
	}
	b.report.Add("server/restart", took.Seconds(), "s", b.atFull(report.AtMost(5)))
	b.report.Note(fmt.Sprintf("%d schedules, ready after %.2g s", b.size.jobs, d.took.Seconds()))
	return b.memory(ctx, d, "server/rss/restarted")
}
