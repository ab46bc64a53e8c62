package sched_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestClockSetBackWhileDown starts a server on data whose server had a clock two hours
// ahead: the fake clock of each synctest bubble starts at the same time. Rates, delays
// and retries continue, schedules at clock times wait for the clock, and no planned time
// has two runs.
func TestClockSetBackWhileDown(t *testing.T) {
	w := newWorld(t)
	failing := func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
		if task.Attempt == 1 {
			return runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
		}
		return runtime.Result{Outcome: runtime.Succeeded}
	}
	var before map[string]int // number of runs by job
	var begin time.Time
	var retried, armed string
	synctest.Test(t, func(t *testing.T) {
		begin = time.Now()
		w.t = t
		w.handlers.byJob["retried"] = failing
		w.start()
		w.addHost("h", 4)
		c := w.client()
		c.push()
		c.apply(&apiv1.Job{Name: "rate", Schedule: &apiv1.Schedule{Every: "10s"}})
		c.apply(&apiv1.Job{Name: "delay", Schedule: &apiv1.Schedule{Delay: "10s"}})
		c.apply(&apiv1.Job{Name: "cron", Schedule: &apiv1.Schedule{Cron: "*/10 * * * *"}})
		c.apply(&apiv1.Job{Name: "daily", Schedule: &apiv1.Schedule{Daily: &apiv1.Daily{Every: "10m"}}})
		c.apply(&apiv1.Job{Name: "fixed", Schedule: &apiv1.Schedule{Every: "10s", From: begin.Format(time.RFC3339)}})
		c.apply(&apiv1.Job{Name: "retried", Retry: &apiv1.Retry{Max: 1, Backoff: "fixed", First: "20s", Limit: "20s"}})
		time.Sleep(time.Until(begin.Add(2*time.Hour - 10*time.Second)))
		retried = c.trigger("retried", "")
		time.Sleep(time.Until(begin.Add(2*time.Hour - 500*time.Millisecond)))
		before = map[string]int{}
		for _, name := range []string{"rate", "delay", "cron", "daily", "fixed"} {
			runs := c.all(name, "")
			before[name] = len(runs)
			if name == "cron" && runs[0].State == "armed" {
				armed = runs[0].Id
			}
		}
		if armed == "" {
			t.Fatal("the cron job has no armed run half a second before its time")
		}
		c.close()
		w.close()
	})
	synctest.Test(t, func(t *testing.T) {
		if !time.Now().Equal(begin) {
			t.Fatalf("the clock begins at %v, and did at %v", time.Now(), begin)
		}
		w.t = t
		w.start()
		w.addHost("h", 4)
		c := w.client()
		defer func() {
			c.close()
			w.close()
		}()
		time.Sleep(45 * time.Second)
		for name, least := range map[string]int{"rate": 4, "delay": 3, "cron": 0, "daily": 0, "fixed": 0} {
			ids := map[string]bool{}
			runs := c.all(name, "")
			for _, r := range runs {
				if ids[r.Id] {
					t.Errorf("%s: two runs have the id %s", name, r.Id)
				}
				ids[r.Id] = true
			}
			if more := len(runs) - before[name]; more < least || least == 0 && more > 0 || more > least+2 {
				t.Errorf("%s: %d runs in 45 s, want about %d", name, more, least)
			}
		}
		if r, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: retried}); err != nil || r.State != "succeeded" || r.Attempt != 2 {
			t.Errorf("the retry: %v, %v", r, err)
		}
		until := begin.Add(2 * time.Hour)
		for _, name := range []string{"cron", "daily", "fixed"} {
			j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if next := j.NextAt.AsTime(); next.Before(until.Add(-time.Second)) || !strings.Contains(j.NextWhy, "waits for the clock until 2000-01-01T02:") {
				t.Errorf("%s: next at %v, %q", name, next, j.NextWhy)
			}
		}
		for _, name := range []string{"rate", "delay", "retried"} {
			j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: name})
			if err != nil || j.NextWhy != "" || j.NextAt != nil && time.Until(j.NextAt.AsTime()) > 15*time.Second {
				t.Errorf("%s: next at %v, %q, %v", name, j.GetNextAt().AsTime(), j.GetNextWhy(), err)
			}
		}
		// Pausing and resuming does not bring back passed times either.
		for _, pause := range []func(string) error{
			func(name string) error {
				_, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: name})
				return err
			},
			func(name string) error {
				_, err := c.jobs.ResumeJob(t.Context(), &apiv1.ResumeJobRequest{Name: name})
				return err
			},
		} {
			if err := pause("daily"); err != nil {
				t.Fatal(err)
			}
		}
		x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: armed})
		if err != nil || !strings.Contains(x.Why, "it waits for the clock until 2000-01-01T02:00:00Z") {
			t.Errorf("explain: %v, %v", x, err)
		}
		// When the clock reaches the earlier time, the schedules continue, and no run is
		// repeated.
		time.Sleep(time.Until(until.Add(11 * time.Minute)))
		for name, want := range map[string]int{"cron": before["cron"] + 1, "daily": before["daily"] + 1} {
			ids := map[string]bool{}
			for _, r := range c.all(name, "") {
				ids[r.Id] = true
			}
			if len(ids) != want || len(c.all(name, "")) != want {
				t.Errorf("%s: %d runs, want %d", name, len(ids), want)
			}
		}
		calls := map[string]int{}
		for _, call := range w.handlers.of("cron") {
			calls[call.run]++
		}
		for run, n := range calls {
			if n != 1 {
				t.Errorf("run %s of the cron job was executed %d times", run, n)
			}
		}
		if j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "cron"}); err != nil || j.NextWhy != "" {
			t.Errorf("the clock is past its times: %q, %v", j.GetNextWhy(), err)
		}
	})
}
