package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// states returns the states of a job's runs in the order of their planned times.
func states(runs []*apiv1.Run) []string {
	slices.SortFunc(runs, func(a, b *apiv1.Run) int { return strings.Compare(a.Id, b.Id) })
	var out []string
	for _, r := range runs {
		out = append(out, r.State)
	}
	return out
}

func count(list []string, s string) int {
	n := 0
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		name     string
		overlap  *apiv1.Overlap
		want     []string // states after all runs have ended
		together int      // the largest number of runs at once
	}{
		{"parallel", nil, []string{"succeeded", "succeeded", "succeeded", "succeeded"}, 4},
		{"parallel 2", &apiv1.Overlap{Policy: "parallel", Limit: 2}, []string{"succeeded", "succeeded", "succeeded", "succeeded"}, 2},
		{"queue", &apiv1.Overlap{Policy: "queue"}, []string{"succeeded", "succeeded", "succeeded", "succeeded"}, 1},
		{"queue 1", &apiv1.Overlap{Policy: "queue", Limit: 1}, []string{"succeeded", "succeeded", "skipped", "skipped"}, 1},
		{"discard", &apiv1.Overlap{Policy: "discard"}, []string{"succeeded", "skipped", "skipped", "skipped"}, 1},
		{"cover", &apiv1.Overlap{Policy: "cover"}, []string{"stopped", "skipped", "skipped", "succeeded"}, 1},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s restart %v", c.name, restart), func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world, cl *client) {
					running, most := 0, 0
					w.handlers.byJob["j"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
						w.mu.Lock()
						running++
						most = max(most, running)
						w.mu.Unlock()
						defer func() { w.mu.Lock(); running--; w.mu.Unlock() }()
						return sleeping(30*time.Second)(ctx, task, s)
					}
					cl.apply(&apiv1.Job{Name: "j", Overlap: c.overlap})
					var ids []string
					for range 4 { // each is accepted while the first is live, unless cover has stopped it
						ids = append(ids, cl.trigger("j", ""))
						time.Sleep(10 * time.Millisecond)
					}
					if restart {
						w.stopServer()
						w.start()
						cl.reconnect(w)
					}
					var got []string
					for _, id := range ids {
						got = append(got, cl.wait(id).State)
					}
					if c.name == "cover" { // a replacing run may itself be replaced while it waits
						if got[0] != "stopped" || got[3] != "succeeded" || count(got, "succeeded") != 1 {
							t.Errorf("states %q", got)
						}
					} else if !slices.Equal(got, c.want) {
						t.Errorf("states %q, want %q", got, c.want)
					}
					if most != c.together {
						t.Errorf("%d ran at once, want %d", most, c.together)
					}
					j, err := cl.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "j"})
					if err != nil || j.Stats.Live != 0 || int(j.Stats.Succeeded) != count(got, "succeeded") || int(j.Stats.Failed) != count(got, "stopped") {
						t.Errorf("counters %v, %v", j.GetStats(), err)
					}
				})
			})
		}
	}
}

func TestOverlapOfScheduledRuns(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = sleeping(25 * time.Second)
		c.apply(&apiv1.Job{Name: "slow", Schedule: &apiv1.Schedule{Every: "10s"}, Overlap: &apiv1.Overlap{Policy: "discard"}})
		time.Sleep(93 * time.Second)
		got := states(c.all("slow", ""))
		if s, k := count(got, "succeeded"), count(got, "skipped"); s != 2 || k != 6 {
			t.Errorf("%d succeeded and %d skipped of %q", s, k, got)
		}
		for _, r := range c.all("slow", "skipped") {
			if r.Code != "overlap" || r.Attempt != 0 || r.Error == "" {
				t.Errorf("a skipped run: %v", r)
			}
		}
	})
}

