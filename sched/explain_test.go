package sched_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// checkReasons fails unless each reason is a code that says the same as its sentence.
func checkReasons(t *testing.T, x *apiv1.ExplainRunResponse) {
	t.Helper()
	check := func(of, why string, m *apiv1.Reason) {
		if text := (reason.Reason{Code: m.GetCode(), Values: m.GetValues()}).Text(); text != why || (m == nil) != (why == "") {
			t.Errorf("%s: the reason %v says %q, the sentence is %q", of, m, text, why)
		}
	}
	check("the run", x.Why, x.Reason)
	for _, h := range x.Hosts {
		check(h.Host, h.Why, h.Reason)
	}
}

// TestExplain checks the explanation for each reason why a run waits or is where it is.
func TestExplain(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		apps := apiv1.NewAppsClient(c.conn)
		explain := func(id, state string, texts ...string) *apiv1.ExplainRunResponse {
			t.Helper()
			x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			checkReasons(t, x)
			for _, text := range texts {
				if x.State != state || !strings.Contains(x.Why, text) {
					t.Errorf("it says %s: %q, want %s: %q", x.State, x.Why, state, text)
				}
			}
			return x
		}
		host := func(x *apiv1.ExplainRunResponse, name, text string) {
			t.Helper()
			for _, h := range x.Hosts {
				if h.Host == name {
					if h.Able != (text == "") || !strings.Contains(h.Why, text) {
						t.Errorf("of %s it says %v %q, want %q", name, h.Able, h.Why, text)
					}
					return
				}
			}
			t.Errorf("it says nothing of %s: %v", name, x)
		}
		cancel := func(id string) {
			t.Helper()
			if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
				t.Fatal(err)
			}
			c.wait(id)
		}
		const hour = time.Hour
		only := func(name string) *apiv1.Routing { return &apiv1.Routing{Hosts: []string{name}} }

		// States of a run.
		c.apply(&apiv1.Job{Name: "soon", Schedule: &apiv1.Schedule{Every: "10s"}})
		time.Sleep(9500 * time.Millisecond)
		armed := c.all("soon", "armed")
		if len(armed) != 1 {
			t.Fatalf("armed: %v", armed)
		}
		explain(armed[0].Id, "armed", "its time has not come")
		if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "soon"}); err != nil {
			t.Fatal(err)
		}
		w.handlers.byJob["fails"] = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Retryable, Error: "once more"}
		}
		c.apply(&apiv1.Job{Name: "fails", Retry: &apiv1.Retry{Max: 1, First: "1h", Limit: "1h"}})
		id := c.trigger("fails", "")
		time.Sleep(time.Second)
		explain(id, "waiting", "waits for its next attempt")
		cancel(id)
		explain(id, "stopped", "it has ended: ")
		c.apply(&apiv1.Job{Name: "quick"})
		explain(c.wait(c.trigger("quick", "")).Id, "succeeded", "it has ended")

		w.handlers.byJob["slow"] = sleeping(hour)
		c.apply(&apiv1.Job{Name: "slow", Overlap: &apiv1.Overlap{Policy: "queue"}, Routing: only("h1")})
		first, second := c.trigger("slow", ""), c.trigger("slow", "")
		time.Sleep(time.Second)
		explain(first, "running", "attempt 1 is on host h1")
		explain(second, "queued", "1 run of the job is under way")
		cancel(second)
		cancel(first)
		c.apply(&apiv1.Job{Name: "slow", Overlap: &apiv1.Overlap{Policy: "parallel", Limit: 2}, Routing: only("h1")})
		ids := []string{c.trigger("slow", ""), c.trigger("slow", ""), c.trigger("slow", "")}
		time.Sleep(time.Second)
		explain(ids[2], "queued", "2 runs of the job are under way")
		for _, id := range []string{ids[2], ids[1], ids[0]} {
			cancel(id)
		}

		// Rates.
		c.apply(&apiv1.Job{Name: "rated", Rate: &apiv1.Rate{Max: 2, Per: "1h"}})
		ids = []string{c.trigger("rated", ""), c.trigger("rated", ""), c.trigger("rated", "")}
		time.Sleep(time.Second)
		explain(ids[2], "queued", "starts at most 2 times in 1h0m0s")
		cancel(ids[2])
		if _, err := apps.PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", Rate: &apiv1.Rate{Max: 1, Per: "1h"}}}); err != nil {
			t.Fatal(err)
		}
		c.wait(c.trigger("quick", ""))
		id = c.trigger("quick", "")
		time.Sleep(time.Second)
		explain(id, "queued", "no more often than its rate allows")
		cancel(id)
		if _, err := apps.PutApp(t.Context(), &apiv1.PutAppRequest{App: &apiv1.App{Name: "default"}}); err != nil {
			t.Fatal(err)
		}

		// Parts and workflow nodes.
		c.apply(&apiv1.Job{Name: "slow", Fanout: &apiv1.Fanout{Mode: "shards", Shards: 3}})
		id = c.trigger("slow", "")
		time.Sleep(time.Second)
		explain(id, "running", "0 of its 3 parts have ended")
		parts, _ := c.under(&apiv1.ListRunsRequest{Parent: id})
		cancel(parts[1].Id)
		explain(id, "running", "1 of its 3 parts has ended")
		cancel(id)
		c.apply(&apiv1.Job{Name: "slow"})
		_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "flow", Overlap: &apiv1.Overlap{Policy: "queue"}, Workflow: &apiv1.Workflow{Nodes: []*apiv1.Node{
			{Name: "one", Job: "quick"}, {Name: "two", Job: "slow", After: []string{"one"}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		first, second = c.trigger("flow", ""), c.trigger("flow", "")
		time.Sleep(time.Second)
		explain(first, "running", "1 of its 2 nodes has ended", "under way: two")
		if x := explain(second, "queued", "1 run of the job is under way"); len(x.Hosts) > 0 {
			t.Errorf("a workflow needs no host: %v", x.Hosts)
		}
		cancel(second)
		cancel(first)

		// Hosts, each with its own reason.
		w.addLabelled("h2", 1, map[string]string{"zone": "b"})
		time.Sleep(time.Second)
		for _, tc := range []struct {
			routing  *apiv1.Routing
			one, two string // of h1 and h2
		}{
			{&apiv1.Routing{Hosts: []string{"h3"}}, "designated", "designated"},
			{&apiv1.Routing{Labels: []string{"zone=a"}}, "zone=a", "zone=a"},
			{&apiv1.Routing{Labels: []string{"zone=b", "gpu"}}, "zone=b", "gpu"},
			{&apiv1.Routing{MinFreeSlots: 100}, "free slots", "free slot"},
			{&apiv1.Routing{MaxMemoryBytes: 1}, "memory", "memory"},
		} {
			c.apply(&apiv1.Job{Name: "constrained", Routing: tc.routing})
			id := c.trigger("constrained", "")
			time.Sleep(10 * time.Second) // hosts have reported their load
			x := explain(id, "queued", "no host may take it now")
			host(x, "h1", tc.one)
			host(x, "h2", tc.two)
			cancel(id)
		}
		c.apply(&apiv1.Job{Name: "slow", Routing: &apiv1.Routing{MaxHosts: 1, Strategy: "first"}})
		first = c.trigger("slow", "")
		time.Sleep(time.Second)
		on := c.run(first).Host
		c.apply(&apiv1.Job{Name: "slow", Routing: &apiv1.Routing{MaxHosts: 1, Hosts: []string{map[string]string{"h1": "h2", "h2": "h1"}[on]}}})
		second = c.trigger("slow", "")
		time.Sleep(time.Second)
		explain(second, "queued", "no host may take it now")
		cancel(second)
		cancel(first)
		c.apply(&apiv1.Job{Name: "slow"})

		// A host that is not connected, one that is leaving, and none at all.
		w.removeHost("h1")
		time.Sleep(time.Second)
		x := explain(trigger(c, "quick", only("h1")), "queued", "no host may take it now")
		host(x, "h1", "connected")
		host(x, "h2", "designated")
		w.removeHost("h2")
		time.Sleep(2 * hour) // the hosts are forgotten
		c.apply(&apiv1.Job{Name: "quick"})
		explain(c.trigger("quick", ""), "queued", "there is no host: start one")

		if _, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: strings.Repeat("0", 26)}); err == nil {
			t.Error("a run that is not there is explained")
		}
	})
}

