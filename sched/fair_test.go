package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// late returns the delays between the planned time and the start of each execution of a
// job, sorted, the longest last.
func (w *world) late(job string) (all []time.Duration) {
	for _, c := range w.handlers.of(job) {
		all = append(all, c.at.Sub(c.planned))
	}
	slices.Sort(all)
	return all
}

// triggerIn triggers a job of an app.
func (c *client) triggerIn(app, name string) {
	c.t.Helper()
	if _, err := c.jobs.TriggerJob(context.Background(), &apiv1.TriggerJobRequest{App: app, Name: name}); err != nil {
		c.t.Fatal(err)
	}
}

// applyNative applies a job whose handler is native, so it needs no module.
func (c *client) applyNative(j *apiv1.Job) {
	c.t.Helper()
	j.Handler = &apiv1.Handler{Name: "native:any"}
	if _, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: j}); err != nil {
		c.t.Fatal(err)
	}
}

// fair runs f with one host of four execution slots.
func fair(t *testing.T, f func(t *testing.T, w *world, c *client)) {
	t.Helper()
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		w.addAble("h", 4, nil, "native:any")
		f(t, w, c)
	})
}

// TestFloodOfSlowRuns checks that sixty runs of eight seconds do not delay a job of
// another app or a quick job of the same app, whether or not their duration is known.
func TestFloodOfSlowRuns(t *testing.T) {
	for _, known := range []bool{false, true} {
		for _, app := range []string{"other", "default"} {
			t.Run(fmt.Sprintf("known=%v/%s", known, app), func(t *testing.T) {
				fair(t, func(t *testing.T, w *world, c *client) {
					w.handlers.byJob["slow"] = slowly(8 * time.Second)
					w.handlers.byJob["tick"] = slowly(time.Millisecond)
					c.applyNative(&apiv1.Job{App: app, Name: "tick", Schedule: &apiv1.Schedule{Every: "200ms"}})
					c.applyNative(&apiv1.Job{Name: "slow"})
					if known {
						c.triggerIn("default", "slow")
						time.Sleep(10 * time.Second)
					}
					time.Sleep(5 * time.Second)
					for range 60 {
						c.triggerIn("default", "slow")
					}
					time.Sleep(30 * time.Second)
					late := w.late("tick")
					if n, worst := len(late), late[len(late)-1]; n < 170 || worst > 50*time.Millisecond {
						t.Errorf("%d runs of tick began, the last of them by %v late: want one each 200 ms, and 50 ms", n, worst)
					}
					// The slow runs have the three slots that are not reserved.
					if n := len(w.handlers.of("slow")); n < 9 {
						t.Errorf("%d slow runs began in 30 s on 3 slots", n)
					}
				})
			})
		}
	}
}

// TestFirstRunBesideAFlood checks that the first run of a job starts in a reserved slot
// when its app has no other run on the host.
func TestFirstRunBesideAFlood(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = slowly(time.Minute)
		c.applyNative(&apiv1.Job{Name: "slow"})
		c.applyNative(&apiv1.Job{App: "other", Name: "new"})
		c.applyNative(&apiv1.Job{App: "third", Name: "tick", Schedule: &apiv1.Schedule{Every: "200ms"}})
		time.Sleep(2 * time.Second)
		for range 20 {
			c.triggerIn("default", "slow")
		}
		time.Sleep(time.Second)
		c.triggerIn("other", "new")
		time.Sleep(time.Second)
		if n := len(w.handlers.of("new")); n != 1 {
			t.Errorf("%d runs of the new job began within a second", n)
		}
	})
}

// TestSlowRunsAloneHaveAllSlots checks that slots are reserved only while other apps or
// quick jobs are active.
func TestSlowRunsAloneHaveAllSlots(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = slowly(time.Minute)
		c.applyNative(&apiv1.Job{Name: "slow"})
		time.Sleep(2 * time.Minute) // until earlier activity no longer counts
		for range 8 {
			c.triggerIn("default", "slow")
		}
		time.Sleep(10 * time.Second)
		if n := len(w.handlers.of("slow")); n != 4 {
			t.Errorf("%d of 4 slots are used", n)
		}
	})
}

