package main

import (
	"context"
	_ "embed" // the modules
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// computeModule never ends and makes no calls. sleepModule sleeps for an hour. The
// timeout of the job stops both, so it determines how long a run takes.
var (
	//go:embed testdata/compute.wasm
	computeModule []byte
	//go:embed testdata/sleep.wasm
	sleepModule []byte
)

// pieces are the modules of the floods.
var pieces = map[string][]byte{"compute": computeModule, "sleep": sleepModule}

const (
	fairSlots  = "4"
	floodRuns  = 60
	tickEvery  = "200ms"
	fleetRuns  = 1000
	fleetApps  = 6
	fleetTick  = time.Second
	fleetPort  = "17800"
	goalFlood  = 50   // ms
	goalOthers = 1000 // ms
)

// fair measures the start delays of runs of one app beside a flood of runs of another
// app, and the effect of priorities and deadlines behind a flood.
func (b *bench) fair(ctx context.Context) error {
	for _, kind := range []string{"compute", "sleep"} {
		for _, known := range []bool{false, true} {
			if err := b.flood(ctx, kind, known); err != nil {
				return err
			}
		}
	}
	for _, step := range []func(context.Context) error{b.priority, b.startDeadline, b.fleet} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// crowded starts a dev with four slots and pushes the modules of the floods to the
// default app.
func (b *bench) crowded(ctx context.Context, name string) (*dev, error) {
	d, err := b.start(ctx, name, "--slots", fairSlots)
	if err != nil {
		return nil, err
	}
	for piece, code := range pieces {
		err = errors.Join(err, d.push(ctx, "", piece, code))
	}
	err = errors.Join(err, d.push(ctx, "other", "trivial", trivialModule))
	if err != nil {
		return nil, errors.Join(err, d.end(syscall.SIGKILL))
	}
	return d, nil
}

// flood measures 60 long runs of one app on a host with 4 slots, beside a job of another
// app that fires five times a second.
func (b *bench) flood(ctx context.Context, kind string, known bool) (err error) {
	name := "fair/flood/" + kind + "/unknown"
	if known {
		name = "fair/flood/" + kind + "/known"
	}
	b.note("%s: %d runs of %v", name, floodRuns, b.size.flood)
	d, err := b.crowded(ctx, "flood-"+kind+"-"+strconv.FormatBool(known))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end(syscall.SIGKILL)) }()
	if _, err := d.Apply(ctx, &sdk.Job{Name: "flood", Handler: &sdk.Handler{Module: kind + "@1"}, Timeout: b.size.flood.String()}); err != nil {
		return err
	}
	if _, err := d.Apply(ctx, &sdk.Job{App: "other", Name: "tick", Handler: &sdk.Handler{Module: trivial}, Schedule: &sdk.Schedule{Every: tickEvery}}); err != nil {
		return err
	}
	if known {
		if err := d.trigger(ctx, "flood", 1); err != nil {
			return err
		}
		if err := d.awaitEnds(ctx, "", 1); err != nil {
			return err
		}
	}
	if err := await(ctx, time.After(time.Second)); err != nil { // until the tick job runs
		return err
	}
	begin := time.Now()
	if err := d.trigger(ctx, "flood", floodRuns); err != nil {
		return err
	}
	if err := await(ctx, time.After(b.size.watch)); err != nil {
		return err
	}
	lags, err := d.begun(ctx, "other", begin)
	if err != nil {
		return err
	}
	b.report.Add(name, float64(lags[len(lags)*99/100])/1e6, "ms", report.AtMost(goalFlood))
	b.report.Note(fmt.Sprintf("%d runs beside it", len(lags)))
	return nil
}

// trigger triggers a job of the default app n times.
func (d *dev) trigger(ctx context.Context, job string, n int) error {
	for range n {
		if _, err := d.Trigger(ctx, sdk.Trigger{Job: job}); err != nil {
			return err
		}
	}
	return nil
}

// begun returns the start delays of the runs of an app that were planned since a time,
// sorted. A run that has not started counts as if it started now.
func (d *dev) begun(ctx context.Context, app string, since time.Time) ([]time.Duration, error) {
	return begun(ctx, d.Client, app, since)
}

func begun(ctx context.Context, c *sdk.Client, app string, since time.Time) (lags []time.Duration, err error) {
	now := time.Now()
	for run, err := range c.Runs(ctx, sdk.RunQuery{App: app}) {
		if err != nil {
			return nil, err
		}
		planned := run.GetPlannedAt().AsTime()
		switch {
		case planned.Before(since) || planned.After(now):
		case run.GetStartedAt() == nil:
			lags = append(lags, now.Sub(planned))
		default:
			lags = append(lags, lag(run))
		}
	}
	if len(lags) == 0 {
		return nil, fmt.Errorf("there is no run of app %q that was planned since %v", app, since)
	}
	slices.Sort(lags)
	return lags, nil
}

