package sched_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// applyNamed defines a job whose handler is not in a module.
func (c *client) applyNamed(handler string, j *apiv1.Job) {
	c.t.Helper()
	j.Handler = &apiv1.Handler{Name: handler}
	if _, err := c.jobs.ApplyJob(c.t.Context(), &apiv1.ApplyJobRequest{Job: j}); err != nil {
		c.t.Fatal(err)
	}
}

// TestRunsGoToHostsThatRunTheirHandler checks that a run goes only to hosts that
// announced its handler, whatever slots other hosts have and whatever the order of the
// queue is.
func TestRunsGoToHostsThatRunTheirHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.push()
		c.apply(&apiv1.Job{Name: "module"})
		c.applyNamed("native:settle", &apiv1.Job{Name: "settle"})
		c.applyNamed("plugin:ledger/close", &apiv1.Job{Name: "ledger"})
		c.applyNamed("native:settle", &apiv1.Job{Name: "first", Routing: &apiv1.Routing{Strategy: "first"}})
		c.applyNamed("native:settle", &apiv1.Job{Name: "all", Fanout: &apiv1.Fanout{Mode: "broadcast"}})
		w.addAble("a-modules", 32, nil, "wasi-p1", "wheelwork_v1.0")
		w.addAble("b-settle", 1, nil, "native:settle")
		w.addAble("c-settle", 1, nil, "native:other", "native:settle")
		w.addAble("d-ledger", 1, nil, "plugin:ledger", "wasi-p1")
		w.addAble("e-old", 1, nil)
		w.addAble("f-another-app", 32, nil, "native:settle@elsewhere", "plugin:ledger@elsewhere")
		time.Sleep(time.Second)

		want := map[string][]string{
			"module": {"a-modules", "d-ledger", "e-old"}, "settle": {"b-settle", "c-settle"}, "ledger": {"d-ledger"}, "first": {"b-settle", "c-settle"},
		}
		ids := map[string][]string{}
		for i := range 40 { // more than the slots of the small hosts
			for name := range want {
				ids[name] = append(ids[name], c.trigger(name, fmt.Sprint(name, i)))
			}
		}
		for name, hosts := range want {
			got := map[string]bool{}
			for _, id := range ids[name] {
				r := c.wait(id)
				if r.State != "succeeded" {
					t.Fatalf("%s: %s: %s", name, r.State, r.Error)
				}
				got[r.Host] = true
			}
			for h := range got {
				if !slices.Contains(hosts, h) {
					t.Errorf("%s ran on %s", name, h)
				}
			}
		}
		if r := c.wait(c.trigger("all", "")); r.State != "succeeded" || r.Parts != 2 {
			t.Errorf("a broadcast: %s with %d parts, two hosts run it", r.State, r.Parts)
		}
	})
}

// TestRunWaitsForAHostThatRunsItsHandler checks that a run without a capable host waits,
// says why, does not hold up other runs, and is dispatched when such a host connects.
func TestRunWaitsForAHostThatRunsItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.push()
		c.apply(&apiv1.Job{Name: "module"})
		c.applyNamed("native:settle", &apiv1.Job{Name: "settle"})
		w.addAble("modules", 1, nil, "wasi-p1")
		time.Sleep(time.Second)
		id := c.trigger("settle", "")
		if r := c.wait(c.trigger("module", "")); r.State != "succeeded" {
			t.Fatalf("a run behind one that waits for a host: %s", r.State)
		}
		x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
		if err != nil || len(x.Hosts) != 1 || x.Hosts[0].Able || x.Hosts[0].Why != "does not run native:settle" {
			t.Errorf("explained: %v, %v", x, err)
		}
		w.addAble("worker", 1, nil, "native:settle")
		if r := c.wait(id); r.State != "succeeded" || r.Host != "worker" || r.Handler != "native:settle" || r.Module != "" {
			t.Errorf("the run: %v", r)
		}

		// A module waits while only a worker is connected.
		w.removeHost("modules")
		id = c.trigger("module", "again")
		time.Sleep(time.Second)
		x, err = c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
		if err != nil || x.State != "queued" {
			t.Fatalf("explained: %v, %v", x, err)
		}
		for _, h := range x.Hosts {
			if h.Host == "worker" && h.Why != "does not run modules" {
				t.Errorf("the worker %s", h.Why)
			}
		}
	})
}