func TestDeadlinePriorityAndRate(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.removeHost("h1")
		c.apply(&apiv1.Job{Name: "urgent", Deadline: "10s"})
		missed := c.wait(c.trigger("urgent", ""))
		if missed.State != "missed" || missed.Code != "deadline" || missed.FinishedAt.AsTime().Sub(missed.PlannedAt.AsTime()) > 11*time.Second {
			t.Errorf("past its deadline: %v", missed)
		}
		w.handlers.byJob["low"], w.handlers.byJob["high"] = sleeping(time.Second), sleeping(time.Second)
		c.apply(&apiv1.Job{Name: "low", Priority: -5})
		c.apply(&apiv1.Job{Name: "high", Priority: 5})
		var ids []string
		for range 5 {
			ids = append(ids, c.trigger("low", ""))
		}
		for range 5 {
			ids = append(ids, c.trigger("high", ""))
		}
		w.addHost("h1", 1)
		for _, id := range ids {
			c.wait(id)
		}
		if low, high := w.handlers.of("low"), w.handlers.of("high"); low[0].at.Before(high[4].at) {
			t.Error("a run of low priority started before those of high priority")
		}
		c.apply(&apiv1.Job{Name: "rated", Rate: &apiv1.Rate{Max: 2, Per: "1s"}})
		ids = nil
		for range 10 {
			ids = append(ids, c.trigger("rated", ""))
		}
		for _, id := range ids {
			c.wait(id)
		}
		calls := w.handlers.of("rated")
		for i := 2; i < len(calls); i++ {
			if d := calls[i].at.Sub(calls[i-2].at); i >= 3 && d < 900*time.Millisecond {
				t.Errorf("start %d came %s after start %d", i, d, i-2)
			}
		}
		if d := calls[9].at.Sub(calls[0].at); d < 4*time.Second || d > 5*time.Second {
			t.Errorf("10 starts at 2 a second took %s", d)
		}
	})
}

func TestRoutingAndExplain(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.addLabelled("h2", 4, map[string]string{"zone": "b"})
		w.addLabelled("h3", 4, map[string]string{"zone": "b"})
		time.Sleep(time.Second)
		hosts := func(name string, routing *apiv1.Routing, n int) []string {
			c.apply(&apiv1.Job{Name: name, Routing: routing})
			var out []string
			for range n {
				out = append(out, c.wait(c.trigger(name, "")).Host)
			}
			return out
		}
		for _, tc := range []struct {
			routing *apiv1.Routing
			want    []string
		}{
			{&apiv1.Routing{Strategy: "first"}, []string{"h1", "h1", "h1"}},
			{&apiv1.Routing{Strategy: "last"}, []string{"h3", "h3", "h3"}},
			{&apiv1.Routing{Strategy: "round_robin"}, []string{"h1", "h2", "h3", "h1"}},
			{&apiv1.Routing{Strategy: "round_robin", Labels: []string{"zone=b"}}, []string{"h2", "h3", "h2"}},
			{&apiv1.Routing{Hosts: []string{"h2"}}, []string{"h2", "h2"}},
			{&apiv1.Routing{Labels: []string{"!zone"}}, []string{"h1", "h1"}},
		} {
			name := strings.ReplaceAll(strings.NewReplacer("=", "-", "!", "not-").Replace(tc.routing.Strategy+strings.Join(tc.routing.Labels, "")+strings.Join(tc.routing.Hosts, "")), " ", "")
			if got := hosts(name, tc.routing, len(tc.want)); !slices.Equal(got, tc.want) {
				t.Errorf("%v went to %q, want %q", tc.routing, got, tc.want)
			}
		}
		var ids []string
		c.apply(&apiv1.Job{Name: "many", Routing: &apiv1.Routing{Strategy: "round_robin"}})
		w.handlers.byJob["many"] = sleeping(10 * time.Millisecond)
		c.wait(c.trigger("many", "")) // hosts without a free slot are skipped unless the job is known to be quick
		for range 60 {
			ids = append(ids, c.trigger("many", ""))
		}
		on := map[string]int{}
		for _, id := range ids {
			on[c.wait(id).Host]++
		}
		if on["h1"] != 20 || on["h2"] != 20 || on["h3"] != 20 {
			t.Errorf("60 runs went round robin to %v", on)
		}
		// The state of a strategy survives a restart.
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(5 * time.Second)
		if got := c.wait(c.trigger("round_robin", "")).Host; got != "h2" {
			t.Errorf("round robin went on with %s after a restart, want h2", got)
		}
		// A run without a capable host says why for each host, and is dispatched when a
		// capable host connects.
		c.apply(&apiv1.Job{Name: "gpu", Routing: &apiv1.Routing{Labels: []string{"gpu"}}})
		id := c.trigger("gpu", "")
		time.Sleep(time.Second)
		x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
		if err != nil || x.State != "queued" || len(x.Hosts) != 3 || x.Hosts[0].Able || !strings.Contains(x.Hosts[0].Why, "gpu") {
			t.Errorf("explain: %v, %v", x, err)
		}
		w.addLabelled("h4", 1, map[string]string{"gpu": "1"})
		if r := c.wait(id); r.Host != "h4" {
			t.Errorf("the run went to %s", r.Host)
		}
	})
}