// cramped is a journal whose disk is full while the flag is set.
type cramped struct {
	journal.Journal
	full atomic.Bool
}

func (j *cramped) Room() int64 {
	if j.full.Load() {
		return 0
	}
	return j.Journal.Room()
}

func TestExplainAFullDisk(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		j := &cramped{}
		w.stopServer()
		w.wrap = func(inner journal.Journal) journal.Journal { j.Journal = inner; return j }
		w.start()
		c.reconnect(w)
		w.removeHost("h1")
		c.apply(&apiv1.Job{Name: "quick"})
		id := c.trigger("quick", "")
		j.full.Store(true)
		x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
		if err != nil || x.State != "queued" || !strings.Contains(x.Why, "disk is full") {
			t.Errorf("explain: %v, %v", x, err)
		}
		j.full.Store(false)
		w.addHost("h1", 1)
		c.wait(id)
	})
}

// trigger triggers a job after setting its routing, and waits for a second.
func trigger(c *client, name string, routing *apiv1.Routing) string {
	c.apply(&apiv1.Job{Name: name, Routing: routing})
	id := c.trigger(name, "")
	time.Sleep(time.Second)
	return id
}

func TestExplainWhatACrashedServerMayHaveSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 0)
		s.ledger.do = sleeping(20 * time.Second)
		s.w.start()
		s.c = s.w.client()
		s.c.push()
		m := &machine{w: s.w, id: "a", slots: 1, ledger: s.ledger}
		m.start()
		s.c.apply(&apiv1.Job{Name: "j"})
		time.Sleep(time.Second)
		run := s.c.trigger("j", "")
		synctest.Wait()
		s.disk.cutPower(1, false)
		if _, err := s.c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: "j"}); err == nil {
			t.Fatal("the power did not fail")
		}
		s.stopServer(true)
		m.sever()
		s.w.start()
		s.c.reconnect(s.w)
		time.Sleep(time.Second)
		x, err := s.c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: run})
		if err != nil || x.State != "queued" || !strings.Contains(x.Why, "may have sent it") {
			t.Errorf("explain: %v, %v", x, err)
		}
		m.heal()
		if r := s.c.wait(run); r.State != "succeeded" || len(s.ledger.execs) != 1 {
			t.Errorf("%d tasks began: %v", len(s.ledger.execs), r)
		}
		m.stop()
		s.stopServer(false)
		s.c.close()
	})
}
