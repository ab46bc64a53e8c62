package sched_test

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// calls returns the apps for which the partition needs further hosts.
func (w *world) calls() map[string]bool {
	w.t.Helper()
	c, err := w.srv.HostDemand(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Borrow
}

// TestHostDemandBorrows checks that a partition borrows hosts for an app if its own hosts
// cannot take a run, or have no room for a second, but not for a run that waits for
// another reason.
func TestHostDemandBorrows(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["long"] = sleeping(20 * time.Second)
		want := func(what string, calls map[string]bool) {
			t.Helper()
			for range 3 {
				time.Sleep(700 * time.Millisecond)
				w.calls()
			}
			if got := w.calls(); !maps.Equal(got, calls) {
				t.Errorf("%s: it calls %v, want %v", what, got, calls)
			}
		}
		time.Sleep(time.Second)
		demand, err := w.srv.HostDemand(t.Context())
		if err != nil || len(demand.Hosts) != 1 || demand.Hosts[0].Slots != demand.Hosts[0].Free || demand.Hosts[0].Free == 0 {
			t.Fatalf("%+v, %v", demand, err)
		}
		want("nothing to do", map[string]bool{})

		c.apply(&apiv1.Job{Name: "there", Routing: &apiv1.Routing{Hosts: []string{"elsewhere"}}})
		id := c.trigger("there", "")
		if got := w.calls(); len(got) != 0 {
			t.Errorf("it calls %v at once", got)
		}
		want("a run for a host that is not here", map[string]bool{"default": true})
		if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		want("it was cancelled", map[string]bool{})

		c.apply(&apiv1.Job{Name: "long", Routing: &apiv1.Routing{MaxHosts: 1, MinFreeSlots: int32(demand.Hosts[0].Slots)}})
		ids := []string{c.trigger("long", "")}
		time.Sleep(time.Second)
		ids = append(ids, c.trigger("long", ""))
		want("the job may run on no host more", map[string]bool{})
		for _, id := range ids {
			c.wait(id)
		}

		c.apply(&apiv1.Job{Name: "long"})
		ids = nil
		for range 200 {
			ids = append(ids, c.trigger("long", ""))
		}
		want("its host has no room", map[string]bool{"default": false})
		for _, id := range ids {
			if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			c.wait(id)
		}
	})
}

// TestBroadcastAwaitsTheOthers checks that a broadcast borrows the hosts of other
// partitions, begins when all of them are connected, and counts once against its rate.
func TestBroadcastAwaitsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all atomic.Int64
		all.Store(3)
		w.gathered = func(app string, have int) bool { return app == "default" && have >= int(all.Load()) }
		w.start()
		c := w.client()
		c.push()
		w.addHost("a", 1)
		w.addHost("b", 1)
		time.Sleep(5 * time.Second)
		c.apply(&apiv1.Job{Name: "all", Fanout: &apiv1.Fanout{Mode: "broadcast"}, Rate: &apiv1.Rate{Max: 1, Per: "1h"}})
		id := c.trigger("all", "")
		time.Sleep(2 * time.Second)
		if got := w.calls(); !got["default"] {
			t.Errorf("it calls %v", got)
		}
		if x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id}); err != nil || !strings.Contains(x.Why, "they have been called") {
			t.Errorf("explain: %v, %v", x, err)
		}
		c.apply(&apiv1.Job{Name: "there", Routing: &apiv1.Routing{Hosts: []string{"c"}}})
		there := c.trigger("there", "")
		for range 3 {
			time.Sleep(time.Second)
			w.calls()
		}
		if x, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: there}); err != nil || !strings.Contains(x.Why, "other hosts have been called") {
			t.Errorf("explain: %v, %v", x, err)
		}
		w.addHost("c", 1)
		if r := c.wait(id); r.State != "succeeded" || r.Parts != 3 {
			t.Errorf("the broadcast: %v", r)
		}
		if r := c.wait(there); r.Host != "c" {
			t.Errorf("what is for host c: %v", r)
		}
		time.Sleep(3 * time.Second)
		w.calls()
		if got := w.calls(); len(got) != 0 {
			t.Errorf("it calls %v though all is done", got)
		}
		c.close()
		w.close()
	})
}