func TestFanout(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.addHost("h2", 4)
		time.Sleep(time.Second)
		bad := true
		w.handlers.byJob["shards"] = func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			if task.Parts != 10 {
				return runtime.Result{Outcome: runtime.Permanent, Error: fmt.Sprintf("parts %d", task.Parts)}
			}
			if task.Part == 7 && bad {
				return runtime.Result{Outcome: runtime.Permanent, Error: "seven"}
			}
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "shards", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 10}})
		r := c.wait(c.trigger("shards", ""))
		if r.State != "failed" || r.Parts != 10 || r.PartsSucceeded != 9 || r.PartsFailed != 1 || !strings.Contains(r.Error, "part 7") {
			t.Fatalf("parent: %v", r)
		}
		if n := len(w.handlers.of("shards")); n != 10 {
			t.Fatalf("%d executions of 10 parts", n)
		}
		bad = false
		again, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: r.Id})
		if err != nil {
			t.Fatal(err)
		}
		if r := c.wait(again.Id); r.State != "succeeded" || r.PartsSucceeded != 10 || r.Cause == "" || r.Trigger != "retry" {
			t.Errorf("retried parent: %v", r)
		}
		if n := len(w.handlers.of("shards")); n != 11 {
			t.Errorf("%d executions after the retry of one part, want 11", n)
		}
		c.apply(&apiv1.Job{Name: "all", Fanout: &apiv1.Fanout{Mode: "broadcast"}})
		r = c.wait(c.trigger("all", ""))
		if r.State != "succeeded" || r.Parts != 2 {
			t.Fatalf("broadcast: %v", r)
		}
		on := map[string]bool{}
		for _, p := range c.all("all", "") {
			if p.Parent == r.Id {
				on[p.Host] = true
			}
		}
		if !on["h1"] || !on["h2"] {
			t.Errorf("the broadcast ran on %v", on)
		}
		// Cancelling the parent ends its parts, also after a restart.
		w.handlers.byJob["long"] = sleeping(time.Hour)
		c.apply(&apiv1.Job{Name: "long", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 4}})
		id := c.trigger("long", "")
		time.Sleep(time.Second)
		w.stopServer()
		w.start()
		c.reconnect(w)
		time.Sleep(2 * time.Second)
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		if r := c.wait(id); r.State != "stopped" || r.PartsFailed != 4 {
			t.Errorf("cancelled parent: %v", r)
		}
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "long"})
		if err != nil || j.Stats.Failed != 1 || j.Stats.Live != 0 {
			t.Errorf("counters count the parent alone: %v, %v", j.GetStats(), err)
		}
	})
}

