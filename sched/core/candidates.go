package core

import (
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/job/route"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// candidates has the hosts of the partition as routing sees them for the runs of one app,
// with the state of one turn.
type candidates struct {
	l     *Loop
	app   string
	hosts []*hosts.Host
	list  []route.Candidate // in the order of hosts, by id
	// states holds the new state of each routing strategy that picked a host in
	// this turn, by the name of the job.
	states map[string]*route.State
	needs  string // the ability for which the fields Lacks of list were computed
}

// candidatesOf returns the candidates for the runs of an app.
func (di *dispatcher) candidatesOf(app string) *candidates {
	cs := &candidates{l: di.l, app: app, states: map[string]*route.State{}}
	for _, h := range di.l.Sessions.hosts {
		cs.hosts = append(cs.hosts, h)
	}
	slices.SortFunc(cs.hosts, func(a, b *hosts.Host) int { return strings.Compare(a.Hello.Host, b.Hello.Host) })
	for _, h := range cs.hosts {
		c := route.Candidate{
			ID: h.Hello.Host, Name: h.Hello.Name, Labels: h.Hello.Labels,
			Connected: h.Connected, Draining: h.Draining, Cordoned: h.Cordoned, Serves: h.Serves(app),
			Credits: h.Credits, Slots: int32(h.Hello.Slots), Running: int32(h.Held.Busy()),
		}
		c.Lacks = h.Lacks(cs.needs, cs.app)
		if h.Load != nil {
			c.CPU, c.Memory = h.Load.Cpu, h.Load.MemoryBytes
		}
		cs.list = append(cs.list, c)
	}
	return cs
}

// prepare sets the fields of the candidates that depend on the run: the ability that each
// lacks and, if the routing of the run bounds the hosts of its job, the number of runs of
// the job on each.
func (cs *candidates) prepare(r *job.Run) {
	if cs.needs != r.Shape().Needs {
		cs.needs = r.Shape().Needs
		for i, h := range cs.hosts {
			cs.list[i].Lacks = h.Lacks(cs.needs, cs.app)
		}
	}
	if r.Policy.Route.MaxHosts() == 0 {
		return
	}
	for i, h := range cs.hosts {
		cs.list[i].OfJob = 0
		for _, x := range h.Held.Runs {
			if x.Job == r.Job && x.App == r.App {
				cs.list[i].OfJob++
			}
		}
	}
}

// pick returns the host for a run, or nil if no host may take it now. before is
// the state of the routing strategy before this turn.
func (cs *candidates) pick(r *job.Run, before *route.State) *hosts.Host {
	s, ok := cs.states[r.Job]
	if !ok && before != nil {
		s = &route.State{LastHost: before.LastHost, Seq: before.Seq, Uses: slices.Clone(before.Uses)}
		cs.states[r.Job] = s
	}
	cs.prepare(r)
	pace := cs.l.Dispatcher.paces.Of(r)
	for i, h := range cs.hosts {
		if cs.list[i].Credits = h.Credits; !cs.l.Dispatcher.admits(h, r, pace) {
			cs.list[i].Credits = 0
		}
	}
	cands, list := cs.list, cs.hosts
	if pinned := pinnedTo(r); pinned != "" {
		i := slices.IndexFunc(list, func(h *hosts.Host) bool { return h.Hello.Host == pinned })
		if i < 0 {
			return nil
		}
		cands, list = cands[i:i+1], list[i:i+1]
	}
	if i := r.Policy.Route.Pick(cands, r.Routed(), s); i >= 0 {
		return list[i]
	}
	return nil
}

// assigned counts a task that was sent to a host. A nil receiver does nothing.
func (cs *candidates) assigned(r *job.Run, h *hosts.Host) {
	if cs == nil {
		return
	}
	if s := r.Policy.Route.Note(cs.states[r.Job], h.Hello.Host); s != nil {
		cs.states[r.Job] = s
	}
	i := slices.Index(cs.hosts, h)
	cs.list[i].Credits--
	cs.list[i].Running++
}

// reasons returns, in the order of cs.hosts, why each host may not take a run; no reason if it
// may.
func (cs *candidates) reasons(r *job.Run) []reason.Reason {
	cs.prepare(r)
	ofJob := route.HostsOfJob(cs.list)
	whys := make([]reason.Reason, len(cs.list))
	for i := range cs.list {
		if pinned := pinnedTo(r); pinned != "" && cs.list[i].ID != pinned {
			whys[i] = reason.New(reason.OtherPart)
			if !r.IsPart() {
				whys[i] = reason.New(reason.OtherHost)
			}
			continue
		}
		whys[i] = r.Policy.Route.Why(r.App, &cs.list[i], ofJob)
	}
	return whys
}

// pinnedTo returns the id of the only host that may execute a run; "": any that fits.
func pinnedTo(r *job.Run) string {
	if r.Fan != nil {
		return r.Fan.Pinned
	}
	return ""
}

// constrained reports whether only some of the hosts that can execute a run may take it.
func constrained(r *job.Run) bool { return r.Policy.Route != nil || pinnedTo(r) != "" }

// memory returns the state of the routing strategy of a run's job; nil: the job is gone,
// or its strategy has no state.
func (di *dispatcher) memory(r *job.Run) *route.State {
	if j := di.l.State.Job(r.App, r.Job); j != nil {
		return j.RouteState()
	}
	return nil
}
