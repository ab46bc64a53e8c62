package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

// manyHosts returns a sight of three partitions, each owned by a server that reports its
// hosts.
func manyHosts(hosts int) *sight {
	s := newSight(3, "a", "b", "c")
	for i, id := range []string{"a", "b", "c"} {
		p := s.Servers[id]
		p.Divides, p.Splits = true, true
		s.Servers[id] = p
		s.Owners[s.Partitions[i]] = etcd.Owner{Server: id, Epoch: 1}
	}
	s.demand(hosts)
	return s
}

// demand sets the number of hosts that count in each partition.
func (s *sight) demand(hosts int) {
	for _, partition := range s.Partitions {
		s.tell(partition, func(r *DemandReport) {
			*r = DemandReport{Counted: true, Here: hosts, Serve: map[string]int{"": hosts}, Slots: 4 * hosts, Free: 4 * hosts, Calls: r.Calls}
		})
	}
}

func (s *sight) tell(partition string, f func(*DemandReport)) {
	owns := s.Servers[s.Owners[partition].Server].Owns
	r := owns[partition]
	f(&r.DemandReport)
	owns[partition] = r
}

// divide makes one decision of the balancer and applies it. It reports whether there was
// one.
func (s *sight) divide() bool {
	d := s.s.splits.divide(&s.Snapshot, s.now)
	if d != nil {
		if d.Number != s.hostAssignment.GetNumber()+1 {
			panic(fmt.Sprint("decision ", d, " after ", s.hostAssignment))
		}
		s.hostAssignment = d
	}
	return d != nil
}

func TestBalancerDividesHosts(t *testing.T) {
	s := manyHosts(33)
	s.s.splits = newSplits(0, 0, 10*time.Second)
	want := func(what string, decided bool, n int32) {
		t.Helper()
		if got := s.divide(); got != decided || s.hostAssignment.GetUnitsPerHost() != n {
			t.Errorf("%s: decided %v, %v, want %d partitions per host", what, got, s.hostAssignment, n)
		}
	}
	want("99 hosts", false, 0)
	s.demand(50)
	want("150 hosts", true, 2)
	want("the same again", false, 2)
	s.demand(200)
	want("600 hosts", true, 1)
	s.tell("u1", func(r *DemandReport) { *r = DemandReport{} })
	want("a partition is on its way", false, 1)
	s.demand(20)
	want("60 hosts", false, 1)
	s.now = s.now.Add(mergeAfter - time.Second)
	want("60 hosts for a while", false, 1)
	s.now = s.now.Add(time.Second)
	want("60 hosts for long", true, 0)
	s.demand(200)
	want("600 hosts again", true, 1)
	p := s.Servers["b"]
	p.Divides = false
	s.Servers["b"] = p
	want("a server of an older version", true, 0)
	p.Divides = true
	s.Servers["b"] = p
	want("it is gone", true, 1)
	s.s.splits = newSplits(0, -1, 10*time.Second)
	want("it is switched off", true, 0)
	want("it stays so", false, 0)
}

func TestBalancerCallsHosts(t *testing.T) {
	s := manyHosts(200)
	s.s.splits = newSplits(0, 0, 10*time.Second)
	s.divide()
	want := func(what string, calls ...string) {
		t.Helper()
		s.divide()
		got := []string{}
		for _, c := range s.hostAssignment.Calls {
			got = append(got, c.Unit+"/"+c.App)
		}
		if fmt.Sprint(got) != fmt.Sprint(calls) {
			t.Errorf("%s: it calls %v, want %v", what, got, calls)
		}
		s.now = s.now.Add(time.Second)
	}
	needs := func(partition string, calls map[string]bool) {
		s.tell(partition, func(r *DemandReport) { r.Calls = calls })
	}
	want("nobody needs any")
	needs("u1", map[string]bool{"x": true})
	want("a run for a host elsewhere", "u1/x")
	needs("u1", nil)
	want("it has ended", "u1/x")
	s.now = s.now.Add(58 * time.Second)
	want("it ended a while ago")

	for _, partition := range s.Partitions {
		s.tell(partition, func(r *DemandReport) { r.Free = 0 })
	}
	needs("u2", map[string]bool{"x": false, "y": true})
	want("hosts are busy everywhere", "u2/y")
	s.tell("u2", func(r *DemandReport) { r.Free = 800 })
	want("there is room where nobody has to be called from", "u2/y")
	s.tell("u0", func(r *DemandReport) { r.Free = 160 })
	want("there is room elsewhere", "u2/x", "u2/y")
	s.tell("u0", func(r *DemandReport) { r.Free = 0 })
	s.now = s.now.Add(2 * time.Minute)
	want("who was called is needed", "u2/x", "u2/y")

	s.s.splits = newSplits(0, 0, 10*time.Second) // the balancer of another server
	needs("u2", nil)
	want("another balancer", "u2/x", "u2/y")
	s.now = s.now.Add(59 * time.Second)
	want("and after a while")
}

