package sched

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// In a cluster with many hosts each of them works for some of the units. What a
// unit has to do that its own hosts cannot, it says here, and whoever looks calls
// the others (node/division.go).

// Crowd is who works for the unit, and who else is to.
type Crowd struct {
	Hosts []HostSeat
	// Calls are the apps with runs that no host here takes, for a second or longer:
	// true when a host elsewhere might though none here ever will, false when those
	// here have no room.
	Calls map[string]bool
}

// HostSeat is a host that has a session.
type HostSeat struct {
	ID    string
	Apps  []string // that it serves; none: all
	Slots int
	Free  int // slots that execute nothing, of whatever unit
}

// shortage is since when an app has runs that no host takes.
type shortage struct {
	since    int64 // ms
	hopeless bool
}

const (
	// callAfter is how long a run waits for the hosts that there are, in ms.
	callAfter = 1000
	// callLooks bounds the runs of an app that are looked at.
	callLooks = 16
	// gatherFor is how long a broadcast that waits is thought of, in ms: it asks
	// again more often.
	gatherFor = 10 * parkTime
)

// Crowd looks at the hosts and at what waits for some. It is asked about once a second.
func (s *Server) Crowd(ctx context.Context) (Crowd, error) {
	return ask(ctx, s.loop, func(l *loop) (Crowd, error) { return l.crowd(), nil })
}

func (l *loop) crowd() Crowd {
	c := Crowd{}
	for _, h := range l.hosts {
		if h.connected && !h.leaving {
			busy := max(h.held.busy(), int(h.load.GetRunning()+h.load.GetQueued()))
			c.Hosts = append(c.Hosts, HostSeat{h.hello.Host, h.hello.Apps, int(h.hello.Slots), max(int(h.hello.Slots)-busy, 0)})
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
		if looked[r.App]++; looked[r.App] > callLooks || !l.due(r) || l.maybeDispatched(r) || l.another(r) {
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
	c.Calls = map[string]bool{}
	for app, w := range waits {
		if l.nowMs-w.since >= callAfter {
			c.Calls[app] = w.hopeless
		}
	}
	for app, at := range l.gathers {
		if l.nowMs-at > gatherFor {
			delete(l.gathers, app)
			continue
		}
		c.Calls[app] = true
	}
	return c
}

// hopeless reports whether no host here takes a run however long it waits.
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

// another reports whether a run waits because its job may run on no host more.
func (l *loop) another(r *job.Run) bool {
	if r.Policy.Route.MaxHosts() == 0 {
		return false
	}
	cs := l.candidatesOf(r.App)
	cs.prepare(r)
	return job.HostsOfJob(cs.list) >= r.Policy.Route.MaxHosts()
}

// awaits reports whether a run is a broadcast whose hosts are still to come.
func (l *loop) awaits(r *job.Run) bool {
	return r.Policy.Broadcast && !r.IsPart() && (r.Fan == nil || r.Fan.Parts == 0) && !l.gathered(r.App)
}

// gathered reports whether all hosts are here that a broadcast of an app goes to,
// and calls those that are not.
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

// called says of an app that its other hosts were called and are not here; "":
// none were.
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
	return "none of the hosts that work for this unit of the cluster takes it now, and the app's other hosts have been called"
}

// leaveHost ends the stream of a host that works for other units now, once it has
// brought what it was sent.
func (l *loop) leaveHost(h *host, up *apiv1.WorkUp) {
	if up.GetLeaving() {
		h.leaving, h.draining = true, true
	}
	if h.leaving && len(h.held.runs) == 0 {
		out := h.out
		l.onDurable(func(error) { out.close() })
	}
}
