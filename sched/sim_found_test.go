package sched_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// What the simulation has found, each as small as it can be.

// A planned time that was given up ahead is not planned again when the schedule
// is set anew, neither one that was skipped nor one whose run was cancelled.
func TestGivenUpTimesStayGivenUp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		again := func() {
			if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
		}
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Cron: "* * * * *"}})
		start := time.Now()
		if _, err := c.jobs.SkipNext(ctx, &apiv1.SkipNextRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		again()
		time.Sleep(2*time.Minute - 500*time.Millisecond) // the second one is armed
		if n := len(w.handlers.of("j")); n != 0 {
			t.Errorf("the skipped time ran")
		}
		live := c.all("j", "armed")
		if len(live) != 1 {
			t.Fatalf("armed: %v", live)
		}
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: live[0].Id}); err != nil {
			t.Fatal(err)
		}
		again()
		time.Sleep(time.Minute + time.Second)
		calls := w.handlers.of("j")
		if len(calls) != 1 || calls[0].planned.Sub(start.Truncate(time.Minute)) != 3*time.Minute {
			t.Errorf("calls %v", calls)
		}
	})
}

// A delay schedule that is paused and resumed while its run goes on waits for
// the end of that, and does not become two.
func TestDelayIsResumedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		w.handlers.byJob["j"] = sleeping(30 * time.Second)
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{Delay: "10s"}})
		time.Sleep(15 * time.Second)
		for range 2 {
			if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j"}); err != nil {
				t.Fatal(err)
			}
			j, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{Name: "j"})
			if err != nil || j.NextAt != nil {
				t.Fatalf("resumed while a run is live: %v, %v", j, err)
			}
		}
		time.Sleep(5 * time.Minute)
		calls := w.handlers.of("j")
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].at.Sub(calls[i-1].at); gap < 40*time.Second || gap > 41*time.Second {
				t.Errorf("run %d began %s after the one before", i, gap)
			}
		}
		if len(calls) != 8 {
			t.Errorf("%d runs", len(calls))
		}
	})
}

// After a restart a scheduled run that waits for a host stands before one that
// came later.
func TestOrderAfterARestart(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		c.apply(&apiv1.Job{Name: "j", Schedule: &apiv1.Schedule{After: "5s"}, Overlap: &apiv1.Overlap{Policy: "queue"}})
		time.Sleep(6 * time.Second)
		later := c.trigger("j", "")
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(time.Second)
		w.addHost("h1", 1)
		c.wait(later)
		if calls := w.handlers.of("j"); len(calls) != 2 || calls[1].run != later {
			t.Errorf("calls %v, the later run is %s", calls, later)
		}
	})
}

// A job with a deadline can be backfilled, and only with what has passed.
func TestBackfillWithADeadline(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		c.apply(&apiv1.Job{Name: "j", Deadline: "1m", Schedule: &apiv1.Schedule{Cron: "0 * * * *"}})
		now := time.Now()
		resp, err := c.jobs.BackfillJob(t.Context(), &apiv1.BackfillJobRequest{
			Name: "j", From: timestamppb.New(now.Add(-3*time.Hour + time.Minute)), Until: timestamppb.New(now.Add(3 * time.Hour)),
		})
		if err != nil || resp.Accepted != 2 {
			t.Fatalf("backfill: %v, %v", resp, err)
		}
		time.Sleep(time.Second)
		if got := states(c.all("j", "")); count(got, "succeeded") != 2 {
			t.Errorf("backfilled: %q", got)
		}
	})
}
