package sched_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestLimitsOfAJob checks that the handler gets the limits of its job: without limits,
// after an update that sets them, after a restart of the server, and after an update that
// removes them.
func TestLimitsOfAJob(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		got := make(chan runtime.Limits, 10)
		w.handlers.byJob["bounded"] = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
			got <- t.Limits
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		apply := func(l *apiv1.Limits) string {
			t.Helper()
			j := &apiv1.Job{Name: "bounded", Limits: l}
			c.apply(j)
			r, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "bounded"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Limits.GetFuel() != l.GetFuel() || r.Limits.GetMemoryBytes() != l.GetMemoryBytes() {
				t.Errorf("the job has the limits %v, want %v", r.Limits, l)
			}
			return r.Etag
		}
		want := func(memory, fuel int64) {
			t.Helper()
			c.wait(c.trigger("bounded", ""))
			if l := <-got; l != (runtime.Limits{MemoryBytes: memory, Fuel: fuel}) {
				t.Errorf("the handler may use %+v, want %d bytes and %d units", l, memory, fuel)
			}
		}
		none := apply(nil)
		want(0, 0)
		if some := apply(&apiv1.Limits{MemoryBytes: 1 << 20, Fuel: 7}); some == none {
			t.Error("limits do not change the etag")
		}
		want(1<<20, 7)
		w.stopServer()
		w.start()
		c.reconnect(w)
		synctest.Wait()
		want(1<<20, 7)
		if again := apply(nil); again != none {
			t.Error("without limits the etag is another one than before them")
		}
		want(0, 0)
	})
}

// limited sets the limits of an app.
func (c *client) limited(app string, l *apiv1.AppLimits) *apiv1.App {
	c.t.Helper()
	m, err := apiv1.NewAppsClient(c.conn).SetAppLimits(context.Background(), &apiv1.SetAppLimitsRequest{Name: app, Limits: l})
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// wantLimit fails unless err is the refusal of what exceeds a limit of an app.
func wantLimit(t *testing.T, err error, flag string) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "wheelwork app limits shop --"+flag) {
		t.Errorf("%v, want a refusal that names --%s", err, flag)
	}
}