func TestDependencies(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		fail := false
		w.handlers.byJob["a"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			if fail {
				return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
			}
			return runtime.Result{Outcome: runtime.Succeeded, Output: []byte("from a")}
		}
		c.apply(&apiv1.Job{Name: "a"})
		c.apply(&apiv1.Job{Name: "b"})
		c.apply(&apiv1.Job{Name: "both", Dependency: &apiv1.Dependency{Jobs: []string{"a", "b"}}})
		c.apply(&apiv1.Job{Name: "each", Dependency: &apiv1.Dependency{Jobs: []string{"a", "b"}, Need: "any", On: "end", PassOutput: true}})
		c.apply(&apiv1.Job{Name: "alarm", Dependency: &apiv1.Dependency{Jobs: []string{"a"}, On: "failure"}})
		first := c.trigger("a", "")
		c.wait(first)
		time.Sleep(time.Second)
		w.stopServer() // dependencies that were met before a restart count
		w.start()
		c.reconnect(w)
		c.wait(c.trigger("b", ""))
		time.Sleep(time.Second)
		fail = true
		c.wait(c.trigger("a", ""))
		time.Sleep(time.Second)
		for name, want := range map[string]int{"both": 1, "each": 3, "alarm": 1} {
			if n := len(w.handlers.of(name)); n != want {
				t.Errorf("%s ran %d times, want %d", name, n, want)
			}
		}
		var passed bool
		for _, r := range c.all("each", "") {
			full, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: r.Id})
			if err != nil || full.Trigger != "dependency" {
				t.Fatalf("run %v: %v", full, err)
			}
			if full.Cause == first {
				passed = full.Input == "from a"
			}
		}
		if !passed {
			t.Error("the output was not passed on")
		}
		_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{
			Name: "a", Handler: &apiv1.Handler{Module: "m@1"}, Dependency: &apiv1.Dependency{Jobs: []string{"both"}},
		}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "circle") {
			t.Errorf("a circle: %v", err)
		}
	})
}

func TestMisfire(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		every := func(name string, m *apiv1.Misfire) {
			c.apply(&apiv1.Job{Name: name, Schedule: &apiv1.Schedule{Every: "10m"}, Misfire: m})
		}
		every("once", nil)
		every("skip", &apiv1.Misfire{Policy: "skip"})
		every("all", &apiv1.Misfire{Policy: "fire_all"})
		every("some", &apiv1.Misfire{Policy: "fire_all", Max: 2})
		c.apply(&apiv1.Job{Name: "counted", Schedule: &apiv1.Schedule{Every: "10m", MaxRuns: 3}, Misfire: &apiv1.Misfire{Policy: "fire_all"}})
		w.stopServer()
		time.Sleep(65 * time.Minute) // six planned times pass
		w.start()
		c.reconnect(w)
		time.Sleep(2 * time.Second)
		for name, want := range map[string]struct {
			ran, missed int
			covers      int64
		}{"once": {1, 0, 5}, "skip": {0, 1, 5}, "all": {6, 0, 0}, "some": {2, 1, 3}, "counted": {3, 0, 0}} {
			runs := c.all(name, "")
			got := states(runs)
			if count(got, "succeeded") != want.ran || count(got, "missed") != want.missed {
				t.Errorf("%s: %q", name, got)
			}
			var covers int64
			for _, r := range runs {
				covers += r.Covers
			}
			if covers != want.covers {
				t.Errorf("%s covers %d planned times, want %d", name, covers, want.covers)
			}
		}
		time.Sleep(10 * time.Minute) // the schedules continue
		for name, want := range map[string]int{"once": 2, "skip": 1, "all": 7, "some": 3, "counted": 3} {
			if n := len(w.handlers.of(name)); n != want {
				t.Errorf("%s ran %d times in all, want %d", name, n, want)
			}
		}
	})
}

