package sched

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// In a cluster with many hosts each host works for some of the partitions. A
// partition reports here the apps whose runs its own hosts cannot take, and the
// balancer then assigns further hosts to it (cluster/hostassignment.go).

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

// shortage is the state of an app with runs that no host here takes.
type shortage struct {
	since    int64 // Unix ms
	hopeless bool  // no host here can ever take one of the runs
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

// HostDemand returns the hosts and the demand for more. The server calls it about once a second.
func (s *Server) HostDemand(ctx context.Context) (HostDemand, error) {
	return ask(ctx, s.loop, func(l *loop) (HostDemand, error) { return l.hostDemand(), nil })
}

func (l *loop) hostDemand() HostDemand {
	c := HostDemand{}
	for _, h := range l.hosts {
		if h.connected && !h.leaving {
			busy := max(h.held.busy(), int(h.load.GetRunning()+h.load.GetQueued()))
			c.Hosts = append(c.Hosts, HostCapacity{h.hello.Host, h.hello.Apps, int(h.hello.Slots), max(int(h.hello.Slots)-busy, 0)})
		}
	}
	waits := map[string]shortage{}
	looked := map[string]int{}
	for _, a := range l.order {
		if r := a.ready.peek(); r != nil && l.due(r) && !l.maybeDispatched(r) && !l.cramped() {
			waits[a.name] = shortage{hopeless: l.hopeless(r)}
		}
	}
	for _, r := range l.unplaceable {
		if looked[r.App]++; looked[r.App] > demandRuns || !l.due(r) || l.maybeDispatched(r) || l.another(r) {
			continue
		}
		w := waits[r.App]
		w.hopeless = w.hopeless || l.hopeless(r)
		waits[r.App] = w
	}
	for app, w := range waits {
		w.since = l.nowMs
		if was, ok := l.short[app]; ok {
			w.since = was.since
		}
		waits[app] = w
	}
	l.short = waits
	c.Borrow = map[string]bool{}
	for app, w := range waits {
		if l.nowMs-w.since >= borrowAfter {
			c.Borrow[app] = w.hopeless
		}
	}
	for app, at := range l.gathers {
		if l.nowMs-at > gatherTime {
			delete(l.gathers, app)
			continue
		}
		c.Borrow[app] = true
	}
	return c
}

// hopeless reports whether no host here can ever take a run.
func (l *loop) hopeless(r *job.Run) bool {
	cs := l.candidatesOf(r.App)
	for i := range cs.list {
		cs.list[i].Credits = max(cs.list[i].Credits, 1)
	}
	for _, why := range cs.reasons(r) {
		if why == "" {
			return false
		}
	}
	return true
}

// another reports whether a run waits because its job runs on as many hosts as it may.
func (l *loop) another(r *job.Run) bool {
	if r.Policy.Route.MaxHosts() == 0 {
		return false
	}
	cs := l.candidatesOf(r.App)
	cs.prepare(r)
	return route.HostsOfJob(cs.list) >= r.Policy.Route.MaxHosts()
}

// awaits reports whether a run is a broadcast that waits for hosts to connect.
func (l *loop) awaits(r *job.Run) bool {
	return r.Policy.Broadcast && !r.IsPart() && (r.Fan == nil || r.Fan.Parts == 0) && !l.gathered(r.App)
}

// gathered reports whether all hosts that a broadcast of an app goes to are
// connected. If some are not, it adds them to the demand.
func (l *loop) gathered(app string) bool {
	if l.cfg.Gathered == nil {
		return true
	}
	n := 0
	for _, h := range l.hosts {
		if h.connected && h.serves(app) {
			n++
		}
	}
	if l.cfg.Gathered(app, n) {
		return true
	}
	if l.gathers == nil {
		l.gathers = map[string]int64{}
	}
	l.gathers[app] = l.nowMs
	return false
}

// called returns the explanation for a run whose app borrows hosts that have not
// connected yet; "" for other runs.
func (l *loop) called(r *job.Run) string {
	if _, waits := l.short[r.App]; !waits || l.cfg.Gathered == nil {
		return ""
	}
	n := 0
	for _, h := range l.hosts {
		if h.connected && h.serves(r.App) {
			n++
		}
	}
	if l.cfg.Gathered(r.App, n) {
		return ""
	}
	return "none of the hosts that work for this partition of the cluster takes it now, and the app's other hosts have been called"
}

// leaveHost ends the stream of a host that was assigned to other partitions, once it
// has reported the results of all its tasks.
func (l *loop) leaveHost(h *host, up *apiv1.WorkUp) {
	if up.GetLeaving() {
		h.leaving, h.draining = true, true
	}
	if h.leaving && len(h.held.runs) == 0 {
		out := h.out
		l.onDurable(func(error) { out.close() })
	}
}