// TestLimitsOfAnApp exceeds each limit of an app, before and after a restart and after the limit is
// raised. Another app is not concerned.
func TestLimitsOfAnApp(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		apply := func(app, name, input string) error {
			_, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{App: app, Name: name, Input: input, Handler: &apiv1.Handler{Name: "native:any"}}})
			return err
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		m := c.limited("shop", &apiv1.AppLimits{Jobs: 2, QueuedRuns: 3, LiveRuns: 1})
		if l := m.Limits; l.Jobs != 2 || l.QueuedRuns != 3 || l.LiveRuns != 1 || l.Bytes != 16<<30 || l.ModuleBytes != 4<<30 {
			t.Errorf("the limits are %v", l)
		}
		w.handlers.byJob["a"] = slowly(10 * time.Second)
		must(apply("shop", "a", ""))
		must(apply("shop", "b", ""))
		for range 2 {
			wantLimit(t, apply("shop", "c", ""), "jobs")
			must(apply("shop", "b", "changed")) // it exists
			must(apply("bank", "c", ""))
			w.stopServer()
			w.start()
			c.reconnect(w)
			synctest.Wait()
		}
		set := &apiv1.ApplyChangeSetRequest{App: "shop", Changes: []*apiv1.Change{{Kind: &apiv1.Change_Job{Job: &apiv1.Job{Name: "d", Handler: &apiv1.Handler{Name: "native:any"}}}}}}
		_, err := apiv1.NewChangeSetsClient(c.conn).ApplyChangeSet(ctx, set)
		wantLimit(t, err, "jobs")

		// One run at a time, although the host has four slots.
		trigger := func(input string) (*apiv1.Run, error) {
			return c.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{App: "shop", Name: "a", Input: &input})
		}
		var last string
		for range 3 {
			r, err := trigger("")
			must(err)
			last = r.Id
		}
		_, err = trigger("")
		wantLimit(t, err, "queued-runs")
		c.triggerIn("bank", "c")
		time.Sleep(5 * time.Second)
		if n := len(w.handlers.of("a")); n != 1 {
			t.Errorf("%d runs of the app began, want 1", n)
		}
		if n := len(w.handlers.of("c")); n != 1 {
			t.Errorf("%d runs of the other app began, want 1", n)
		}
		if e, err := c.runs.ExplainRun(ctx, &apiv1.ExplainRunRequest{App: "shop", Id: last}); err != nil || e.Reason.GetCode() != reason.AppLiveRuns || !strings.Contains(e.Why, "--live-runs") {
			t.Errorf("explained as %v, %v", e, err)
		}
		time.Sleep(40 * time.Second)
		if n := len(w.handlers.of("a")); n != 3 {
			t.Errorf("%d runs began, want 3", n)
		}
		got, err := apiv1.NewAppsClient(c.conn).GetApp(ctx, &apiv1.GetAppRequest{Name: "shop"})
		must(err)
		if got.Jobs != 2 || got.Live != 0 || got.AtHosts != 0 || got.Bytes < 10 {
			t.Errorf("%v", got)
		}

		// The bytes of definitions and inputs.
		c.limited("shop", &apiv1.AppLimits{Bytes: got.Bytes + 1000})
		wantLimit(t, apply("shop", "b", strings.Repeat("x", 2000)), "bytes")
		must(apply("shop", "b", strings.Repeat("x", 500)))
		_, err = trigger(strings.Repeat("x", 1000))
		wantLimit(t, err, "bytes")
		r, err := trigger(strings.Repeat("x", 200))
		must(err)
		must(apply("shop", "b", "")) // a smaller definition is always taken
		_, err = c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{App: "shop", Name: "b"})
		must(err)
		time.Sleep(20 * time.Second)
		after, err := apiv1.NewAppsClient(c.conn).GetApp(ctx, &apiv1.GetAppRequest{Name: "shop"})
		must(err)
		w.stopServer()
		w.start()
		c.reconnect(w)
		synctest.Wait()
		again, err := apiv1.NewAppsClient(c.conn).GetApp(ctx, &apiv1.GetAppRequest{Name: "shop"})
		must(err)
		if again.Bytes != after.Bytes || again.Limits.Bytes != after.Limits.Bytes {
			t.Errorf("after a restart %v, before it %v", again, after)
		}
		if r == nil || after.Bytes <= 0 || after.Bytes >= got.Bytes {
			t.Errorf("%d bytes are left of %d", after.Bytes, got.Bytes)
		}
		if m := c.limited("shop", &apiv1.AppLimits{Jobs: 2_000_000}); m.Limits.Jobs != 2_000_000 || m.Limits.Bytes != 16<<30 {
			t.Errorf("%v", m)
		}
		if _, err := apiv1.NewAppsClient(c.conn).SetAppLimits(ctx, &apiv1.SetAppLimitsRequest{Name: "shop", Limits: &apiv1.AppLimits{Jobs: -1}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a negative limit: %v", err)
		}
	})
}

// TestOneAppLeavesRuns fills the server with runs of one app: another app still gets its own, and a
// third app cannot be made by naming it.
func TestOneAppLeavesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.maxLive, w.maxApps = 16, 2
		w.start()
		c := w.client()
		c.applyNative(&apiv1.Job{App: "shop", Name: "a"})
		c.applyNative(&apiv1.Job{App: "bank", Name: "a"})
		trigger := func(app string) error {
			_, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{App: app, Name: "a"})
			return err
		}
		for range 14 {
			if err := trigger("shop"); err != nil {
				t.Fatal(err)
			}
		}
		if err := trigger("shop"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "keeps an eighth of them for other apps") {
			t.Errorf("a run more than seven eighths: %v", err)
		}
		for range 2 {
			if err := trigger("bank"); err != nil {
				t.Errorf("another app: %v", err)
			}
		}
		if err := trigger("bank"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "16 runs have not ended") {
			t.Errorf("a run more than the server takes: %v", err)
		}
		for what, err := range map[string]error{
			"a job": func() error {
				_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{App: "third", Name: "a", Handler: &apiv1.Handler{Name: "native:any"}}})
				return err
			}(),
			"settings": func() error {
				_, err := apiv1.NewAppsClient(c.conn).PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "third"}})
				return err
			}(),
			"a value": func() error {
				_, err := apiv1.NewValuesClient(c.conn).PutValue(t.Context(), &apiv1.PutValueRequest{App: "third", Bucket: "b", Key: "k"})
				return err
			}(),
			"a secret": func() error {
				_, err := apiv1.NewSecretsClient(c.conn).SetSecret(t.Context(), &apiv1.SetSecretRequest{App: "third", Name: "s", Value: "x"})
				return err
			}(),
		} {
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--max-apps") {
				t.Errorf("%s of a third app: %v", what, err)
			}
		}
		c.close()
		w.close()
	})
}