// TestBalancerDividesAnApp: the hosts of an app in several partitions are divided while
// they are many, by the slots that the partitions should have.
func TestBalancerDividesAnApp(t *testing.T) {
	s := manyHosts(200)
	s.s.splits = newSplits(-1, 0, 10*time.Second)
	s.divide()
	s.homes, s.placements = map[string]string{"wide": "u1"}, newPlacements()
	home := func(app string) (string, bool) { u, ok := s.homes[app]; return u, ok }
	serve := func(n int) {
		s.tell("u0", func(r *DemandReport) { r.Serve["wide"] = n })
	}
	serve(100)
	if d := s.s.splits.decide(&s.Snapshot, home, s.now); len(d) != 0 {
		t.Fatalf("with 100 hosts it is to be in %v", d)
	}
	serve(101)
	d := s.s.splits.decide(&s.Snapshot, home, s.now)
	if got := distinct(d["wide"].Units); len(got) != 2 || d["wide"].ByHand {
		t.Fatalf("with 101 hosts it is to be in %v", d)
	}
	s.placements.desired["wide"] = DesiredPlacement{Units: slotsIn("u1", "u1", "u1", "u0")}
	want := func(what string, divided bool) {
		t.Helper()
		s.divide()
		got := &apiv1.DividedApp{}
		if len(s.hostAssignment.Apps) == 1 {
			got = s.hostAssignment.Apps[0]
		}
		if !proto.Equal(got, &apiv1.DividedApp{App: "wide", Units: []string{"u1", "u0"}, Weights: []float64{12, 4}, Divided: divided}) {
			t.Errorf("%s: %v", what, s.hostAssignment)
		}
	}
	want("many", true)
	serve(51)
	want("fewer", true)
	serve(50)
	want("few", false)
	serve(100)
	want("more", false)
	s.placements.desired["wide"] = DesiredPlacement{Units: slotsIn("u1")}
	s.placements.slots["wide"] = &[job.Slots]slotPlacement{3: {"u2", 1}}
	s.divide()
	if a := s.hostAssignment.Apps; len(a) != 1 || a[0].Weights[0] != 16 || a[0].Weights[1] != 0.5 || a[0].Units[1] != "u2" {
		t.Errorf("a slot is still on its way home: %v", a)
	}
	// After a while with few hosts, the app is merged into its primary partition.
	s.placements.desired["wide"] = DesiredPlacement{Units: slotsIn("u1", "u0")}
	serve(10)
	s.s.splits.decide(&s.Snapshot, home, s.now)
	s.now = s.now.Add(mergeAfter)
	if d := s.s.splits.decide(&s.Snapshot, home, s.now); len(distinct(d["wide"].Units)) != 1 {
		t.Errorf("with 10 hosts for long it is to be in %v", d)
	}
}

// slotsIn assigns the slots to partitions in turn.
func slotsIn(partitions ...string) (at []string) {
	for i := range job.Slots {
		at = append(at, partitions[i%len(partitions)])
	}
	return at
}