// priority measures a run of priority 10 behind 40 runs of 700 ms and priority -5.
func (b *bench) priority(ctx context.Context) (err error) {
	b.note("fair/priority")
	d, err := b.crowded(ctx, "priority")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end(syscall.SIGKILL)) }()
	if _, err := d.Apply(ctx, &sdk.Job{Name: "low", Handler: &sdk.Handler{Module: "compute@1"}, Timeout: "700ms", Priority: -5}); err != nil {
		return err
	}
	if _, err := d.Apply(ctx, &sdk.Job{Name: "high", Handler: &sdk.Handler{Module: "compute@1"}, Timeout: "10ms", Priority: 10}); err != nil {
		return err
	}
	if err := d.trigger(ctx, "low", 40); err != nil {
		return err
	}
	run, err := d.Trigger(ctx, sdk.Trigger{Job: "high"})
	if err != nil {
		return err
	}
	high, err := d.Wait(ctx, "", run.RunID)
	if err != nil {
		return err
	}
	b.report.Add("fair/priority", float64(lag(high))/1e6, "ms", report.AtMost(800))
	b.report.Note("behind 40 runs of 700 ms")
	return nil
}

// startDeadline measures 40 runs with a deadline of one second, of which 4 slots can
// start ten in that time.
func (b *bench) startDeadline(ctx context.Context) (err error) {
	b.note("fair/deadline")
	d, err := b.crowded(ctx, "deadline")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end(syscall.SIGKILL)) }()
	if _, err := d.Apply(ctx, &sdk.Job{Name: "urgent", Handler: &sdk.Handler{Module: "compute@1"}, Timeout: "400ms", Deadline: "1s"}); err != nil {
		return err
	}
	if err := d.trigger(ctx, "urgent", 40); err != nil {
		return err
	}
	if err := d.awaitEnds(ctx, "", 40); err != nil {
		return err
	}
	var worst time.Duration
	missed := 0
	for run, err := range d.Runs(ctx, sdk.RunQuery{}) {
		if err != nil {
			return err
		}
		if run.GetState() == "missed" {
			missed++
			continue
		}
		worst = max(worst, lag(run))
	}
	b.report.Add("fair/deadline", float64(worst)/1e6, "ms", report.AtMost(1000))
	b.report.Note(fmt.Sprintf("the latest start of %d, %d were missed", 40-missed, missed))
	return nil
}

// fleet measures 1000 triggers of long runs on the three hosts of a cluster, beside six
// other apps.
func (b *bench) fleet(ctx context.Context) (err error) {
	b.note("fair/fleet: %d runs of %v on three hosts of a cluster", fleetRuns, b.size.fleet)
	if err := b.build(ctx); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.binary, "cluster", "up", "--servers", "3", "--hosts", "3", "--slots", fairSlots, "--port", fleetPort,
		"--log-level", "error", "--data", filepath.Join(b.dir, "fleet"), "-o", "json")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { // handlers that still run are stopped or killed with the cluster
		err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // ended by a signal
	}()
	var ready struct{ URL, Token string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		return fmt.Errorf("the cluster did not become ready: %w", err)
	}
	c, err := sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // every answer has come
	if err := poll(ctx, 10*time.Millisecond, func() (bool, error) {
		hosts, err := c.Hosts(ctx)
		return len(hosts) == 3, err
	}); err != nil {
		return err
	}
	put := func(app string, code []byte, job *sdk.Job) error {
		if _, _, err := c.PushModule(ctx, sdk.Upload{App: app, Name: "piece", Version: "1", Code: code}); err != nil {
			return err
		}
		job.App, job.Handler = app, &sdk.Handler{Module: "piece@1"}
		_, err := c.Apply(ctx, job)
		return err
	}
	if err := put("flood", computeModule, &sdk.Job{Name: "flood", Timeout: b.size.fleet.String()}); err != nil {
		return err
	}
	for i := range fleetApps {
		if err := put("other-"+strconv.Itoa(i), trivialModule, &sdk.Job{Name: "tick", Schedule: &sdk.Schedule{Every: fleetTick.String()}}); err != nil {
			return err
		}
	}
	if err := await(ctx, time.After(5*time.Second)); err != nil { // until modules are compiled and hosts are assigned
		return err
	}
	begin := time.Now()
	group, every := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for range fleetRuns {
		group.Go(func() error {
			_, err := c.Trigger(every, sdk.Trigger{App: "flood", Job: "flood"})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := await(ctx, time.After(max(b.size.fleet, 2*fleetTick))); err != nil { // until each of the other jobs has fired
		return err
	}
	var worst time.Duration
	n := 0
	for i := range fleetApps {
		lags, err := begun(ctx, c, "other-"+strconv.Itoa(i), begin)
		if err != nil {
			return err
		}
		worst, n = max(worst, lags[len(lags)-1]), n+len(lags)
	}
	b.report.Add("fair/fleet", float64(worst)/1e6, "ms", report.AtMost(goalOthers))
	b.report.Note(fmt.Sprintf("the latest start of %d runs of %d apps", n, fleetApps))
	return nil
}
