package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// candidates has the hosts of the partition as routing sees them for the runs of one app,
// with the state of one turn.
type candidates struct {
	l     *loop
	hosts []*host
	list  []route.Candidate // in the order of hosts, by id
	// states holds the new state of each routing strategy that picked a host in
	// this turn, by the name of the job.
	states map[string]*route.State
	needs  string // the ability for which the fields Lacks of list were computed
}

// candidatesOf returns the candidates for the runs of an app.
func (l *loop) candidatesOf(app string) *candidates {
	cs := &candidates{l: l, states: map[string]*route.State{}}
	for _, h := range l.hosts {
		cs.hosts = append(cs.hosts, h)
	}
	slices.SortFunc(cs.hosts, func(a, b *host) int { return strings.Compare(a.hello.Host, b.hello.Host) })
	for _, h := range cs.hosts {
		c := route.Candidate{
			ID: h.hello.Host, Name: h.hello.Name, Labels: h.hello.Labels,
			Connected: h.connected, Draining: h.draining, Serves: h.serves(app),
			Credits: h.credits, Slots: int32(h.hello.Slots), Running: int32(h.held.busy()),
		}
		c.Lacks = h.lacks(cs.needs)
		if h.load != nil {
			c.CPU, c.Memory = h.load.Cpu, h.load.MemoryBytes
		}
		cs.list = append(cs.list, c)
	}
	return cs
}

// change replaces the abilities of a host, which were those of its hello.
func (h *host) change(abi []string) {
	h.hello = proto.CloneOf(h.hello)
	h.hello.Abi = abi
	h.abilities = job.Abilities{}
	if len(abi) > 0 { // an empty list means modules only in a hello
		h.abilities = job.NewAbilities(abi)
	}
}

// lacks returns a text for the ability needs if the host has not advertised it; "" if it
// has.
func (h *host) lacks(needs string) string {
	switch {
	case h.abilities.Has(needs):
		return ""
	case needs == "":
		return "modules"
	}
	return needs
}

// prepare sets the fields of the candidates that depend on the run: the ability that each
// lacks and, if the routing of the run bounds the hosts of its job, the number of runs of
// the job on each.
func (cs *candidates) prepare(r *job.Run) {
	if cs.needs != r.Shape().Needs {
		cs.needs = r.Shape().Needs
		for i, h := range cs.hosts {
			cs.list[i].Lacks = h.lacks(cs.needs)
		}
	}
	if r.Policy.Route.MaxHosts() == 0 {
		return
	}
	for i, h := range cs.hosts {
		cs.list[i].OfJob = 0
		for _, x := range h.held.runs {
			if x.Job == r.Job && x.App == r.App {
				cs.list[i].OfJob++
			}
		}
	}
}

// pick returns the host for a run, or nil if no host may take it now. before is
// the state of the routing strategy before this turn.
func (cs *candidates) pick(r *job.Run, before *route.State) *host {
	s, ok := cs.states[r.Job]
	if !ok && before != nil {
		s = &route.State{LastHost: before.LastHost, Seq: before.Seq, Uses: slices.Clone(before.Uses)}
		cs.states[r.Job] = s
	}
	cs.prepare(r)
	pace := cs.l.paces.of(r)
	for i, h := range cs.hosts {
		if cs.list[i].Credits = h.credits; !cs.l.admits(h, r, pace) {
			cs.list[i].Credits = 0
		}
	}
	cands, hosts := cs.list, cs.hosts
	if pinned := pinnedTo(r); pinned != "" {
		i := slices.IndexFunc(hosts, func(h *host) bool { return h.hello.Host == pinned })
		if i < 0 {
			return nil
		}
		cands, hosts = cands[i:i+1], hosts[i:i+1]
	}
	if i := r.Policy.Route.Pick(cands, r.Routed(), s); i >= 0 {
		return hosts[i]
	}
	return nil
}

// assigned counts a task that was sent to a host. A nil receiver does nothing.
func (cs *candidates) assigned(r *job.Run, h *host) {
	if cs == nil {
		return
	}
	if s := r.Policy.Route.Note(cs.states[r.Job], h.hello.Host); s != nil {
		cs.states[r.Job] = s
	}
	i := slices.Index(cs.hosts, h)
	cs.list[i].Credits--
	cs.list[i].Running++
}