func TestControl(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		start := time.Now().UTC()
		c.apply(&apiv1.Job{Name: "hourly", Schedule: &apiv1.Schedule{Cron: "0 * * * *"}})
		j, err := c.jobs.SkipNext(ctx, &apiv1.SkipNextRequest{Name: "hourly"})
		if err != nil || j.NextAt.AsTime().Sub(start) < time.Hour {
			t.Fatalf("skip next: %v, %v", j, err)
		}
		time.Sleep(2*time.Hour + time.Minute)
		if got := states(c.all("hourly", "")); !slices.Equal(got, []string{"skipped", "succeeded"}) {
			t.Errorf("after two hours: %q", got)
		}
		from, until := timestamppb.New(start.Add(-24*time.Hour)), timestamppb.New(start)
		dry, err := c.jobs.BackfillJob(ctx, &apiv1.BackfillJobRequest{Name: "hourly", From: from, Until: until, DryRun: true})
		if err != nil || dry.Accepted != 24 || len(dry.Times) != 24 || len(c.all("hourly", "")) != 2 {
			t.Fatalf("dry run: %v, %v", dry, err)
		}
		for i, want := range []int32{24, 0} {
			resp, err := c.jobs.BackfillJob(ctx, &apiv1.BackfillJobRequest{Name: "hourly", From: from, Until: until})
			if err != nil || resp.Accepted != want || resp.Accepted+resp.Existing != 24 {
				t.Fatalf("backfill %d: %v, %v", i, resp, err)
			}
			time.Sleep(time.Minute)
		}
		planned := map[time.Time]bool{}
		for _, call := range w.handlers.of("hourly") {
			if planned[call.planned] {
				t.Errorf("%s ran twice", call.planned)
			}
			planned[call.planned] = true
		}
		if len(planned) != 25 {
			t.Errorf("%d planned times ran, want 25", len(planned))
		}
		part, err := c.jobs.BackfillJob(ctx, &apiv1.BackfillJobRequest{
			Name: "hourly", From: timestamppb.New(start.Add(-48 * time.Hour)), Until: from, Limit: 10,
		})
		if err != nil || part.Accepted != 10 || part.NextFrom == nil {
			t.Errorf("a part: %v, %v", part, err)
		}
		for i := range 5 {
			c.apply(&apiv1.Job{Name: fmt.Sprint("bulk-", i), Labels: map[string]string{"team": fmt.Sprint(i % 2)}})
		}
		if _, err := c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "delete"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("bulk without a choice: %v", err)
		}
		resp, err := c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "pause", Prefix: "bulk-", Labels: map[string]string{"team": "0"}})
		if err != nil || resp.Matched != 3 || resp.Changed != 3 {
			t.Errorf("bulk pause: %v, %v", resp, err)
		}
		if j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: "bulk-2"}); err != nil || !j.GetPaused() {
			t.Errorf("bulk-2: %v, %v", j, err)
		}
		resp, err = c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "delete", Names: []string{"bulk-0", "bulk-1"}})
		if err != nil || resp.Changed != 2 {
			t.Errorf("bulk delete: %v, %v", resp, err)
		}
		ended := c.all("hourly", "succeeded")[0]
		again, err := c.runs.RetryRun(ctx, &apiv1.RetryRunRequest{Id: ended.Id})
		if err != nil {
			t.Fatal(err)
		}
		if r := c.wait(again.Id); r.State != "succeeded" || r.Cause != ended.Id {
			t.Errorf("retried: %v", r)
		}
	})
}