// TestSlotsAreKeptForWhatIsDue checks that a slot is reserved for an app whose job fires
// in less than a minute, even if none of its runs has run yet.
func TestSlotsAreKeptForWhatIsDue(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = slowly(5 * time.Minute)
		c.applyNative(&apiv1.Job{Name: "slow"})
		c.applyNative(&apiv1.Job{App: "other", Name: "soon", Schedule: &apiv1.Schedule{After: "50s"}})
		for range 8 {
			c.triggerIn("default", "slow")
		}
		time.Sleep(time.Minute)
		if late := w.late("soon"); len(late) != 1 || late[0] > 50*time.Millisecond {
			t.Errorf("the run that was due began %v late", late)
		}
	})
}

// TestPriorityBehindAFlood checks that a run of high priority gets the next slot, also if
// the routing of all runs names one host.
func TestPriorityBehindAFlood(t *testing.T) {
	for _, routing := range []*apiv1.Routing{nil, {Hosts: []string{"h"}}} {
		t.Run(fmt.Sprint(routing), func(t *testing.T) {
			fair(t, func(t *testing.T, w *world, c *client) {
				w.handlers.byJob["lo"] = slowly(700 * time.Millisecond)
				w.handlers.byJob["hi"] = slowly(time.Millisecond)
				c.applyNative(&apiv1.Job{Name: "lo", Priority: -5, Routing: routing})
				c.applyNative(&apiv1.Job{Name: "hi", Priority: 10, Routing: routing})
				c.triggerIn("default", "lo")
				time.Sleep(2 * time.Second) // until the duration of lo is known
				for range 40 {
					c.triggerIn("default", "lo")
				}
				c.triggerIn("default", "hi")
				time.Sleep(10 * time.Second)
				if late := w.late("hi"); len(late) != 1 || late[0] > 750*time.Millisecond {
					t.Errorf("hi began after %v, want less than the 0.7 s of a run before it and 50 ms", late)
				}
				if n := len(w.handlers.of("lo")); n != 41 {
					t.Errorf("%d of 41 runs of lo began", n)
				}
			})
		})
	}
}

// TestJobsTakeTurns checks that among jobs of one app and priority, the runs of one job
// do not wait for all earlier runs of another.
func TestJobsTakeTurns(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["many"] = slowly(500 * time.Millisecond)
		w.handlers.byJob["few"] = slowly(500 * time.Millisecond)
		for _, name := range []string{"many", "few"} {
			c.applyNative(&apiv1.Job{Name: name})
			c.triggerIn("default", name)
		}
		time.Sleep(2 * time.Second)
		for range 400 {
			c.triggerIn("default", "many")
		}
		for range 4 {
			c.triggerIn("default", "few")
		}
		time.Sleep(10 * time.Second)
		// A job has a turn of 16 quick runs, for which 4 slots take 2 s.
		if late := w.late("few"); len(late) != 5 || late[4] > 5*time.Second {
			t.Errorf("runs of few began %v late", late)
		}
	})
}

