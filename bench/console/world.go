package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// trivialModule does nothing and succeeds. The host gives each run a clean instance.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

// world has the objects in the addresses of pages.
type world struct {
	job, failing string // names of jobs
	run, failed  string // ids of runs
	host         string
	operation    string
}

// These jobs are executed by the benchmark's process.
const (
	failJob = "sync-ledger" // fails
	logJob  = "import-log"  // writes lines for the duration of its input
)

// stored returns the name of the i-th stored job.
func stored(i int) string { return "job-" + strconv.Itoa(i) }

// withWorker calls a function while this process executes the handlers that fail and that
// write lines.
func (b *bench) withWorker(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return worker.Run(ctx, worker.Options{Address: b.dev.URL, Token: b.dev.HostToken, Concurrency: 32, Logger: slog.New(slog.DiscardHandler)},
			worker.Handle("fail", fail), worker.Handle("log", b.write))
	})
	group.Go(func() error {
		defer stop()
		return do(ctx)
	})
	return group.Wait()
}

// fail fails with one of some kinds of errors.
func fail(_ context.Context, t *worker.Task) ([]byte, error) {
	r := rand.IntN(1000)
	return nil, worker.Permanent(fmt.Errorf("ledger %d: table %q has %d rows too many", r, "t"+strconv.Itoa(r%7), r))
}