func TestCalendars(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx, cals := t.Context(), apiv1.NewCalendarsClient(c.conn)
		day := func(n int) string { return time.Now().UTC().AddDate(0, 0, n).Format(time.DateOnly) }
		put := func(dates ...string) {
			t.Helper()
			if _, err := cals.PutCalendar(ctx, &apiv1.PutCalendarRequest{Calendar: &apiv1.Calendar{Name: "holidays", Dates: dates}}); err != nil {
				t.Fatal(err)
			}
		}
		often := func() *apiv1.Job {
			return &apiv1.Job{
				Name: "often", Handler: &apiv1.Handler{Module: "m@1"},
				Schedule: &apiv1.Schedule{Cron: "*/10 * * * *", Exclude: []string{"holidays"}},
			}
		}
		if _, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: often()}); err == nil {
			t.Fatal("a job with a calendar that is not there was accepted")
		}
		next := func() time.Time {
			j, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{Name: "often"})
			if err != nil {
				t.Fatal(err)
			}
			return j.NextAt.AsTime()
		}
		put(day(0), day(1))
		c.apply(often())
		if got := next(); got.Format(time.DateOnly) != day(2) {
			t.Errorf("next is %s, want one of %s", got, day(2))
		}
		put(day(1)) // a change of the calendar takes effect at once
		time.Sleep(time.Until(next()) + time.Second)
		if n := len(w.handlers.of("often")); n != 1 {
			t.Errorf("%d runs, want one", n)
		}
		if _, err := cals.DeleteCalendar(ctx, &apiv1.DeleteCalendarRequest{Name: "holidays"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("delete of a calendar in use: %v", err)
		}
		time.Sleep(time.Until(next()) - 500*time.Millisecond) // also while the run is armed
		put(day(0))
		w.stopServer()
		w.start()
		c.reconnect(w)
		cals = apiv1.NewCalendarsClient(c.conn)
		time.Sleep(time.Minute)
		if n := len(w.handlers.of("often")); n != 1 {
			t.Errorf("%d runs, an excluded day ran", n)
		}
		got, err := cals.GetCalendar(ctx, &apiv1.GetCalendarRequest{Name: "holidays"})
		if err != nil || len(got.Dates) != 1 {
			t.Errorf("calendar: %v, %v", got, err)
		}
	})
}

// TestSlowJobsLeaveRoom checks that a quick run starts at once on a host that is full of
// runs of a minute.
func TestSlowJobsLeaveRoom(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = sleeping(time.Minute)
		c.apply(&apiv1.Job{Name: "slow"})
		c.apply(&apiv1.Job{Name: "quick"})
		c.wait(c.trigger("slow", "")) // until the job is known to be slow
		c.wait(c.trigger("quick", ""))
		var slow []string
		for range 20 {
			slow = append(slow, c.trigger("slow", ""))
		}
		time.Sleep(5 * time.Second)
		if n := len(w.handlers.of("slow")); n != 4 { // the first one, then three of four slots
			t.Errorf("%d slow runs started, want 4", n)
		}
		before := time.Now()
		c.wait(c.trigger("quick", ""))
		if d := time.Since(before); d > 100*time.Millisecond {
			t.Errorf("a quick run took %s beside slow ones", d)
		}
		x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: slow[19]})
		if err != nil || len(x.Hosts) != 1 || x.Hosts[0].Able {
			t.Errorf("explain: %v, %v", x, err)
		}
		for _, id := range slow { // a minute after the last quick run, slow runs get all slots
			c.wait(id)
		}
		if first, last := w.handlers.of("slow")[1].at, w.handlers.of("slow")[20].at; last.Sub(first) > 7*time.Minute {
			t.Errorf("20 slow runs in 4 slots took %s", last.Sub(first))
		}
	})
}

func TestRateOfAnApp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		apps := apiv1.NewAppsClient(c.conn)
		if _, err := apps.PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", Rate: &apiv1.Rate{Max: 4, Per: "1s"}}}); err != nil {
			t.Fatal(err)
		}
		c.apply(&apiv1.Job{Name: "a"})
		c.apply(&apiv1.Job{Name: "b"})
		var ids []string
		for range 10 {
			ids = append(ids, c.trigger("a", ""), c.trigger("b", ""))
		}
		w.stopServer() // the rate of an app survives a restart
		w.start()
		c.reconnect(w)
		apps = apiv1.NewAppsClient(c.conn)
		for _, id := range ids {
			c.wait(id)
		}
		calls := append(w.handlers.of("a"), w.handlers.of("b")...)
		slices.SortFunc(calls, func(x, y call) int { return x.at.Compare(y.at) })
		if d := calls[19].at.Sub(calls[0].at); len(calls) != 20 || d < 3*time.Second || d > 6*time.Second {
			t.Errorf("%d starts of two jobs at 4 a second took %s", len(calls), d)
		}
		list, err := apps.ListApps(t.Context(), &apiv1.ListAppsRequest{})
		if err != nil || len(list.Apps) != 1 || list.Apps[0].Jobs != 2 || list.Apps[0].Rate.GetMax() != 4 {
			t.Errorf("apps: %v, %v", list, err)
		}
		_, err = apps.PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", Rate: &apiv1.Rate{}}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a rate of nothing: %v", err)
		}
	})
}