// TestWorkersAdoptTheirOwnRuns checks that a worker of native functions which claims a
// queued run of a module neither adopts nor ends it.
func TestWorkersAdoptTheirOwnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.pushVersions("1")
		for module, name := range map[string]string{"n@1": "theirs", "": "mine"} {
			d := &apiv1.Job{Name: name, Handler: &apiv1.Handler{Module: module}}
			if module == "" {
				d.Handler.Name = "native:mine"
			}
			if _, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: d}); err != nil {
				t.Fatal(err)
			}
		}
		theirs, mine := c.trigger("theirs", ""), c.trigger("mine", "")
		synctest.Wait()
		claim := func(id string) *apiv1.Running {
			run, err := job.ParseRunID(id)
			if err != nil {
				t.Fatal(err)
			}
			return &apiv1.Running{App: "default", Run: run[:], Attempt: 1}
		}
		s, err := apiv1.NewWorkerClient(c.conn).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, b := claim(theirs), claim(mine)
		for _, up := range []*apiv1.WorkUp{
			{Hello: &apiv1.Hello{Host: "w", Session: "s", Abi: []string{"native:mine"}, Running: []*apiv1.Running{a, b}}},
			{Batch: 1, Results: []*apiv1.TaskResult{
				{App: "default", Run: a.Run, Attempt: 1, Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED, Output: []byte("forged")},
				{App: "default", Run: b.Run, Attempt: 1, Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED, Output: []byte("own")},
			}},
		} {
			if err := s.Send(up); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for id, want := range map[string]string{theirs: "queued ", mine: "succeeded own"} {
			r, err := c.runs.GetRun(t.Context(), &apiv1.GetRunRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.State + " " + r.Output; got != want {
				t.Errorf("run of %s: %s, want %s", r.Job, got, want)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}

// TestAbilitiesThatChange checks that a host gets no run whose handler it stopped
// offering, that the explanation says so, and that the run is dispatched when the host
// offers the handler again.
func TestAbilitiesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.close()
		c := w.client()
		defer c.close()
		c.push()
		c.apply(&apiv1.Job{Name: "module"})
		c.applyNamed("plugin:p/main", &apiv1.Job{Name: "plugin"})
		s, err := apiv1.NewWorkerClient(c.conn).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tasks := make(chan *apiv1.Task, 10)
		go func() {
			for {
				m, err := s.Recv()
				if err != nil {
					return
				}
				for _, task := range m.Tasks {
					tasks <- task
				}
			}
		}()
		say := func(up *apiv1.WorkUp) {
			t.Helper()
			if err := s.Send(up); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := func() string {
			time.Sleep(time.Second)
			synctest.Wait()
			var names []string
			for len(tasks) > 0 {
				names = append(names, (<-tasks).Job)
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		}
		say(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "h", Session: "s", Abi: []string{"wasi-p1", "wheelwork_v1.9", "plugin:p"}}, Credits: 100})
		c.trigger("plugin", "1")
		c.trigger("module", "1")
		if have := got(); have != "[module plugin]" {
			t.Errorf("at first the host got %s", have)
		}
		say(&apiv1.WorkUp{Abilities: &apiv1.Abilities{Abi: []string{"wasi-p1", "wheelwork_v1.9"}}})
		waits := c.trigger("plugin", "2")
		c.trigger("module", "2")
		if have := got(); have != "[module]" {
			t.Errorf("while its plugin was down the host got %s", have)
		}
		if x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: waits}); err != nil || len(x.Hosts) != 1 || x.Hosts[0].Why != "does not run plugin:p" {
			t.Errorf("the run waits because %v, %v", x, err)
		}
		if hosts, err := c.cluster.ListHosts(t.Context(), &apiv1.ListHostsRequest{}); err != nil || !slices.Equal(hosts.Hosts[0].Abi, []string{"wasi-p1", "wheelwork_v1.9"}) {
			t.Errorf("the host is shown as %v, %v", hosts, err)
		}
		say(&apiv1.WorkUp{Abilities: &apiv1.Abilities{Abi: []string{"wasi-p1", "wheelwork_v1.9", "plugin:p"}}})
		if have := got(); have != "[plugin]" {
			t.Errorf("when its plugin was up again the host got %s", have)
		}
		say(&apiv1.WorkUp{Abilities: &apiv1.Abilities{}}) // the host runs nothing, not even modules
		c.trigger("module", "3")
		c.trigger("plugin", "3")
		if have := got(); have != "[]" {
			t.Errorf("a host that runs nothing got %s", have)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}