// reasons returns, in the order of cs.hosts, why each host may not take a run; "" if it
// may.
func (cs *candidates) reasons(r *job.Run) []string {
	cs.prepare(r)
	ofJob := route.HostsOfJob(cs.list)
	whys := make([]string, len(cs.list))
	for i := range cs.list {
		if pinned := pinnedTo(r); pinned != "" && cs.list[i].ID != pinned {
			whys[i] = "is not the host of this part of the broadcast"
			continue
		}
		whys[i] = r.Policy.Route.Why(r.App, &cs.list[i], ofJob)
	}
	return whys
}

func pinnedTo(r *job.Run) string {
	if r.IsPart() {
		return r.Fan.Pinned
	}
	return ""
}

// constrained reports whether only some of the hosts that can execute a run may take it.
func constrained(r *job.Run) bool { return r.Policy.Route != nil || pinnedTo(r) != "" }

// memory returns the state of the routing strategy of a run's job; nil: the job is gone,
// or its strategy has no state.
func (l *loop) memory(r *job.Run) *route.State {
	if j := l.job(r.App, r.Job); j != nil {
		return j.RouteState()
	}
	return nil
}

// park keeps an unplaceable run out of the ready queue until a placement timer is due.
func (l *loop) park(r *job.Run) {
	l.unplaceable = append(l.unplaceable, r)
	if l.placementAt == 0 {
		l.retryPlacementAt(l.nowMs + parkTime)
	}
}

const (
	// parkTime is how long an unplaceable run is parked at most, in ms. It bounds the
	// delay after a change that wakes no timer: a host connects, or its load falls.
	parkTime = 100
	// minParkTime is how long an unplaceable run is parked at least, in ms: one pass over
	// all parked runs for each result costs too much. With more than maxEagerParked runs
	// only parkTime counts.
	minParkTime    = 10
	maxEagerParked = 1000
)

// placementTimer returns the parked runs to the ready queue. It is valid while at is
// loop.placementAt.
type placementTimer struct{ at int64 }

func (l *loop) retryPlacementAt(at int64) {
	l.placementAt = at
	l.wheel.Add(at, placementTimer{at})
}

// hostFreed brings the placement timer forward when a host gets a free slot: a parked run
// of high priority must not wait for parkTime while a run of lower priority takes the
// slot.
func (l *loop) hostFreed() {
	if at := max(l.nowMs, l.placedMs+minParkTime); l.placementAt > at && len(l.unplaceable) <= maxEagerParked {
		l.retryPlacementAt(at)
	}
}

func (l *loop) unpark(x placementTimer) {
	if x.at != l.placementAt {
		return
	}
	l.placementAt, l.placedMs = 0, l.nowMs
	unplaceable := l.unplaceable
	l.unplaceable = nil
	for _, r := range unplaceable {
		if l.due(r) {
			l.enqueue(r)
		}
	}
}

// recoveryLeft returns the rest of recoveryTime. Before it has passed, a broadcast would
// leave out hosts that have not reconnected, and a run could be sent to a second host.
func (l *loop) recoveryLeft() time.Duration { return max(recoveryTime-l.now.Sub(l.since), 0) }

// fanOut records the fan-out of a due run into parts. Without a host for a broadcast, or
// without room in the journal, the run waits.
func (l *loop) fanOut(r *job.Run) {
	if l.cramped() {
		l.wheel.Add(l.nowMs+armWindow, &readmitTimer{r: r})
		return
	}
	f := &apiv1.Fanned{Run: r.ID[:], Parts: r.Policy.Shards}
	if r.Policy.Map {
		f.Parts, f.Window = 1, job.MapWindow
	}
	switch {
	case r.Fan != nil && r.Fan.Parts > 0: // a retry has the same parts as the first attempt
		f.Parts = r.Fan.Parts
	case r.Policy.Broadcast && l.recoveryLeft() > 0:
		l.wheel.Add(l.nowMs+l.recoveryLeft().Milliseconds()+1, &readmitTimer{r: r})
		return
	case r.Policy.Broadcast:
		cs := l.candidatesOf(r.App)
		for i := range cs.list {
			cs.list[i].Credits = max(cs.list[i].Credits, 1) // a host that is busy now gets its part later
		}
		for i, why := range cs.reasons(r) {
			if why == "" {
				f.Hosts = append(f.Hosts, cs.list[i].ID)
			}
		}
		if f.Parts = int32(len(f.Hosts)); f.Parts == 0 {
			l.park(r)
			return
		}
	}
	if r.Fan != nil {
		f.Only = r.Fan.Only
	}
	l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Fanned{Fanned: f}})
}