// TestGathered: a broadcast waits for the borrowed hosts, but not for ever.
func TestGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := quietView("u0", "u1")
		say := func(d *apiv1.HostAssignment) {
			row, err := protojson.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			r.Receive(facts(rowAssignment, string(row)), false)
		}
		report := func(counted bool) string {
			return fmt.Sprintf(`{"divides":true,"owns":{"u0":{"counted":true,"serve":{"":3,"x":2}},"u1":{"counted":%v,"serve":{"":4,"y":9}}}}`, counted)
		}
		r.Receive(facts("server/me", report(true)), true)
		r.ReceiveOwners(map[string]etcd.Owner{"u0": {Server: "me", Epoch: 1}, "u1": {Server: "me", Epoch: 2}})
		want := func(what string, have int, is bool) {
			t.Helper()
			if got := r.Gathered("u0", "x", have); got != is {
				t.Errorf("%s: with %d hosts it has gathered all: %v", what, have, got)
			}
		}
		want("not divided", 0, true)
		say(&apiv1.HostAssignment{Number: 1, UnitsPerHost: 1})
		want("nobody was called", 99, false)
		say(&apiv1.HostAssignment{Number: 2, UnitsPerHost: 1, Calls: []*apiv1.HostCall{{Unit: "u1", App: "x"}}})
		want("to another partition", 99, false)
		called := &apiv1.HostAssignment{Number: 3, UnitsPerHost: 1, Calls: []*apiv1.HostCall{{Unit: "u0", App: "x"}}}
		say(called)
		want("one is missing", 8, false)
		want("all are here", 9, true)
		r.Receive(facts("server/me", report(false)), false)
		want("a partition has not counted", 9, false)
		time.Sleep(gatherPatience - time.Second)
		called.Number, called.Calls = 4, append(called.Calls, &apiv1.HostCall{Unit: "u1", App: "y"})
		say(called)
		want("it was called a while ago", 8, false)
		time.Sleep(time.Second)
		want("it was called long ago", 8, true)
		r.Receive(facts("server/you", `{"owns":{}}`), false)
		if d := r.Divided(); d.UnitsPerHost != 0 || d.Number != 4 || !r.Works(&apiv1.WatchRequest{HostId: "h", Unit: "u0"}) || !r.Works(&apiv1.WatchRequest{HostId: "h", Unit: "u1"}) {
			t.Errorf("with a server of an older version: %v", d)
		}
	})
}

// TestReroute: a waiter for an assignment is woken when the assignment may have changed,
// and not by the reports of servers every second.
func TestReroute(t *testing.T) {
	r := quietView("u0", "u1")
	r.Receive(facts("server/me", `{"divides":true}`), true)
	owners := map[string]etcd.Owner{"u0": {Server: "me", Epoch: 1}}
	r.ReceiveOwners(owners)
	woken := func(f func()) bool {
		ch := r.Reroute()
		f()
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	for what, tc := range map[string]struct {
		f    func()
		want bool
	}{
		"a report":       {func() { r.Receive(facts("server/me", `{"divides":true,"owns":{"u0":{"rate":3}}}`), false) }, false},
		"the same owner": {func() { r.ReceiveOwners(map[string]etcd.Owner{"u0": {Server: "me", Epoch: 1}}) }, false},
	} {
		if got := woken(tc.f); got != tc.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	for _, f := range []func(){
		func() { r.ReceiveOwners(map[string]etcd.Owner{"u0": {Server: "me", Epoch: 2}}) },
		func() { r.Receive(facts(rowAssignment, `{"number":"1"}`), false) },
		func() { r.Receive(facts("app/x", "u1"), false) },
		func() { r.Receive(facts("server/old", `{}`), false) },
		func() { r.Receive(nil, true) },
	} {
		if !woken(f) {
			t.Error("nobody is woken by a change")
		}
	}
	r.Receive(facts(rowAssignment, `nonsense`), false)
	if d := r.Divided(); d != nil {
		t.Errorf("nonsense is taken for %v", d)
	}
}

// TestCount: a host counts in one partition, whichever partitions it has sessions with.
func TestCount(t *testing.T) {
	r := quietView("u0", "u1", "u2")
	r.Receive(facts("app/x", "u1", "server/me", `{"divides":true}`, rowAssignment, `{"number":"1","unitsPerHost":2}`), true)
	c := sched.HostDemand{}
	for i := range 90 {
		h := sched.HostCapacity{ID: fmt.Sprint("h", i), Slots: 4, Free: 1}
		if i%3 == 0 {
			h.Apps = []string{"x", "y"}
		}
		c.Hosts = append(c.Hosts, h)
	}
	here, x, all, free := 0, 0, 0, 0
	for _, u := range r.Partitions {
		rep := r.Count(u, c, true)
		here, x, all, free = here+rep.Here, x+rep.Serve["x"], all+rep.Serve[""], free+rep.Free
		if u == "u1" && rep.Serve["x"] != 30 {
			t.Errorf("in the partition of their app %v count", rep.Serve)
		}
	}
	if here != 90 || x != 30 || all != 60 || free != 90 {
		t.Errorf("%d hosts count, %d of x, %d of all apps, with %d free slots", here, x, all, free)
	}
}