// TestAppsShareByTime checks that two apps which both want all slots share the time by
// weight, however long their runs take.
func TestAppsShareByTime(t *testing.T) {
	for weight, want := range map[int32]float64{0: 0.5, 1: 0.5, 3: 0.75} {
		t.Run(fmt.Sprint(weight), func(t *testing.T) {
			fair(t, func(t *testing.T, w *world, c *client) {
				times := map[string]time.Duration{"long": 4 * time.Second, "short": 500 * time.Millisecond}
				for name, d := range times { // set before any of them runs
					w.handlers.byJob[name] = slowly(d)
				}
				for name := range times {
					c.applyNative(&apiv1.Job{App: name, Name: name})
					c.triggerIn(name, name)
				}
				if _, err := apiv1.NewAppsClient(c.conn).PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "long", Weight: weight}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				for range 200 {
					c.triggerIn("long", "long")
				}
				for range 1200 {
					c.triggerIn("short", "short")
				}
				time.Sleep(2 * time.Minute)
				busy := map[string]float64{}
				for name, d := range times {
					busy[name] = float64(len(w.handlers.of(name))) * d.Seconds()
				}
				if share := busy["long"] / (busy["long"] + busy["short"]); share < want-0.08 || share > want+0.08 {
					t.Errorf("the app of long runs had %.2f of the time, want %.2f: %v", share, want, busy)
				}
			})
		})
	}
}

// TestQuickFloodLeavesTurnsToSlowRuns checks that thousands of runs of a quick job do not
// hold back a slow run of another app or of the same app.
func TestQuickFloodLeavesTurnsToSlowRuns(t *testing.T) {
	for _, app := range []string{"other", "default"} {
		t.Run(app, func(t *testing.T) {
			fair(t, func(t *testing.T, w *world, c *client) {
				w.handlers.byJob["slow"] = slowly(2 * time.Second)
				w.handlers.byJob["quick"] = slowly(10 * time.Millisecond)
				c.applyNative(&apiv1.Job{App: app, Name: "slow"})
				c.applyNative(&apiv1.Job{Name: "quick"})
				c.triggerIn(app, "slow")
				c.triggerIn("default", "quick")
				time.Sleep(10 * time.Second)
				for range 4000 { // ten seconds of work
					c.triggerIn("default", "quick")
				}
				begin := time.Now()
				c.triggerIn(app, "slow")
				time.Sleep(20 * time.Second)
				all := w.handlers.of("slow")
				if len(all) != 2 {
					t.Fatalf("%d slow runs began", len(all))
				}
				if wait := all[1].at.Sub(begin); wait > time.Second {
					t.Errorf("the slow run began after %v", wait)
				}
			})
		})
	}
}

// dozing returns a handler that sleeps for d and lends its slot meanwhile, as a module
// does.
func dozing(d time.Duration) handler {
	return func(ctx context.Context, _ runtime.Task, s runtime.Sink) runtime.Result {
		sleeper, ok := s.(runtime.Sleeper)
		if ok && sleeper.Sleep() {
			defer sleeper.Wake(ctx)
		}
		select {
		case <-time.After(d):
			return runtime.Result{Outcome: runtime.Succeeded}
		case <-ctx.Done():
			return runtime.Result{Outcome: runtime.Stopped}
		}
	}
}

// TestFloodOfSleepingRuns checks that sleeping runs hold no slot: all of them are in
// progress at once, and delay nothing.
func TestFloodOfSleepingRuns(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["doze"] = dozing(8 * time.Second)
		w.handlers.byJob["tick"] = slowly(time.Millisecond)
		c.applyNative(&apiv1.Job{App: "other", Name: "tick", Schedule: &apiv1.Schedule{Every: "200ms"}})
		c.applyNative(&apiv1.Job{Name: "doze"})
		time.Sleep(5 * time.Second)
		for range 60 {
			c.triggerIn("default", "doze")
		}
		time.Sleep(4 * time.Second)
		if n := len(w.handlers.of("doze")); n != 60 {
			t.Errorf("%d of 60 runs sleep on 4 slots", n)
		}
		hosts := c.hosts()
		if h := hosts[0]; h.Sleeping != 60 || h.Running+h.Waiting > 1 {
			t.Errorf("the host: %v", h)
		}
		if o := c.overview(); o.Sleeping != 60 || o.Running != 60 || o.Dispatched != 0 {
			t.Errorf("the overview: %v", o)
		}
		if n := len(c.list(&apiv1.ListRunsRequest{State: "sleeping", PageSize: 100}).Runs); n != 60 {
			t.Errorf("%d runs are listed as sleeping", n)
		}
		time.Sleep(20 * time.Second)
		late := w.late("tick")
		if n, worst := len(late), late[len(late)-1]; n < 140 || worst > 50*time.Millisecond {
			t.Errorf("%d runs of tick began, the last of them by %v late", n, worst)
		}
		if n := c.overview().SucceededTotal; n != 60 {
			t.Errorf("%d runs have succeeded", n)
		}
	})
}

