package sched_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/store"
)

// simulate runs f in a world with a server, one host and the module m@1.
func simulate(t *testing.T, f func(t *testing.T, w *world, c *client)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.addHost("h1", 4)
		c := w.client()
		c.push()
		f(t, w, c)
		c.close()
		w.close()
	})
}

func TestTriggeredRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["echo"] = func(_ context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
			s.Log(runtime.LevelInfo, []byte("first"))
			s.Log(runtime.LevelWarn, []byte("second"))
			return runtime.Result{Outcome: runtime.Succeeded, Output: append([]byte("got "), t.Input...)}
		}
		if got := c.apply(&apiv1.Job{Name: "echo", Input: "default"}); got != "created" {
			t.Fatalf("apply: %s", got)
		}
		if got := c.apply(&apiv1.Job{Name: "echo", Input: "default"}); got != "unchanged" {
			t.Fatalf("apply again: %s", got)
		}
		run, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "echo", Input: proto.String("this"), IdempotencyKey: "k"})
		if err != nil {
			t.Fatal(err)
		}
		r := c.wait(run.Id)
		if r.State != "succeeded" || r.Output != "got this" || r.Input != "this" || r.Trigger != "manual" || r.Attempt != 1 || r.Host != "h1" || r.FinishedAt == nil {
			t.Fatalf("run: %v", r)
		}
		again, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "echo", Input: proto.String("this"), IdempotencyKey: "k"})
		if err != nil || again.Id != run.Id {
			t.Fatalf("the same key gave %v, %v", again, err)
		}
		log, err := c.runs.ReadLog(t.Context(), &apiv1.ReadLogRequest{Id: run.Id, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for {
			l, err := log.Recv()
			if err != nil {
				break
			}
			lines = append(lines, fmt.Sprintf("%d %s %s", l.Offset, l.Level, l.Text))
		}
		if want := []string{"0 info first", "1 warn second"}; !slices.Equal(lines, want) {
			t.Fatalf("log: %q", lines)
		}
		job, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "echo"})
		if err != nil || job.Stats.Succeeded != 1 || job.Stats.Live != 0 || job.Stats.LastRun != run.Id {
			t.Fatalf("job: %v, %v", job, err)
		}
	})
}

func TestRetriesBackOff(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["flaky"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			if t.Attempt < 4 {
				return runtime.Result{Outcome: runtime.Retryable, Error: fmt.Sprint("try ", t.Attempt)}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "flaky", Retry: &apiv1.Retry{Max: 3, First: "1s", Limit: "3s"}})
		r := c.wait(c.trigger("flaky", ""))
		if r.State != "succeeded" || r.Attempt != 4 || len(r.Attempts) != 4 || r.Error != "" || r.Attempts[0].Error != "try 1" {
			t.Fatalf("run: %v", r)
		}
		calls := w.handlers.of("flaky")
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			if got := calls[i+1].at.Sub(calls[i].at); got < want || got > want+50*time.Millisecond {
				t.Errorf("wait %d: %s, want %s", i+1, got, want)
			}
		}
		w.handlers.byJob["hopeless"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Permanent, Error: "no", Code: "nope"}
		}
		c.apply(&apiv1.Job{Name: "hopeless", Retry: &apiv1.Retry{Max: 3}})
		if r := c.wait(c.trigger("hopeless", "")); r.State != "failed" || r.Attempt != 1 || r.Error != "no" || r.Code != "nope" {
			t.Fatalf("a permanent error: %v", r)
		}
	})
}

func TestTimeoutAndCancel(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = sleeping(time.Hour)
		c.apply(&apiv1.Job{Name: "slow", Timeout: "5s"})
		start := time.Now()
		if r := c.wait(c.trigger("slow", "")); r.State != "timed_out" || time.Since(start) > 6*time.Second {
			t.Fatalf("after %s: %v", time.Since(start), r)
		}
		c.apply(&apiv1.Job{Name: "slow", Timeout: "1h"})
		id := c.trigger("slow", "")
		time.Sleep(time.Second)
		r, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id})
		if err != nil || !r.CancelRequested {
			t.Fatalf("cancel: %v, %v", r, err)
		}
		if r := c.wait(id); r.State != "stopped" {
			t.Fatalf("a run that was cancelled while it ran: %v", r)
		}
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("cancel of an ended run: %v", err)
		}
		w.removeHost("h1") // no host takes the run, so it stays queued
		id = c.trigger("slow", "")
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(id); r.State != "cancelled" || r.Attempt != 0 {
			t.Fatalf("a run that was cancelled before it started: %v", r)
		}
	})
}