// write writes numbered lines for the duration that is its input.
func (b *bench) write(ctx context.Context, t *worker.Task) ([]byte, error) {
	lasts, err := time.ParseDuration(string(t.Input))
	if err != nil {
		return nil, worker.Permanent(err)
	}
	end := time.After(lasts)
	tick := time.NewTicker(time.Second / time.Duration(b.size.lines))
	defer tick.Stop()
	for n := 0; ; n++ {
		t.Logf("line %d: batch of %d records written to the warehouse", n, 100+n%900)
		select {
		case <-tick.C:
		case <-end:
			return []byte(strconv.Itoa(n + 1)), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fill stores the jobs, and the runs that succeed. Only the server's own host is there.
func (b *bench) fill(ctx context.Context) error {
	c := b.dev.Client
	if _, _, err := c.PushModule(ctx, sdk.Upload{Name: "trivial", Version: "1", Code: trivialModule}); err != nil {
		return err
	}
	if _, err := c.SetAlias(ctx, "", "trivial@prod", sdk.AliasChange{Version: "1"}); err != nil {
		return err
	}
	if _, err := c.PutCalendar(ctx, &sdk.Calendar{Name: "holidays", Yearly: []string{"01-01", "12-25"}, Days: []string{"sun"}}); err != nil {
		return err
	}
	if err := b.storeJobs(ctx); err != nil {
		return err
	}
	if err := b.storeRest(ctx); err != nil {
		return err
	}
	return b.storeRuns(ctx, "store ended runs", b.size.runs, func(r *rand.Rand) string { return stored(r.IntN(b.size.jobs)) })
}

// finish stores the runs that fail, and finds the objects whose pages are measured.
func (b *bench) finish(ctx context.Context) error {
	if err := b.storeRuns(ctx, "store runs that failed", b.size.failures, func(*rand.Rand) string { return failJob }); err != nil {
		return err
	}
	return b.readWorld(ctx)
}

// teams own the jobs.
var teams = []string{"payments", "growth", "platform", "data", "support"}

func (b *bench) storeJobs(ctx context.Context) error {
	b.note("store jobs: %d", b.size.jobs)
	step := 24 * time.Hour / time.Duration(b.size.jobs)
	from := time.Now().Add(24 * time.Hour).UTC() // none fires while the benchmark runs
	var failed atomic.Pointer[error]
	for i := range b.size.jobs {
		team := teams[i%len(teams)]
		b.dev.ApplyAsync(ctx, &sdk.Job{
			Name: stored(i), Description: "Job " + strconv.Itoa(i) + " of " + team, Owner: team,
			Handler: &sdk.Handler{Module: "trivial@1"}, Input: `{"shard":` + strconv.Itoa(i) + `}`,
			Labels:   map[string]string{"team": team, "tier": strconv.Itoa(i % 3)},
			Schedule: &sdk.Schedule{Every: "24h", From: from.Add(time.Duration(i) * step).Format(time.RFC3339)},
		}).Then(func(_ sdk.Answer, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := b.dev.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	for _, job := range []*sdk.Job{
		{Name: failJob, Handler: &sdk.Handler{Name: "native:fail"}, Owner: "payments"},
		{Name: logJob, Handler: &sdk.Handler{Name: "native:log"}, Timeout: "2h", Overlap: &sdk.Overlap{Policy: "parallel"}},
	} {
		if _, err := b.dev.Apply(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// storeRest stores what the remaining pages show.
func (b *bench) storeRest(ctx context.Context) error {
	c := b.dev.Client
	var set sdk.ChangeSet
	set.Definitions = append(set.Definitions,
		&sdk.AlertChannel{Name: "ops", Slack: &sdk.AlertRobot{Url: "https://hooks.example.com/services/x"}},
		// The first notification comes after the end of the benchmark.
		&sdk.AlertRule{Name: "failures", Events: []string{"failed"}, GroupBy: []string{"job"}, Channels: []string{"ops"}, Wait: "4h"},
	)
	if _, err := c.ApplyChangeSet(ctx, set); err != nil {
		return err
	}
	for i := range 50 {
		if _, err := c.PutValue(ctx, "", "cursors", "shard-"+strconv.Itoa(i), []byte(strconv.Itoa(i)), 0); err != nil {
			return err
		}
	}
	for i := range 20 {
		if _, err := c.CreateToken(ctx, "program-"+strconv.Itoa(i), "viewer", sdk.AppScope(sdk.DefaultApp), "24h"); err != nil {
			return err
		}
	}
	return nil
}

const (
	producers = 64
	batch     = 100 // triggers of a producer that are not acknowledged yet
	patience  = time.Minute
	// ahead is the number of runs that are triggered while as many before them have not ended.
	// The server refuses runs of an app when 875 000 of them have not.
	ahead = 200_000
)

// storeRuns triggers n runs and waits until all of them have ended.
func (b *bench) storeRuns(ctx context.Context, what string, n int, job func(*rand.Rand) string) error {
	b.note("%s: %d", what, n)
	before, err := b.ended(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	for done := 0; done < n; {
		if time.Since(start) > 5*time.Second {
			start = time.Now()
			b.note("%s: %d of %d", what, done, n)
		}
		step := min(ahead, n-done)
		if err := b.triggerRuns(ctx, step, job); err != nil {
			return err
		}
		if err := b.awaitEnds(ctx, before+int64(done)); err != nil {
			return err
		}
		done += step
	}
	return b.awaitEnds(ctx, before+int64(n))
}

// triggerRuns triggers n runs and returns when all of them are acknowledged.
func (b *bench) triggerRuns(ctx context.Context, n int, job func(*rand.Rand) string) error {
	var left atomic.Int64
	left.Store(int64(n))
	group, triggering := errgroup.WithContext(ctx)
	for p := range producers {
		group.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(p), 7))
			pending := make([]*sdk.Pending, 0, batch)
			for {
				pending = pending[:0]
				for len(pending) < batch && left.Add(-1) >= 0 {
					pending = append(pending, b.dev.TriggerAsync(triggering, sdk.Trigger{Job: job(r)}))
				}
				if len(pending) == 0 {
					return nil
				}
				for _, p := range pending {
					if _, err := p.Wait(triggering); err != nil {
						return err
					}
				}
			}
		})
	}
	return group.Wait()
}

// ended returns the number of runs that have ended.
func (b *bench) ended(ctx context.Context) (int64, error) {
	o, err := b.dev.Overview(ctx, "")
	return o.GetSucceededTotal() + o.GetFailedTotal(), err
}

// awaitEnds returns when so many runs have ended.
func (b *bench) awaitEnds(ctx context.Context, want int64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last int64
	moved := time.Now()
	for {
		n, err := b.ended(ctx)
		if err != nil || n >= want {
			return err
		}
		if n != last {
			last, moved = n, time.Now()
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("%d runs do not end", want-n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readWorld finds the objects whose pages are measured.
func (b *bench) readWorld(ctx context.Context) error {
	w := world{job: stored(b.size.jobs / 2), failing: failJob}
	// The page of a job with runs is the usual one.
	if _, err := b.dev.TriggerAndWait(ctx, sdk.Trigger{Job: w.job}); err != nil {
		return err
	}
	for _, of := range []struct {
		job string
		id  *string
	}{{w.job, &w.run}, {w.failing, &w.failed}} {
		for run, err := range b.dev.Runs(ctx, sdk.RunQuery{Job: of.job, Limit: 1}) {
			if err != nil {
				return err
			}
			*of.id = run.GetId()
		}
		if *of.id == "" {
			return fmt.Errorf("the list has no run of the job %s", of.job)
		}
	}
	hosts, err := b.dev.Hosts(ctx)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if !strings.HasPrefix(h.GetId(), "worker") {
			w.host = h.GetId()
		}
	}
	if w.host == "" {
		return errors.New("the server lists no host")
	}
	operation, err := b.dev.StartOperation(ctx, &sdk.OperationRequest{Kind: "jobs.pause", Jobs: &sdk.JobSelection{Prefix: "job-1999"}, Note: "measured"})
	if err != nil {
		return err
	}
	w.operation = operation.GetId()
	b.world = w
	return nil
}
