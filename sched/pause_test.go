package sched_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestPauseOfAnApp checks that a paused app starts nothing, in the app alone: planned times are
// skipped with the reason, triggered runs and what hosts have not started wait, over a restart
// too, and both go on when the pause ends by itself or with a call.
func TestPauseOfAnApp(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		apps, ctx := func() apiv1.AppsClient { return apiv1.NewAppsClient(c.conn) }, context.Background()
		w.handlers.byJob["each"] = sleeping(time.Millisecond)
		w.handlers.byJob["once"] = sleeping(time.Millisecond)
		c.applyNative(&apiv1.Job{Name: "each", Schedule: &apiv1.Schedule{Every: "10s"}})
		c.applyNative(&apiv1.Job{Name: "once"})
		c.applyNative(&apiv1.Job{App: "other", Name: "once"})
		time.Sleep(25 * time.Second)
		if n := len(c.all("each", "succeeded")); n != 2 {
			t.Fatalf("%d runs before the pause, want 2", n)
		}
		until := time.Now().Add(time.Minute)
		m, err := apps().PauseApp(ctx, &apiv1.PauseAppRequest{Name: "default", Reason: "the database moves", Until: timestamppb.New(until)})
		if err != nil || m.Pause.GetReason() != "the database moves" || m.Pause.By == "" || !m.Pause.Until.AsTime().Equal(until) {
			t.Fatalf("pause: %v, %v", m, err)
		}
		id := c.trigger("once", "")
		time.Sleep(time.Second)
		why, err := c.runs.ExplainRun(ctx, &apiv1.ExplainRunRequest{Id: id})
		if err != nil || why.State != "queued" || !strings.Contains(why.Why, "app default is paused by") || !strings.Contains(why.Why, "the database moves") {
			t.Errorf("the reason of a run in the pause: %v, %v", why, err)
		}
		r, err := c.jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{App: "other", Name: "once"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if r, err = c.runs.GetRun(ctx, &apiv1.GetRunRequest{App: "other", Id: r.Id}); err != nil || r.State != "succeeded" {
			t.Errorf("a run of another app: %v, %v", r, err)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(time.Until(until) - time.Second)
		if n := len(c.all("each", "succeeded")); n != 2 {
			t.Errorf("%d runs at the end of the pause, want the 2 from before it", n)
		}
		skipped := c.all("each", "skipped")
		if len(skipped) != 6 {
			t.Errorf("%d planned times were skipped, want 6", len(skipped))
		}
		for _, r := range skipped {
			if !strings.Contains(r.Error, "the database moves") {
				t.Errorf("a skipped run has the error %v", r.Error)
			}
		}
		time.Sleep(2 * time.Second)
		if r, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: id}); err != nil || r.State != "succeeded" || r.FinishedAt.AsTime().Sub(until) > 100*time.Millisecond || r.FinishedAt.AsTime().Before(until) {
			t.Errorf("the run that waited: %v, %v; the pause ended at %s", r, err, until)
		}
		if m, err = apps().GetApp(ctx, &apiv1.GetAppRequest{Name: "default"}); err != nil || m.Pause != nil {
			t.Errorf("the app after its pause: %v, %v", m, err)
		}
		time.Sleep(20 * time.Second)
		if n := len(c.all("each", "succeeded")); n != 4 {
			t.Errorf("%d runs 20 s after the pause, want 4", n)
		}

		// A pause without an end, and one that replaces it.
		if m, err = apps().PauseApp(ctx, &apiv1.PauseAppRequest{Name: "default"}); err != nil || m.Pause.GetUntil() != nil {
			t.Fatalf("pause without an end: %v, %v", m, err)
		}
		since := m.Pause.Since
		id = c.trigger("once", "")
		time.Sleep(time.Hour)
		if m, err = apps().PauseApp(ctx, &apiv1.PauseAppRequest{Name: "default", Reason: "still"}); err != nil || m.Pause.Reason != "still" || !m.Pause.Since.AsTime().Equal(since.AsTime()) {
			t.Errorf("a second pause: %v, %v; want one since %v", m, err, since)
		}
		if m, err = apps().ResumeApp(ctx, &apiv1.ResumeAppRequest{Name: "default"}); err != nil || m.Pause != nil {
			t.Errorf("resume: %v, %v", m, err)
		}
		if r := c.wait(id); r.State != "succeeded" {
			t.Errorf("the run that waited for the resumption: %v", r)
		}
		if _, err := apps().ResumeApp(ctx, &apiv1.ResumeAppRequest{Name: "default"}); err != nil {
			t.Errorf("resume an app that is not paused: %v", err)
		}
		for _, bad := range []struct {
			req  *apiv1.PauseAppRequest
			want codes.Code
		}{
			{&apiv1.PauseAppRequest{Name: "nowhere"}, codes.NotFound},
			{&apiv1.PauseAppRequest{Name: "default", Until: timestamppb.New(time.Now())}, codes.InvalidArgument},
			{&apiv1.PauseAppRequest{Name: "default", Until: &timestamppb.Timestamp{Nanos: -1}}, codes.InvalidArgument},
			{&apiv1.PauseAppRequest{Name: "default", Reason: strings.Repeat("x", 501)}, codes.InvalidArgument},
		} {
			if _, err := apps().PauseApp(ctx, bad.req); status.Code(err) != bad.want {
				t.Errorf("%v: %v, want %s", bad.req, err, bad.want)
			}
		}
	})
}

// TestPauseTakesBackTasks checks that a run that its host has not started waits for the end of
// the pause, and that a run that has started goes on.
func TestPauseTakesBackTasks(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		stuck := make(chan struct{})
		quick := true
		w.handlers.byJob["busy"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			if !quick {
				<-stuck
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.applyNative(&apiv1.Job{Name: "busy"})
		for range 10 {
			c.wait(c.trigger("busy", ""))
		}
		quick = false
		for range 12 {
			c.trigger("busy", "")
		}
		time.Sleep(10 * time.Millisecond)
		at := func() (n int) {
			for _, r := range c.all("busy", "live") {
				if r.State == "dispatched" || r.State == "running" {
					n++
				}
			}
			return n
		}
		if n := at(); n <= 4 {
			t.Fatalf("the host holds %d runs: the test wants some that have not started", n)
		}
		apps := apiv1.NewAppsClient(c.conn)
		if _, err := apps.PauseApp(t.Context(), &apiv1.PauseAppRequest{Name: "default"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if n := at(); n != 4 {
			t.Errorf("the host holds %d runs in the pause, want the 4 that have started", n)
		}
		close(stuck)
		time.Sleep(time.Minute)
		if n := len(c.all("busy", "live")); n != 8 {
			t.Errorf("%d runs wait, want 8", n)
		}
		if _, err := apps.ResumeApp(t.Context(), &apiv1.ResumeAppRequest{Name: "default"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := len(c.all("busy", "live")); n != 0 {
			t.Errorf("%d runs wait after the pause", n)
		}
	})
}