// plannedTimes checks that each planned time has exactly one run.
func plannedTimes(t *testing.T, runs []*apiv1.Run) []time.Time {
	t.Helper()
	seen := map[time.Time]bool{}
	var out []time.Time
	for _, r := range runs {
		p := r.PlannedAt.AsTime()
		if seen[p] {
			t.Errorf("two runs are planned for %s", p)
		}
		seen[p] = true
		if r.State != "succeeded" && r.State != "armed" {
			t.Errorf("run of %s: %s %s", p, r.State, r.Error)
		}
		if s := r.StartedAt; s != nil && s.AsTime().Before(p) {
			t.Errorf("run of %s started early, at %s", p, s.AsTime())
		}
		if r.State == "succeeded" {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

func TestSchedulesOverSixHoursWithRestarts(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		start := time.Now()
		c.apply(&apiv1.Job{Name: "cron", Schedule: &apiv1.Schedule{Cron: "0 */5 * * * *", Zone: "Asia/Kolkata"}})
		c.apply(&apiv1.Job{Name: "every", Schedule: &apiv1.Schedule{Every: "2m"}})
		w.handlers.byJob["delay"] = sleeping(30 * time.Second)
		c.apply(&apiv1.Job{Name: "delay", Schedule: &apiv1.Schedule{Delay: "90s"}})
		c.apply(&apiv1.Job{Name: "once", Schedule: &apiv1.Schedule{At: start.Add(4*time.Hour + 30*time.Minute).Format(time.RFC3339)}})
		c.apply(&apiv1.Job{Name: "quick", Schedule: &apiv1.Schedule{Every: "100ms"}})
		time.Sleep(10 * time.Second)
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "quick"}); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			time.Sleep(time.Hour)
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		time.Sleep(3 * time.Second)
		end := time.Now()
		if got := plannedTimes(t, c.all("quick", "")); len(got) < 99 || len(got) > 101 {
			t.Errorf("every 100 ms for 10 s: %d runs", len(got))
		}
		cron := plannedTimes(t, c.all("cron", ""))
		if want := int(end.Sub(start) / (5 * time.Minute)); len(cron) < want || len(cron) > want+1 {
			t.Errorf("cron: %d runs, want about %d", len(cron), want)
		}
		for _, p := range cron {
			if p.Unix()%300 != 0 {
				t.Errorf("cron fired at %s", p)
			}
		}
		every := plannedTimes(t, c.all("every", ""))
		if want := int(end.Sub(start) / (2 * time.Minute)); len(every) != want {
			t.Errorf("every: %d runs, want %d", len(every), want)
		}
		for i := 1; i < len(every); i++ {
			if every[i].Sub(every[i-1]) != 2*time.Minute {
				t.Errorf("every: %s after %s", every[i], every[i-1])
			}
		}
		delay := plannedTimes(t, c.all("delay", ""))
		if want := int(end.Sub(start) / (2 * time.Minute)); len(delay) < want-8 || len(delay) > want {
			t.Errorf("delay: %d runs, want about %d", len(delay), want)
		}
		if got := plannedTimes(t, c.all("once", "")); len(got) != 1 {
			t.Errorf("once: %d runs", len(got))
		}
	})
}

func TestPauseAndChange(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		job := func() *apiv1.Job {
			return &apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "10s"}, Input: "a"}
		}
		c.apply(job())
		time.Sleep(35 * time.Second)
		if n := len(w.handlers.of("tick")); n != 3 {
			t.Fatalf("%d runs in 35 s", n)
		}
		if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "tick"}); err != nil {
			t.Fatal(err)
		}
		if got := c.apply(job()); got != "unchanged" { // applying does not resume a job
			t.Fatalf("apply of a paused job: %s", got)
		}
		time.Sleep(time.Minute)
		if n := len(w.handlers.of("tick")); n != 3 {
			t.Fatalf("a paused job ran: %d", n)
		}
		if _, err := c.jobs.ResumeJob(t.Context(), &apiv1.ResumeJobRequest{Name: "tick"}); err != nil {
			t.Fatal(err)
		}
		// A change of parameters right before the planned time takes effect, and starts
		// nothing by itself.
		time.Sleep(9*time.Second + 500*time.Millisecond)
		j := job()
		j.Input = "b"
		if got := c.apply(j); got != "updated" || len(w.handlers.of("tick")) != 3 {
			t.Fatalf("apply: %s, %d runs", got, len(w.handlers.of("tick")))
		}
		time.Sleep(time.Second)
		runs := c.all("tick", "succeeded")
		if len(runs) != 4 {
			t.Fatalf("%d runs after the change", len(runs))
		}
		if r, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: runs[0].Id}); err != nil || r.Input != "b" || r.Output != "b" {
			t.Fatalf("the next run has %q, %v", r.GetInput(), err)
		}
	})
}