// TestHostLeaves checks that a leaving host gets no tasks, returns the results of those
// it has, is then disconnected, and is not listed as lost. A host that returns, before or
// after that, is treated as a new one.
func TestHostLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		c := w.client()
		c.push()
		hosts := func() (names []string) {
			t.Helper()
			list, err := apiv1.NewClusterClient(c.conn).ListHosts(t.Context(), &apiv1.ListHostsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range list.Hosts {
				names = append(names, h.Id+" "+h.State)
			}
			return names
		}
		var s apiv1.Worker_WorkClient
		say := func(m *apiv1.WorkUp) {
			t.Helper()
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		join := func() {
			t.Helper()
			var err error
			if s, err = apiv1.NewWorkerClient(c.conn).Work(t.Context()); err != nil {
				t.Fatal(err)
			}
			say(&apiv1.WorkUp{Hello: &apiv1.Hello{Host: "h", Session: "s", Slots: 4}})
			say(&apiv1.WorkUp{Credits: 10})
		}
		task := func() *apiv1.Task {
			t.Helper()
			for {
				m, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Tasks) > 0 {
					return m.Tasks[0]
				}
			}
		}
		done := func(x *apiv1.Task) *apiv1.WorkUp {
			return &apiv1.WorkUp{Batch: 1, Results: []*apiv1.TaskResult{{Run: x.Run, App: "default", Attempt: x.Attempt, Epoch: x.Epoch, Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}}}
		}
		leaving := &apiv1.WorkUp{Draining: true, Leaving: true}
		demand := func(want int) {
			t.Helper()
			if is, err := w.srv.HostDemand(t.Context()); err != nil || len(is.Hosts) != want {
				t.Errorf("%d hosts are to count: %v, %v", want, is, err)
			}
		}

		join()
		c.apply(&apiv1.Job{Name: "j"})
		first := c.trigger("j", "")
		x := task()
		say(leaving)
		second := c.trigger("j", "")
		time.Sleep(time.Second)
		if got := hosts(); len(got) != 1 || got[0] != "h draining" {
			t.Errorf("the hosts are %v while one is leaving", got)
		}
		demand(0)
		say(done(x))
		acked := false
		for {
			m, err := s.Recv()
			if err != nil {
				break
			}
			acked = acked || m.Acked == 1
			if len(m.Tasks) > 0 {
				t.Errorf("one that is leaving gets %v", m.Tasks)
			}
		}
		if !acked {
			t.Error("it was let go before its result was acknowledged")
		}
		if r := c.wait(first); r.State != "succeeded" {
			t.Errorf("%v", r)
		}
		time.Sleep(time.Second)
		if got := hosts(); len(got) != 0 {
			t.Errorf("the hosts are %v after one has left", got)
		}

		join() // needed again: gets the second run, then leaves again
		task()
		say(leaving)
		join() // joins again before it has left
		demand(1)
		x = task() // its Hello did not list the task, so it is sent again
		say(done(x))
		if r := c.wait(second); r.State != "succeeded" || r.Attempt != 2 {
			t.Errorf("%v", r)
		}
		if got := hosts(); len(got) != 1 || got[0] != "h up" {
			t.Errorf("the hosts are %v after one has come back", got)
		}
		say(leaving) // without results to return
		if _, err := s.Recv(); err == nil {
			_, err = s.Recv()
			if err == nil {
				t.Error("one with nothing to bring is not let go")
			}
		}
		time.Sleep(time.Second)
		if got := hosts(); len(got) != 0 {
			t.Errorf("the hosts are %v after it has left", got)
		}
		c.close()
		w.close()
	})
}