// TestOverlapChanged checks that runs which were accepted while their job allowed any
// number of runs at once count for its new overlap policy.
func TestOverlapChanged(t *testing.T) {
	for _, c := range []struct {
		name    string
		overlap *apiv1.Overlap
		old     []string // final states of the runs that were live at the change
		want    string   // final state of the run after them
		after   int      // how many of the live runs have ended when that run starts

		restarts int // how many of the restart cases apply
	}{
		{"discard", &apiv1.Overlap{Policy: "discard"}, []string{"succeeded", "succeeded", "succeeded"}, "skipped", 0, 3},
		{"queue", &apiv1.Overlap{Policy: "queue"}, []string{"succeeded", "succeeded", "succeeded"}, "succeeded", 3, 2},
		{"cover", &apiv1.Overlap{Policy: "cover"}, []string{"stopped", "stopped", "cancelled"}, "succeeded", 3, 3},
		{"parallel 2", &apiv1.Overlap{Policy: "parallel", Limit: 2}, []string{"succeeded", "succeeded", "succeeded"}, "succeeded", 2, 2},
		{"parallel 4", &apiv1.Overlap{Policy: "parallel", Limit: 4}, []string{"succeeded", "succeeded", "succeeded"}, "succeeded", 0, 1},
	} {
		for _, restart := range []string{"none", "after the change", "before the change"}[:c.restarts] {
			t.Run(c.name+", restart "+restart, func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world, cl *client) {
					w.removeHost("h1")
					w.addLabelled("h1", 2, map[string]string{"old": ""})
					again := func(when string) {
						if restart == when {
							w.stopServer()
							w.start()
							cl.reconnect(w)
							time.Sleep(5 * time.Second)
						}
					}
					w.handlers.byJob["j"] = sleeping(time.Minute)
					cl.apply(&apiv1.Job{Name: "j", Routing: &apiv1.Routing{Labels: []string{"old"}}})
					var ids []string
					for range 2 {
						ids = append(ids, cl.trigger("j", ""))
					}
					time.Sleep(time.Second)
					cl.apply(&apiv1.Job{Name: "j", Routing: &apiv1.Routing{Labels: []string{"late"}}})
					ids = append(ids, cl.trigger("j", "")) // accepted, but without a host that may take it
					time.Sleep(time.Second)
					again("before the change")
					cl.apply(&apiv1.Job{Name: "j", Overlap: c.overlap})
					again("after the change")
					w.addHost("h2", 4)
					id := cl.trigger("j", "")
					time.Sleep(2 * time.Second)
					w.addLabelled("h3", 4, map[string]string{"late": ""})
					last := cl.wait(id)
					if last.State != c.want || c.want == "skipped" && last.Code != "overlap" {
						t.Errorf("behind them: %v, want %s", last, c.want)
					}
					before := 0
					for i, id := range ids {
						r := cl.wait(id)
						if r.State != c.old[i] {
							t.Errorf("run %d: %s (%s), want %s", i, r.State, r.Error, c.old[i])
						}
						if last.StartedAt != nil && !r.FinishedAt.AsTime().After(last.StartedAt.AsTime()) {
							before++
						}
					}
					if c.want == "succeeded" && before != c.after {
						t.Errorf("%d had ended when it started, want %d", before, c.after)
					}
					// The overlap queue is empty again: the next run starts.
					if r := cl.wait(cl.trigger("j", "")); r.State != "succeeded" {
						t.Errorf("the next one: %v", r)
					}
				})
			})
		}
	}
}