func TestHostGoesAway(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["long"] = sleeping(20 * time.Second)
		c.apply(&apiv1.Job{Name: "long"})
		id := c.trigger("long", "")
		time.Sleep(time.Second)
		w.addHost("h2", 4)
		w.removeHost("h1") // drains for a second, then stops the task, which is queued again
		r := c.wait(id)
		if r.State != "succeeded" || r.Host != "h2" || r.Attempt != 2 {
			t.Fatalf("run: %v", r)
		}
		hosts, err := c.cluster.ListHosts(t.Context(), &apiv1.ListHostsRequest{})
		if err != nil || len(hosts.Hosts) != 2 || hosts.Hosts[0].State != "lost" || hosts.Hosts[1].State != "up" {
			t.Fatalf("hosts: %v, %v", hosts, err)
		}
	})
}

func TestServerRestartKeepsRunningAttempts(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["long"] = sleeping(10 * time.Second)
		w.handlers.byJob["short"] = sleeping(2 * time.Second)
		c.apply(&apiv1.Job{Name: "long"})
		c.apply(&apiv1.Job{Name: "short"})
		long, short := c.trigger("long", ""), c.trigger("short", "")
		time.Sleep(time.Second)
		w.stopServer()
		time.Sleep(5 * time.Second) // short ends while no server is up
		w.start()
		c.reconnect(w)
		for _, id := range []string{long, short} {
			if r := c.wait(id); r.State != "succeeded" || r.Attempt != 1 {
				t.Errorf("run after the restart: %v", r)
			}
		}
		if n := len(w.handlers.of("long")) + len(w.handlers.of("short")); n != 2 {
			t.Errorf("%d executions, want 2", n)
		}
	})
}

func TestBadRequests(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		apply := func(j *apiv1.Job) error {
			_, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: j})
			return err
		}
		h := &apiv1.Handler{Module: "m@1"}
		past := time.Now().Add(-time.Hour).Format(time.RFC3339)
		for _, x := range []struct {
			name string
			err  error
			code codes.Code
			want string
		}{
			{"no job", apply(nil), codes.InvalidArgument, "missing"},
			{"no module", apply(&apiv1.Job{Name: "a", Handler: &apiv1.Handler{Module: "none@1"}}), codes.FailedPrecondition, "wheelwork module push none@1"},
			{"no handler", apply(&apiv1.Job{Name: "a", Handler: &apiv1.Handler{Module: "m@1", Name: "x"}}), codes.FailedPrecondition, "no handler"},
			{"30 February", apply(&apiv1.Job{Name: "a", Handler: h, Schedule: &apiv1.Schedule{Cron: "0 0 0 30 2 *"}}), codes.InvalidArgument, "schedule.cron"},
			{"past", apply(&apiv1.Job{Name: "a", Handler: h, Schedule: &apiv1.Schedule{At: past}}), codes.InvalidArgument, "has passed"},
			{"trigger", func() error { _, err := c.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "a"}); return err }(), codes.NotFound, "no job"},
			{"input", func() error {
				_, err := c.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "a", Input: proto.String(strings.Repeat("x", 70_000))})
				return err
			}(), codes.InvalidArgument, "65536"},
			{"run id", func() error { _, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: "x"}); return err }(), codes.InvalidArgument, "not a run id"},
			{"run", func() error {
				_, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: "06GZSZRAA8556SNNMNMPPN9GX8"})
				return err
			}(), codes.NotFound, "no run"},
			{"state", func() error { _, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{State: "odd"}); return err }(), codes.InvalidArgument, "there is no state"},
			{"token", func() error { _, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{PageToken: "odd"}); return err }(), codes.InvalidArgument, "page_token"},
			{"token", func() error {
				_, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{PageToken: "history.odd"})
				return err
			}(), codes.InvalidArgument, "page_token"},
			{"delete", func() error { _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "a"}); return err }(), codes.NotFound, "no job"},
		} {
			if status.Code(x.err) != x.code || !strings.Contains(status.Convert(x.err).Message(), x.want) {
				t.Errorf("%s: %v, want %s that says %q", x.name, x.err, x.code, x.want)
			}
		}
	})
}

