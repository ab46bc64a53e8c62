package core

import (
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// In a cluster with many hosts each host works for some of the partitions. This file
// reports the apps whose runs the hosts of a partition cannot take, and the balancer then
// assigns further hosts to the partition (cluster/hostassignment.go).

// HostDemand is the hosts that a partition has and those that it still needs.
type HostDemand struct {
	Hosts []HostCapacity
	// Borrow has the apps that need further hosts: no host here has taken a run of
	// the app for a second or longer. The value is true if no host here can ever
	// take the run, and false if the hosts here have no room now.
	Borrow map[string]bool
}

// HostCapacity is what one connected host can execute.
type HostCapacity struct {
	ID    string
	Apps  []string // the apps that it serves; none: all
	Slots int      // execution slots
	Free  int      // execution slots without a task of any partition
}

const (
	// borrowAfter is how long a run waits before its app borrows hosts, in ms.
	borrowAfter = 1000
	// demandRuns bounds the parked runs of an app that one report examines.
	demandRuns = 16
	// gatherTime is how long the demand of a broadcast lasts, in ms. A broadcast that
	// still waits renews it each parkTime.
	gatherTime = 10 * parkTime
)

// HostDemand returns the connected hosts and the apps that need more. The caller calls it
// about once a second.
func (de *Demand) HostDemand() HostDemand {
	c := HostDemand{}
	for _, h := range de.l.Sessions.hosts {
		if h.Connected && !h.Leaving {
			busy := max(h.Held.Busy(), int(h.Load.GetRunning()+h.Load.GetQueued()))
			c.Hosts = append(c.Hosts, HostCapacity{h.Hello.Host, h.Hello.Apps, int(h.Hello.Slots), max(int(h.Hello.Slots)-busy, 0)})
		}
	}
	waits := map[string]shortage{}
	looked := map[string]int{}
	for _, a := range de.l.Dispatcher.order {
		for r := range a.Queue.Fronts {
			if de.l.timing.due(r) && !de.l.Sessions.maybeDispatched(r) && !de.l.commits.cramped() {
				waits[a.Name] = shortage{hopeless: waits[a.Name].hopeless || de.hopeless(r)}
			}
		}
	}
	for _, r := range de.l.Dispatcher.unplaceable {
		if looked[r.App]++; looked[r.App] > demandRuns || !de.l.timing.due(r) || de.l.Sessions.maybeDispatched(r) || de.another(r) || de.l.Sessions.hosts[pinnedTo(r)] != nil {
			continue // further hosts would not take it
		}
		w := waits[r.App]
		w.hopeless = w.hopeless || de.hopeless(r)
		waits[r.App] = w
	}
	for app, w := range waits {
		w.since = de.l.clock.nowMs
		if was, ok := de.short[app]; ok {
			w.since = was.since
		}
		waits[app] = w
	}
	de.short = waits
	c.Borrow = map[string]bool{}
	for app, w := range waits {
		if de.l.clock.nowMs-w.since >= borrowAfter {
			c.Borrow[app] = w.hopeless
		}
	}
	for app, at := range de.gathers {
		if de.l.clock.nowMs-at > gatherTime {
			delete(de.gathers, app)
			continue
		}
		c.Borrow[app] = true
	}
	return c
}

// hopeless reports whether no host here can ever take a run.
func (de *Demand) hopeless(r *job.Run) bool {
	cs := de.l.Dispatcher.candidatesOf(r.App)
	for i := range cs.list {
		cs.list[i].Credits = max(cs.list[i].Credits, 1)
	}
	for _, why := range cs.reasons(r) {
		if why.None() {
			return false
		}
	}
	return true
}

// another reports whether a run waits because its job runs on as many hosts as it may.
func (de *Demand) another(r *job.Run) bool {
	if r.Policy.Route.MaxHosts() == 0 {
		return false
	}
	cs := de.l.Dispatcher.candidatesOf(r.App)
	cs.prepare(r)
	return route.HostsOfJob(cs.list) >= r.Policy.Route.MaxHosts()
}

// awaits reports whether a run is a broadcast that waits for hosts to connect.
func (de *Demand) awaits(r *job.Run) bool {
	return r.Policy.Broadcast && !r.IsPart() && (r.Fan == nil || r.Fan.Parts == 0) && !de.gathered(r.App)
}

// gathered reports whether all hosts that a broadcast of an app goes to are
// connected. If some are not, it adds them to the demand.
func (de *Demand) gathered(app string) bool {
	if de.l.cfg.Gathered == nil {
		return true
	}
	n := 0
	for _, h := range de.l.Sessions.hosts {
		if h.Connected && h.Serves(app) {
			n++
		}
	}
	if de.l.cfg.Gathered(app, n) {
		return true
	}
	if de.gathers == nil {
		de.gathers = map[string]int64{}
	}
	de.gathers[app] = de.l.clock.nowMs
	return false
}

// called returns the explanation for a run whose app borrows hosts that have not
// connected yet; no reason for other runs.
func (de *Demand) called(r *job.Run) reason.Reason {
	if _, waits := de.short[r.App]; !waits || de.l.cfg.Gathered == nil {
		return reason.Reason{}
	}
	n := 0
	for _, h := range de.l.Sessions.hosts {
		if h.Connected && h.Serves(r.App) {
			n++
		}
	}
	if de.l.cfg.Gathered(r.App, n) {
		return reason.Reason{}
	}
	return reason.New(reason.HostsBorrowed)
}