// plural returns one if n is 1, and otherwise the format many with n in it.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// haveEnded returns a text such as "2 of its 3 parts have ended".
func haveEnded(n, all int, what string) string {
	verb := "have"
	if n == 1 {
		verb = "has"
	}
	if all != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d of its %d %s %s ended", n, all, what, verb)
}

// explain returns the state of a live run, the reason for it and, if the run waits for a
// host, why each host may or may not take it.
func (l *loop) explain(r *job.Run) *apiv1.ExplainRunResponse {
	resp := &apiv1.ExplainRunResponse{State: string(r.State)}
	oq := l.overlapQueues[jobKey{r.App, r.Job}]
	switch {
	case r.HasParts():
		resp.Why = haveEnded(int(r.Fan.Succeeded+r.Fan.Failed), int(r.Fan.Parts), "part")
		return resp
	case r.HasNodes():
		resp.Why = explainNodes(r)
		return resp
	case r.State == job.Running:
		resp.State, resp.Why = string(l.state(r)), l.whyRunning(r)
		return resp
	case r.State == job.Armed && !l.due(r):
		resp.Why = l.whyArmed(r)
	case r.State == job.Waiting && !l.due(r):
		resp.Why = "it waits for its next attempt"
	case oq != nil && slices.Contains(oq.held, r):
		resp.State, resp.Why = string(job.Queued), plural(len(oq.in), "1 run of the job is under way, and its overlap policy holds this one behind it", "%d runs of the job are under way, and its overlap policy holds this one behind them")
	case l.rates[jobKey{r.App, ""}] != nil && l.rates[jobKey{r.App, ""}].waiting > 0:
		resp.State, resp.Why = string(job.Queued), "the jobs of the app start no more often than its rate allows"
	case r.Policy.Rate > 0 && l.rates[jobKey{r.App, r.Job}] != nil && l.rates[jobKey{r.App, r.Job}].waiting > 0:
		resp.State, resp.Why = string(job.Queued), "the job starts at most "+plural(int(r.Policy.Rate), "once", "%d times")+" in "+r.Policy.RatePer.String()
	case l.cramped():
		resp.State, resp.Why = string(job.Queued), "the server's disk is full: nothing starts until there is space on it"
	case l.maybeDispatched(r):
		resp.State, resp.Why = string(job.Queued), "the server before this one may have sent it to a host, which has a moment to say so"
	case r.Policy.Broadcast && !r.IsPart() && l.recoveryLeft() > 0:
		resp.State, resp.Why = string(job.Queued), "the server has just started, and a broadcast waits until its hosts are back"
	case l.awaits(r):
		resp.State, resp.Why = string(job.Queued), "a broadcast waits until the hosts of the app are here that work for other partitions of the cluster: they have been called"
	default:
		resp.State = string(job.Queued)
	}
	if r.Policy.Workflow { // a workflow needs no host
		resp.Why = cmp.Or(resp.Why, "it begins as soon as the server has room")
		return resp
	}
	cs := l.candidatesOf(r.App)
	able := 0
	for i, why := range cs.reasons(r) {
		if why == "" {
			why = l.whyNot(cs.hosts[i], r)
		}
		resp.Hosts = append(resp.Hosts, &apiv1.HostVerdict{Host: cs.list[i].ID, Name: cs.list[i].Name, Able: why == "", Why: why})
		if why == "" {
			able++
		}
	}
	switch {
	case resp.Why != "":
	case len(cs.list) == 0 && l.called(r) != "":
		resp.Why = l.called(r)
	case len(cs.list) == 0:
		resp.Why = "there is no host: start one with `wheelwork host`"
	case able == 0 && l.called(r) != "":
		resp.Why = l.called(r)
	case able == 0:
		resp.Why = "no host may take it now"
	default:
		resp.Why = "its turn has not come: other runs are before it"
	}
	return resp
}