// TestJournalIsTrimmedAndTheViewCanBeLost checks that the journal is trimmed behind
// snapshots, and that a snapshot and the rest of the journal restore the state when the
// projection is lost.
func TestJournalIsTrimmedAndTheViewCanBeLost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["large"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: make([]byte, 1<<20)}
		}
		c.apply(&apiv1.Job{Name: "large"})
		c.apply(&apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "30s"}})
		if _, err := apiv1.NewValuesClient(c.conn).PutValue(t.Context(), &apiv1.PutValueRequest{Bucket: "b", Key: "k", Value: "kept"}); err != nil {
			t.Fatal(err)
		}
		if _, err := apiv1.NewSecretsClient(c.conn).SetSecret(t.Context(), &apiv1.SetSecretRequest{Name: "s", Value: "sealed"}); err != nil {
			t.Fatal(err)
		}
		const rounds, each = 8, 16
		for range rounds {
			for range each {
				if r := c.wait(c.trigger("large", "")); r.State != "succeeded" {
					t.Fatal(r)
				}
			}
			time.Sleep(2 * time.Minute) // until a snapshot is due
		}
		o, err := c.cluster.GetOverview(t.Context(), &apiv1.GetOverviewRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if o.Disk.JournalBytes > 5*16<<20 {
			t.Errorf("the journal has %d MiB after %d MiB of results", o.Disk.JournalBytes>>20, rounds*each)
		}
		before := c.all("", "")
		w.stopServer()
		if err := os.RemoveAll(filepath.Join(w.dir, "store", "view")); err != nil {
			t.Fatal(err)
		}
		w.start()
		c.reconnect(w)
		if v, err := apiv1.NewValuesClient(c.conn).GetValue(t.Context(), &apiv1.GetValueRequest{Bucket: "b", Key: "k"}); err != nil || v.Value != "kept" {
			t.Errorf("a value after the view was lost: %v, %v", v, err)
		}
		if all, err := apiv1.NewSecretsClient(c.conn).ListSecrets(t.Context(), &apiv1.ListSecretsRequest{}); err != nil || len(all.Secrets) != 1 {
			t.Errorf("secrets after the view was lost: %v, %v", all, err)
		}
		after := c.all("", "succeeded")
		seen := map[string]bool{}
		for _, r := range after {
			seen[r.Id] = true
		}
		for _, r := range before {
			if r.State == "succeeded" && !seen[r.Id] {
				t.Errorf("run %s of %s is gone", r.Id, r.Job)
			}
		}
		if len(seen) != len(after) {
			t.Errorf("%d runs are listed, %d are different", len(after), len(seen))
		}
		job, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "large"})
		if err != nil || job.Stats.Succeeded != rounds*each {
			t.Errorf("job after the view was lost: %v, %v", job.GetStats(), err)
		}
		if r := c.wait(c.trigger("large", "")); r.State != "succeeded" {
			t.Error(r)
		}
	})
}

// TestSnapshotsWaitForManyRows checks that a large projection is snapshotted only after
// the journal has grown accordingly, because a snapshot reads every row.
func TestSnapshotsWaitForManyRows(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["large"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: make([]byte, 1<<20)}
		}
		for i := range 256 { // 8 MiB
			c.apply(&apiv1.Job{Name: fmt.Sprintf("j%d", i), Input: strings.Repeat("x", 32<<10)})
		}
		c.apply(&apiv1.Job{Name: "large"})
		w.stopServer() // which writes all rows to tables
		w.snapshotEvery, w.snapshotTimes = time.Hour, 4
		w.start()
		c.reconnect(w)
		grow := func(mib int) (snapshots int) {
			for range mib {
				if r := c.wait(c.trigger("large", "")); r.State != "succeeded" {
					t.Fatal(r)
				}
			}
			time.Sleep(time.Minute)
			names, err := filepath.Glob(filepath.Join(w.dir, "store", "snapshots", "*.snap"))
			if err != nil {
				t.Fatal(err)
			}
			return len(names)
		}
		if n := grow(12); n != 0 {
			t.Errorf("%d snapshots when the journal has grown by 12 MiB", n)
		}
		if n := grow(48); n != 1 {
			t.Errorf("%d snapshots when the journal has grown by 60 MiB", n)
		}
	})
}

// brokenJournal fails every append while broken is set, as after a failed sync.
type brokenJournal struct {
	journal.Journal
	broken atomic.Bool
}

var errSync = errors.New("sync: input/output error")

func (j *brokenJournal) Append(recs []journal.Record, done func(error)) (uint64, error) {
	if !j.broken.Load() {
		return j.Journal.Append(recs, done)
	}
	go done(errSync)
	return j.Next() + uint64(len(recs)) - 1, nil
}

func TestNothingIsAcknowledgedAfterAFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := &brokenJournal{}
		w.wrap = func(inner journal.Journal) journal.Journal { j.Journal = inner; return j }
		w.start()
		w.addHost("h1", 1)
		c := w.client()
		c.push()
		c.apply(&apiv1.Job{Name: "a"})
		before := c.wait(c.trigger("a", ""))
		j.broken.Store(true)
		for range 3 {
			if r, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "a"}); status.Code(err) != codes.Unavailable {
				t.Fatalf("trigger after a failed sync: %v, %v", r, err)
			}
		}
		synctest.Wait()
		if w.failed == nil || !strings.Contains(w.failed.Error(), errSync.Error()) {
			t.Fatalf("the server ended with %v", w.failed)
		}
		if n := len(w.handlers.of("a")); n != 1 {
			t.Fatalf("%d executions, want the one from before", n)
		}
		w.stopServer()
		j.broken.Store(false)
		w.start()
		c.reconnect(w)
		if r, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: before.Id}); err != nil || r.State != "succeeded" {
			t.Fatalf("what was acknowledged before: %v, %v", r, err)
		}
		if all := c.all("a", ""); len(all) != 1 {
			t.Fatalf("%d runs, want the acknowledged one: %v", len(all), all)
		}
		c.close()
		w.close()
	})
}

// TestHerd plans more jobs for one second than one turn arms. Each must run once in its
// second, and a job with another schedule must keep its times.
func TestHerd(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		const n = 5000 // a turn arms at most 2048
		due := time.Now().Add(time.Minute).Truncate(time.Second)
		for i := range n {
			c.apply(&apiv1.Job{Name: fmt.Sprint("herd-", i), Schedule: &apiv1.Schedule{At: due.UTC().Format(time.RFC3339)}})
		}
		c.apply(&apiv1.Job{Name: "tick", Schedule: &apiv1.Schedule{Every: "1s"}})
		time.Sleep(time.Until(due.Add(10 * time.Second)))
		synctest.Wait()
		w.handlers.mu.Lock()
		defer w.handlers.mu.Unlock()
		ran, ticks := map[string]int{}, map[time.Time]int{}
		for _, x := range w.handlers.calls {
			if x.job == "tick" {
				ticks[x.planned]++
				continue
			}
			ran[x.job]++
			if !x.planned.Equal(due) || x.at.Before(due) {
				t.Errorf("%s was planned for %v and ran at %v, want %v", x.job, x.planned, x.at, due)
			}
		}
		for i := range n {
			if name := fmt.Sprint("herd-", i); ran[name] != 1 {
				t.Errorf("%s ran %d times", name, ran[name])
			}
		}
		for at, times := range ticks {
			if times != 1 {
				t.Errorf("tick ran %d times for %v", times, at)
			}
		}
		if len(ticks) < 60 {
			t.Errorf("tick ran for %d seconds", len(ticks))
		}
	})
}

// TestKeysOfBefore checks that an idempotency key identifies its run after a restart,
// also if the store has keys in rows, as older formats had.
func TestKeysOfBefore(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.apply(&apiv1.Job{Name: "j"})
		run := c.trigger("j", "key")
		c.wait(run)
		again := func() {
			t.Helper()
			w.start()
			c.reconnect(w)
			if got := c.trigger("j", "key"); got != run {
				t.Fatalf("the key stands for run %s, and not for %s", got, run)
			}
			time.Sleep(5 * time.Second) // until a projection batch is written
		}
		w.stopServer()
		again()
		w.stopServer()

		const row = "keys/default/0000000000000001"
		st := w.openStore()
		var value []byte
		err := st.EachKeys(func(k store.Keys, _ int64) error {
			value = slices.Clone(k.Value)
			return nil
		})
		if err != nil || value == nil {
			t.Fatalf("no keys in the store: %v", err)
		}
		if err := errors.Join(st.Close(), os.RemoveAll(filepath.Join(w.dir, "store", "keys"))); err != nil {
			t.Fatal(err)
		}
		st = w.openStore()
		if err := errors.Join(st.Commit(&store.Batch{Applied: st.Applied(), Rows: []store.Row{{Key: row, Value: value}}}), st.Close()); err != nil {
			t.Fatal(err)
		}
		again()
		w.stopServer()
		st = w.openStore()
		err = st.Rows("keys/", "", "", func(key string, _ []byte) error {
			t.Errorf("row %s is still there", key)
			return nil
		})
		if err := errors.Join(err, st.Close()); err != nil {
			t.Fatal(err)
		}
		again()
	})
}
