package core

import (
	"cmp"
	"container/heap"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// enqueue puts a run that may be dispatched into the ready queue of its app. A run of a
// workflow begins at once.
func (di *dispatcher) enqueue(r *job.Run) {
	if r.Policy.Workflow {
		di.l.workflows.begin(r)
		return
	}
	a := fairOf(r)
	if !a.Listed {
		a.Listed = true
		di.order = append(di.order, a)
		a.Usage.Join(di.served)
	}
	a.Queue.Push(r, fair.IsQuick(di.paces.Of(r)))
}

// dispatch sends runs to hosts as long as hosts can take more. The app that has used the
// least time of hosts for its weight comes first.
func (di *dispatcher) dispatch() {
	if len(di.order) == 0 || di.l.commits.failure != nil || di.l.commits.cramped() {
		return
	}
	d := dispatching{l: di.l, starts: map[startKey]*apiv1.Started{}}
	line := fair.ByUsage(di.order)
	di.order = di.spareOrder[:0]
	heap.Init(&line)
	for len(line) > 0 {
		a := line[0]
		di.served = a.Usage.Used
		switch sent := d.serve(a); {
		case a.Queue.Len() == 0:
			heap.Pop(&line)
			a.Listed = false
		case sent:
			heap.Fix(&line, 0)
		default:
			di.order = append(di.order, heap.Pop(&line).(*fair.App))
		}
	}
	clear(line[:cap(line)])
	di.spareOrder = line
}

// dispatching is one pass over the ready queues.
type dispatching struct {
	l          *Loop
	starts     map[startKey]*apiv1.Started
	order      []startKey
	candidates *candidates // of the app that is served; nil: not computed yet
}

// serve sends up to MaxTasks runs of an app, and reports whether it did anything.
func (d *dispatching) serve(a *fair.App) bool {
	d.candidates = nil
	for _, lv := range a.Queue.Levels() {
		for i := range lv.Lanes {
			if d.serveLane(a, lv, i) {
				return true
			}
		}
	}
	return false
}

// serveLane is serve for the quick or the slow runs of one priority.
func (d *dispatching) serveLane(a *fair.App, lv *fair.Level, i int) bool {
	l, ln := d.l, &lv.Lanes[i]
	for ln.Len() > 0 {
		r := ln.Peek()
		if !l.timing.due(r) {
			a.Queue.Pop(ln, 1)
			continue
		}
		pace := l.Dispatcher.paces.Of(r)
		if i == fair.QuickLane && !fair.IsQuick(pace) { // its job has become slow since then
			a.Queue.Pop(ln, fair.TurnOf[i])
			a.Queue.Push(r, false)
			continue
		}
		free := ownerOf(r.Slot()).room(l.clock.nowMs)
		if free == 0 {
			return false // until one of its runs leaves a host
		}
		h, room := l.Dispatcher.pick(a, r, pace)
		room = min(room, free)
		if h == nil && !constrained(r) {
			return false // the runs behind it need the same hosts
		}
		d.send(a, ln, i, h, room)
		return true
	}
	return false
}

// send takes up to room runs from a lane and sends them. Runs that are not constrained and
// that h can execute go to h; the routing of the others picks their host. h is nil if pick
// found no host.
func (d *dispatching) send(a *fair.App, ln *fair.Lane, lane int, h *hosts.Host, room int) {
	l := d.l
	for n := 0; n < room && ln.Len() > 0; n++ {
		if n%prefetch.Group == 0 {
			ln.Prefetch(min(room-n, prefetch.Group))
		}
		next := ln.Peek()
		pace := l.Dispatcher.paces.Of(next)
		if n > 0 && !constrained(next) && (h == nil || h.Credits <= 0 || !l.Dispatcher.admits(h, next, pace)) {
			break
		}
		r := a.Queue.Pop(ln, fair.TurnOf[lane])
		if !d.sendable(r) {
			continue
		}
		h := h
		if constrained(r) || !h.Abilities.Has(r.Shape().Needs, a.Name) {
			if d.candidates == nil {
				d.candidates = l.Dispatcher.candidatesOf(a.Name)
			}
			if h = d.candidates.pick(r, l.Dispatcher.memory(r)); h == nil {
				l.Dispatcher.park(r)
				continue
			}
		}
		// A run may be in the queue twice. The first entry has started it.
		if hosts.Executes(r) || l.admission.limited(r) {
			continue
		}
		l.Dispatcher.take(h, r)
		k := startKey{r.Slot(), h}
		s := d.starts[k]
		if s == nil {
			s = &apiv1.Started{Host: h.Hello.Host, Session: h.Hello.Session}
			d.starts[k] = s
			d.order = append(d.order, k)
		}
		h.Credits--
		d.candidates.assigned(r, h)
		s.Runs = append(s.Runs, l.Dispatcher.startOf(r))
	}
	l.Dispatcher.start(d.starts, d.order)
	clear(d.starts)
	d.order = d.order[:0]
}

// sendable reports whether a run that was taken from the queue goes to a host now. If not,
// sendable has ended, parked or fanned out the run, or the entry was stale.
func (d *dispatching) sendable(r *job.Run) bool {
	l := d.l
	if !l.timing.due(r) || r.Slot().Ownership.State != job.Here {
		return false
	}
	if l.Sessions.maybeDispatched(r) {
		l.Dispatcher.park(r)
		return false
	}
	if l.admission.expired(r) {
		return false
	}
	if len(l.Moves.departing) > 0 {
		if c := l.Moves.departing[r.Slot()]; c != nil {
			c.parked = append(c.parked, r)
			return false
		}
	}
	if !r.Policy.Fans() || r.IsPart() {
		return true
	}
	switch {
	case l.Demand.awaits(r): // before limited, so that it takes no token
		l.Dispatcher.park(r)
	case !l.admission.limited(r):
		l.Dispatcher.fanOut(r)
	}
	return false
}

// startOf returns the entry of a Started record for the next attempt of a run.
func (di *dispatcher) startOf(r *job.Run) *apiv1.Started_Run {
	var s *apiv1.Started_Run
	if n := len(di.spareStarts); n > 0 {
		s, di.spareStarts = di.spareStarts[n-1], di.spareStarts[:n-1]
	} else {
		s = &apiv1.Started_Run{}
	}
	s.Run, s.Attempt = r.ID[:], r.Attempt+1
	return s
}

// maxSpareStarts bounds the entries that a loop retains: about those of one turn under load.
const maxSpareStarts = 4096

// recorded puts the entries of a record that was applied into loop.spareStarts.
func (di *dispatcher) recorded(starts []*apiv1.Started_Run) {
	for _, s := range starts[:min(len(starts), maxSpareStarts-len(di.spareStarts))] {
		s.Run = nil
		di.spareStarts = append(di.spareStarts, s)
	}
}

// pick returns the host for a run that is not constrained, and how many runs it may get
// before another host must be picked. Of the hosts that may take the run it prefers the one
// with the most free slots, then with the most credits, then the one that was picked least
// recently. A run that waits at a host cannot use a free slot of another one, so a host gets
// more runs than it has free slots only if no other host has a free slot.
func (di *dispatcher) pick(a *fair.App, r *job.Run, pace uint8) (best *hosts.Host, room int) {
	needs := r.Shape().Needs
	var most offer
	all := 0 // free slots of all hosts that may take the run
	for _, h := range di.l.Sessions.hosts {
		if !h.Takes() || h.Credits <= 0 || !h.Serves(a.Name) || !h.Abilities.Has(needs, a.Name) || !di.admits(h, r, pace) {
			continue
		}
		o := offer{free: h.Free(), credits: h.Credits, picked: h.Picked}
		all += o.free
		if best == nil || o.before(most) || o == most && h.Hello.Host < best.Hello.Host {
			best, most = h, o
		}
	}
	if best == nil {
		return nil, 1
	}
	di.picks++
	best.Picked = di.picks
	if most.free > 0 && all > most.free {
		return best, min(most.free, hosts.MaxTasks)
	}
	return best, hosts.MaxTasks
}

// start records the start of attempts, and sends their tasks without waiting until the
// record is durable. If a crash loses the record, the host reports the attempts that it has
// (ADR 25).
func (di *dispatcher) start(starts map[startKey]*apiv1.Started, order []startKey) {
	// The effects of earlier records wait until these are durable; those of starts do not.
	di.l.commits.submit()
	for _, k := range order {
		s := starts[k]
		from := len(di.l.commits.stage.fx)
		di.l.commits.record(k.slot, &apiv1.Record{Kind: &apiv1.Record_Started{Started: s}})
		di.recorded(s.Runs)
		tasks := make([]*apiv1.Task, 0, len(s.Runs))
		for i := from; i < len(di.l.commits.stage.fx); i++ {
			r := di.l.commits.stage.fx[i].Run
			r.Micros = uint16(di.l.clock.now.Nanosecond() / 1000 % 1000)
			tasks = append(tasks, di.task(r))
			di.l.Hub.Notify(r.ID)
		}
		di.l.commits.stage.fx = di.l.commits.stage.fx[:from]
		if !k.host.Out.Send(tasks) {
			di.unsent = append(di.unsent, k.host.Out)
		}
	}
	di.l.commits.submitLazy()
}

// flush wakes the senders of the outboxes into which the turn has put tasks.
func (di *dispatcher) flush() {
	for _, out := range di.unsent {
		out.Flush()
	}
	clear(di.unsent)
	di.unsent = di.unsent[:0]
}

// take records that a host has a run, and charges the app and the lane of the run for it.
func (di *dispatcher) take(h *hosts.Host, r *job.Run) {
	pace := di.paces.Of(r)
	a := fairOf(r)
	h.Held.Take(a, r, pace, di.l.clock.nowMs)
	a.AtHosts++
	r.Mark &^= isRecalled
	a.Usage.Charge(pace, ownerOf(r.Slot()).weight())
	a.Queue.Charge(r, pace)
}

// drop records that a host no longer has a run. took is how long the run held a slot
// there.
func (di *dispatcher) drop(h *hosts.Host, r *job.Run, took time.Duration) {
	a := fairOf(r)
	if !h.Held.Drop(a, r, di.l.clock.nowMs) {
		return
	}
	a.AtHosts--
	a.Usage.Correct(r.Pace, took, ownerOf(r.Slot()).weight())
	a.Queue.Correct(r, r.Pace, took)
	if fair.IsQuick(di.paces.Of(r)) { // with the duration that was learned when it ended
		h.Held.Presence(a).QuickMs = di.l.clock.nowMs
	}
}

// admits reports whether a host may be sent a run of that pace now. Runs of quick jobs
// may wait at the host for a slot, up to the host's budget of work. Other runs need a
// free slot, or one that quick runs hold if the app is entitled to it. While the host is
// shared they do not get the reserved slots. As an exception, an app without slow runs at
// the host may use a reserved slot to have an unmeasured job measured.
//
// A run that has a rate is sent only to a host with a free slot, so that it starts at
// once.
func (di *dispatcher) admits(h *hosts.Host, r *job.Run, pace uint8) bool {
	a := fairOf(r)
	slots, n := int(h.Hello.Slots), h.Held.Busy()
	if slots == 0 { // the host reports no slots: only its credits bound it
		return true
	}
	if n >= slots && rated(r) {
		return false
	}
	if fair.IsQuick(pace) {
		return n < slots || h.Held.Quick+fair.Times[pace] <= h.Budget()
	}
	return (n < slots || h.Held.Slow < slots && di.entitled(h, a)) && (h.Held.Slow < slots-hosts.Reserved(slots) ||
		pace == 0 && h.Held.Presence(a).Slow == 0 ||
		!di.shared(h, a))
}

// rated reports whether the starts of a run's job, or of its app, have a rate.
func rated(r *job.Run) bool {
	return r.Policy.Rate > 0 || ownerOf(r.Slot()).slots[job.ModuleSlot].Settings.GetRate().GetMax() > 0
}

// entitled reports whether a slow run of an app may be sent to a host whose slots are
// taken by runs of quick jobs. It may if each other app with quick runs there has used at
// least as much time as this app and, if this app has quick runs there, its slow runs are
// next. Otherwise a flood of quick runs would keep slow runs from a slot for as long as
// it lasts. The run waits at the host only for the quick work that is there: a host lets
// quick tasks pass a slow one for no longer than workAhead.
func (di *dispatcher) entitled(h *hosts.Host, a *fair.App) bool {
	for other, p := range h.Held.Apps {
		switch {
		case p.Quick == 0:
		case other != a:
			if other.Usage.Used < a.Usage.Used {
				return false
			}
		case !a.Queue.SlowIsNext():
			return false
		}
	}
	return true
}

// shared reports whether a host has other users than the slow jobs of a: other apps, or
// quick jobs of a, that had runs there within SharedFor, or other apps that the host
// serves and that have runs planned in this minute or the next one.
func (di *dispatcher) shared(h *hosts.Host, a *fair.App) bool {
	since := di.l.clock.nowMs - hosts.SharedFor.Milliseconds()
	for other, p := range h.Held.Apps {
		if other == a && p.QuickMs >= since || other != a && (p.Slow > 0 || p.SeenMs >= since) {
			return true
		}
	}
	for _, other := range di.l.State.apps {
		if &other.fair != a && h.Serves(other.name) && other.fair.Coming.Within(di.l.clock.nowMs) {
			return true
		}
	}
	return false
}

// offer is what pick compares of two hosts.
type offer struct {
	free    int
	credits int64
	picked  uint64 // loop.picks when the host was picked last
}

// before reports whether pick prefers o to p.
func (o offer) before(p offer) bool {
	return cmp.Or(cmp.Compare(o.free, p.free), cmp.Compare(o.credits, p.credits), cmp.Compare(p.picked, o.picked)) > 0
}