// TestCaughtRunsAreRecalled checks that quick runs which wait at a host behind unusually
// long runs are recalled and run on a host with free slots.
func TestCaughtRunsAreRecalled(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		n := 0
		w.handlers.byJob["mixed"] = func(ctx context.Context, x runtime.Task, s runtime.Sink) runtime.Result {
			w.handlers.mu.Lock()
			n++
			long := n > 1 && n <= 5
			w.handlers.mu.Unlock()
			if long {
				return slowly(time.Minute)(ctx, x, s)
			}
			return slowly(5*time.Millisecond)(ctx, x, s)
		}
		c.applyNative(&apiv1.Job{Name: "mixed"})
		c.triggerIn("default", "mixed")
		time.Sleep(time.Second)
		for range 40 { // four of them take a minute
			c.triggerIn("default", "mixed")
		}
		time.Sleep(time.Second)
		if h := c.hosts()[0]; h.Running != 4 || h.Waiting != 0 {
			t.Errorf("the host is caught: %v", h)
		}
		w.addAble("h2", 4, nil, "native:any")
		time.Sleep(time.Second)
		if n := c.overview().SucceededTotal; n != 37 {
			t.Errorf("%d of the 37 quick runs have ended on the other host", n)
		}
		time.Sleep(2 * time.Minute)
		for _, r := range c.list(&apiv1.ListRunsRequest{PageSize: 100}).Runs {
			if r.State != "succeeded" || r.Attempt > 2 {
				t.Errorf("run %s is %s after %d attempts", r.Id, r.State, r.Attempt)
			}
		}
		if n != 41 {
			t.Errorf("%d executions of 41 runs", n)
		}
	})
}

// TestStatesOfARun checks that the API distinguishes a run that waits at its host from
// one that runs or sleeps, and reports when the handler started.
func TestStatesOfARun(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["j"] = func(ctx context.Context, x runtime.Task, s runtime.Sink) runtime.Result {
			slowly(time.Second)(ctx, x, s)
			dozing(time.Second)(ctx, x, s)
			return slowly(time.Second)(ctx, x, s)
		}
		c.applyNative(&apiv1.Job{Name: "j"})
		r, err := c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: "j"})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for _, want := range []struct {
			after time.Duration
			state string
			why   string
		}{
			{50 * time.Millisecond, "dispatched", "has not run for 100 ms"},
			{500 * time.Millisecond, "running", "attempt 1 is on host h"},
			{1500 * time.Millisecond, "sleeping", "holds no slot"},
			{2500 * time.Millisecond, "running", "attempt 1 is on host h"},
			{3500 * time.Millisecond, "succeeded", ""},
		} {
			time.Sleep(time.Until(begin.Add(want.after)))
			got := c.run(r.Id)
			if got.State != want.state {
				t.Errorf("after %v: %s, want %s", want.after, got.State, want.state)
			}
			if started := got.StartedAt != nil; started != (want.state != "dispatched") || started && got.StartedAt.AsTime().Sub(begin).Abs() > 10*time.Millisecond {
				t.Errorf("%s: started %v after it was triggered", want.state, got.StartedAt.AsTime().Sub(begin))
			}
			if want.why == "" {
				continue
			}
			why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: r.Id})
			if err != nil || why.State != want.state || !strings.Contains(why.Why, want.why) {
				t.Errorf("explained as %v, want %q: %v", why, want.why, err)
			}
		}
		if a := c.run(r.Id).Attempts[0]; a.StartedAt == nil || a.FinishedAt.AsTime().Sub(a.StartedAt.AsTime()).Round(100*time.Millisecond) != 3*time.Second {
			t.Errorf("the attempt: %v", a)
		}
	})
}

// TestDeadlineAtTheHost checks that a run which waits at its host beyond its deadline is
// missed.
func TestDeadlineAtTheHost(t *testing.T) {
	fair(t, func(t *testing.T, w *world, c *client) {
		n := 0
		w.handlers.byJob["j"] = func(ctx context.Context, x runtime.Task, s runtime.Sink) runtime.Result {
			w.handlers.mu.Lock()
			n++
			long := n > 1
			w.handlers.mu.Unlock()
			if long {
				return slowly(90*time.Millisecond)(ctx, x, s)
			}
			return slowly(time.Millisecond)(ctx, x, s)
		}
		c.applyNative(&apiv1.Job{Name: "j", Deadline: "60ms"})
		c.triggerIn("default", "j") // from now on the job counts as very quick
		time.Sleep(time.Second)
		for range 12 {
			c.triggerIn("default", "j")
		}
		time.Sleep(10 * time.Second)
		missed := 0
		for _, r := range c.list(&apiv1.ListRunsRequest{PageSize: 100}).Runs {
			switch {
			case r.State == "missed" && r.Code == "deadline" && r.StartedAt == nil && strings.Contains(r.Error, "60ms"):
				missed++
			case r.State != "succeeded" || r.StartedAt.AsTime().Sub(r.PlannedAt.AsTime()) > 60*time.Millisecond:
				t.Errorf("it started %v late: %v", r.StartedAt.AsTime().Sub(r.PlannedAt.AsTime()), r)
			}
		}
		if missed != 8 || n != 5 {
			t.Errorf("%d of 8 runs were missed, %d handlers ran", missed, n)
		}
	})
}

// hosts returns all hosts that the server lists.
func (c *client) hosts() []*apiv1.Host {
	c.t.Helper()
	resp, err := c.cluster.ListHosts(context.Background(), &apiv1.ListHostsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Hosts
}

// overview returns the overview of the default app.
func (c *client) overview() *apiv1.Overview {
	c.t.Helper()
	o, err := c.cluster.GetOverview(context.Background(), &apiv1.GetOverviewRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// TestRunsOfOtherHosts: the runs of a job keep their order while their host is full and another host
// cannot execute them, and a run for that other host does not wait behind them.
func TestRunsOfOtherHosts(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		w.addAble("a", 2, nil, "native:a")
		w.addAble("b", 2, nil, "native:b")
		w.handlers.byJob["many"], w.handlers.byJob["one"] = slowly(2*time.Second), slowly(time.Millisecond)
		for job, handler := range map[string]string{"many": "native:a", "one": "native:b"} {
			if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: job, Handler: &apiv1.Handler{Name: handler}}}); err != nil {
				t.Fatal(err)
			}
		}
		var accepted []string
		for range 1500 {
			accepted = append(accepted, c.trigger("many", ""))
		}
		for range 200 { // among those that wait
			time.Sleep(73 * time.Millisecond)
			accepted = append(accepted, c.trigger("many", ""))
		}
		c.trigger("one", "")
		time.Sleep(10 * time.Millisecond)
		if n := len(w.handlers.of("one")); n != 1 {
			t.Errorf("the run for the free host has started %d times after 10 ms", n)
		}
		time.Sleep(time.Minute)
		started := w.handlers.of("many")
		if len(started) < 70 { // two every 2 s
			t.Errorf("%d runs have started in 75 s, want at least 70", len(started))
		}
		for i, x := range started { // the two slots of the host start two runs in the same moment
			if n := slices.Index(accepted, x.run); n < i-1 || n > i+1 {
				t.Fatalf("start %d is of the run that was accepted as number %d", i, n)
			}
		}
	})
}
