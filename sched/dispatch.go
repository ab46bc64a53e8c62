package sched

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
)

const (
	// maxTasks and maxTaskBytes bound one message to a host.
	maxTasks     = 128
	maxTaskBytes = 64 << 10
	// recoveryTime is how long recovery lasts after the start of a server or, if it
	// refused a host, after the last refusal. All hosts reconnect within two seconds of
	// each other and then report the tasks that they hold.
	recoveryTime = 3 * time.Second
	// forgetHost is how long a lost host is still shown.
	forgetHost = time.Hour
)

// host is what the loop knows of a host.
type host struct {
	hello      *apiv1.Hello
	abilities  job.Abilities // from hello
	load       *apiv1.HostLoad
	connected  bool
	draining   bool
	leaving    bool   // it was assigned to other partitions: its stream ends when it has no runs
	generation uint64 // counts its streams, so that late events of an old stream are recognized
	out        *outbox
	credits    int64 // tasks that it can take
	held       held
	picked     uint64 // see offer
	joinedAt   time.Time
	seenAt     time.Time
	modules    map[string]*apiv1.ModuleState // what it has reported of modules, by digest
	lostAt     time.Time                     // end of its lease, if it is not connected: its runs are lost then
}

func (h *host) serves(app string) bool {
	return len(h.hello.Apps) == 0 || slices.Contains(h.hello.Apps, app)
}

// enqueue puts a run that may be dispatched into the ready queue of its app. A run of a
// workflow begins at once.
func (l *loop) enqueue(r *job.Run) {
	if r.Policy.Workflow {
		l.begin(r)
		return
	}
	a := l.apps[r.App]
	if !a.listed {
		a.listed = true
		l.order = append(l.order, a)
		a.usage.join(l.served)
	}
	a.ready.push(r, isQuick(l.paces.of(r)))
}

// dispatch sends runs to hosts as long as hosts can take more. The app that has used the
// least time of hosts for its weight comes first.
func (l *loop) dispatch() {
	if len(l.order) == 0 || l.failure != nil || l.cramped() {
		return
	}
	d := dispatching{l: l, starts: map[startKey]*apiv1.Started{}}
	line := byUsage(l.order)
	l.order = l.spareOrder[:0]
	heap.Init(&line)
	for len(line) > 0 {
		a := line[0]
		l.served = a.usage.used
		switch sent := d.serve(a); {
		case a.ready.len() == 0:
			heap.Pop(&line)
			a.listed = false
		case sent:
			heap.Fix(&line, 0)
		default:
			l.order = append(l.order, heap.Pop(&line).(*app))
		}
	}
	clear(line[:cap(line)])
	l.spareOrder = line
}

// dispatching is one pass over the ready queues.
type dispatching struct {
	l          *loop
	starts     map[startKey]*apiv1.Started
	order      []startKey
	candidates *candidates // of the app that is served; nil: not computed yet
}

// serve sends up to maxTasks runs of an app, and reports whether it did anything.
func (d *dispatching) serve(a *app) bool {
	d.candidates = nil
	for _, lv := range a.ready.levels {
		for i := range lv.lanes {
			if d.serveLane(a, lv, i) {
				return true
			}
		}
	}
	return false
}

// serveLane is serve for the quick or the slow runs of one priority.
func (d *dispatching) serveLane(a *app, lv *level, i int) bool {
	l, ln := d.l, &lv.lanes[i]
	for ln.len() > 0 {
		r := ln.peek()
		if !l.due(r) {
			a.ready.pop(ln, 1)
			continue
		}
		pace := l.paces.of(r)
		if i == quickLane && !isQuick(pace) { // its job has become slow since then
			a.ready.pop(ln, turnOf[i])
			a.ready.push(r, false)
			continue
		}
		h, room := l.pick(a, r, pace)
		switch {
		case h != nil || constrained(r):
			d.send(a, ln, i, h, room)
			return true
		case !l.unlike(a, r):
			return false // the runs behind it must wait as well
		}
		if a.ready.pop(ln, turnOf[i]); d.sendable(r) {
			l.park(r)
		}
	}
	return false
}

// send takes up to room runs from a lane and sends them. Runs that are not constrained and
// that h can execute go to h; the routing of the others picks their host. h is nil if pick
// found no host.
func (d *dispatching) send(a *app, ln *lane, lane int, h *host, room int) {
	l := d.l
	for n := 0; n < room && ln.len() > 0; n++ {
		if n%prefetch.Group == 0 {
			ln.prefetch(min(room-n, prefetch.Group))
		}
		next := ln.peek()
		pace := l.paces.of(next)
		if n > 0 && !constrained(next) && (h == nil || h.credits <= 0 || !l.admits(h, next, pace)) {
			break
		}
		r := a.ready.pop(ln, turnOf[lane])
		if !d.sendable(r) {
			continue
		}
		h := h
		if constrained(r) || !h.abilities.Has(r.Shape().Needs) {
			if d.candidates == nil {
				d.candidates = l.candidatesOf(a.name)
			}
			if h = d.candidates.pick(r, l.memory(r)); h == nil {
				l.park(r)
				continue
			}
		}
		// A run may be in the queue twice. The first entry has started it.
		if executes(r) || l.limited(r) {
			continue
		}
		l.take(h, r)
		k := startKey{l.slotOf(r), h}
		s := d.starts[k]
		if s == nil {
			s = &apiv1.Started{Host: h.hello.Host, Session: h.hello.Session}
			d.starts[k] = s
			d.order = append(d.order, k)
		}
		h.credits--
		d.candidates.assigned(r, h)
		s.Runs = append(s.Runs, l.startOf(r))
	}
	l.start(d.starts, d.order)
	clear(d.starts)
	d.order = d.order[:0]
}

// sendable reports whether a run that was taken from the queue goes to a host now. If not,
// sendable has ended, parked or fanned out the run, or the entry was stale.
func (d *dispatching) sendable(r *job.Run) bool {
	l := d.l
	if !l.due(r) || r.Slot().Ownership.State != job.Here {
		return false
	}
	if l.maybeDispatched(r) {
		l.park(r)
		return false
	}
	if l.expired(r) {
		return false
	}
	if len(l.departing) > 0 {
		if c := l.departing[r.Slot()]; c != nil {
			c.parked = append(c.parked, r)
			return false
		}
	}
	if !r.Policy.Fans() || r.IsPart() {
		return true
	}
	switch {
	case l.awaits(r): // before limited, so that it takes no token
		l.park(r)
	case !l.limited(r):
		l.fanOut(r)
	}
	return false
}

// startOf returns the entry of a Started record for the next attempt of a run.
func (l *loop) startOf(r *job.Run) *apiv1.Started_Run {
	var s *apiv1.Started_Run
	if n := len(l.spareStarts); n > 0 {
		s, l.spareStarts = l.spareStarts[n-1], l.spareStarts[:n-1]
	} else {
		s = &apiv1.Started_Run{}
	}
	s.Run, s.Attempt = r.ID[:], r.Attempt+1
	return s
}

// maxSpareStarts bounds the entries that a loop retains: about those of one turn under load.
const maxSpareStarts = 4096

// recorded puts the entries of a record that was applied into loop.spareStarts.
func (l *loop) recorded(starts []*apiv1.Started_Run) {
	for _, s := range starts[:min(len(starts), maxSpareStarts-len(l.spareStarts))] {
		s.Run = nil
		l.spareStarts = append(l.spareStarts, s)
	}
}

type startKey struct {
	slot *job.Slot
	host *host
}

// maybeDispatched reports whether the former owner may have sent a run to a host that
// has not reconnected yet.
func (l *loop) maybeDispatched(r *job.Run) bool { return l.recovering && r.Mark&isMaybeDispatched != 0 }

// recoveryTimer ends recovery.
type recoveryTimer struct{}

// endRecovery ends recovery if its time has passed, and sets recoveryTimer if not.
func (l *loop) endRecovery() {
	if wait := l.recoveryLeft(); wait > 0 {
		l.wheel.Add(l.nowMs+wait.Milliseconds()+1, recoveryTimer{})
		return
	}
	l.recovering = false
	if j, ok := l.cfg.Journal.(journal.Orderly); ok {
		j.Settle()
	}
}

// pick returns the host for a run that is not constrained, and how many runs it may get
// before another host must be picked. Of the hosts that may take the run it prefers the one
// with the most free slots, then with the most credits, then the one that was picked least
// recently. A run that waits at a host cannot use a free slot of another one, so a host gets
// more runs than it has free slots only if no other host has a free slot.
func (l *loop) pick(a *app, r *job.Run, pace uint8) (best *host, room int) {
	needs := r.Shape().Needs
	var most offer
	all := 0 // free slots of all hosts that may take the run
	for _, h := range l.hosts {
		if !h.connected || h.draining || h.credits <= 0 || !h.serves(a.name) || !h.abilities.Has(needs) || !l.admits(h, r, pace) {
			continue
		}
		o := offer{free: h.free(), credits: h.credits, picked: h.picked}
		all += o.free
		if best == nil || o.before(most) || o == most && h.hello.Host < best.hello.Host {
			best, most = h, o
		}
	}
	if best == nil {
		return nil, 1
	}
	l.picks++
	best.picked = l.picks
	if most.free > 0 && all > most.free {
		return best, min(most.free, maxTasks)
	}
	return best, maxTasks
}

// unlike reports whether a host that serves the app cannot execute the run. Other runs of
// the app may go there, so they must not wait behind this one.
func (l *loop) unlike(a *app, r *job.Run) bool {
	for _, h := range l.hosts {
		if h.connected && !h.draining && h.serves(a.name) && !h.abilities.Has(r.Shape().Needs) {
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

// free returns the number of slots in which a task that is sent now starts at once.
func (h *host) free() int { return max(int(h.hello.Slots)-h.held.busy(), 0) }

// start records the start of attempts, and sends their tasks without waiting until the
// record is durable. If a crash loses the record, the host reports the attempts that it has
// (ADR 25).
func (l *loop) start(starts map[startKey]*apiv1.Started, order []startKey) {
	// The effects of earlier records wait until these are durable; those of starts do not.
	l.submit()
	for _, k := range order {
		s := starts[k]
		from := len(l.stage.fx)
		l.record(k.slot, &apiv1.Record{Kind: &apiv1.Record_Started{Started: s}})
		l.recorded(s.Runs)
		tasks := make([]*apiv1.Task, 0, len(s.Runs))
		for i := from; i < len(l.stage.fx); i++ {
			r := l.stage.fx[i].Run
			r.Micros = uint16(l.now.Nanosecond() / 1000 % 1000)
			tasks = append(tasks, l.task(r))
			l.hub.notify(r.ID)
		}
		l.stage.fx = l.stage.fx[:from]
		if !k.host.out.send(tasks) {
			l.unsent = append(l.unsent, k.host.out)
		}
	}
	l.submitLazy()
}

func (l *loop) task(r *job.Run) *apiv1.Task {
	sh := r.Shape()
	t := codec.NewTask()
	t.Run, t.App, t.Job, t.Attempt, t.MaxAttempts, t.Epoch = r.ID[:], r.App, r.Job, r.Attempt, r.MaxAttempts(), l.cfg.Epoch
	t.PlannedMs, t.Module, t.Digest, t.Handler = r.PlannedMs, sh.Handler.Module, sh.Digest, sh.Handler.Name
	t.Input, t.Args, t.Env, t.Http, t.Command = r.Given(), sh.Handler.Args, sh.Handler.Env, sh.Handler.Http, sh.Handler.Command
	t.TimeoutMs, t.TraceParent, t.Covers = r.Policy.Timeout.Milliseconds(), r.TraceParent, r.Covers
	t.Trust, t.MemoryBytes, t.Fuel = l.apps[r.App].trustID(), sh.Memory, sh.Fuel
	t.Priority, t.Pace = r.Policy.Priority, paceText(r.Pace)
	t.StartWithinMs = l.startWithin(r)
	if r.IsPart() {
		t.Part, t.Parts = r.Fan.Part, r.Fan.Parts
		t.Role, t.Handler = r.Role(), r.HandlerName()
	}
	t.Grants = l.grantsOf(r.App, sh).encoded
	return t
}

// attach begins the session of a host. It compares the attempts that the host reports with
// those that the loop expects there: missing ones are lost, unknown ones are adopted.
func (l *loop) attach(hello *apiv1.Hello, out *outbox) (*host, error) {
	h := l.hosts[hello.Host]
	if err := l.refuseChange(); err != nil {
		l.since = l.now
		if h != nil && !h.connected { // the host is alive, so its lease begins again
			h.lostAt = l.now.Add(l.cfg.HostLease)
		}
		return nil, err
	}
	if h == nil {
		h = &host{}
		l.hosts[hello.Host] = h
	} else if h.connected {
		h.out.close() // the stream that this one replaces
	}
	h.hello, h.out, h.connected, h.draining, h.credits = hello, out, true, false, 0
	for r := range h.held.told { // the host reports their states again
		h.held.tell(r, told{startedMs: h.held.told[r].startedMs})
	}
	h.leaving = false
	h.abilities = job.NewAbilities(hello.Abi)
	h.modules = nil // the host reports its modules again
	l.prefetchAliases(h)
	h.generation++
	h.joinedAt, h.seenAt = l.now, l.now

	reported := map[job.RunID]int32{}
	for _, r := range hello.Running {
		if len(r.Run) == len(job.RunID{}) {
			reported[job.RunID(r.Run)] = r.Attempt
		}
	}
	var lost []*job.Run
	for _, r := range h.held.runs {
		if attempt, ok := reported[r.ID]; !ok || attempt != r.Attempt {
			lost = append(lost, r)
		}
	}
	l.lose(lost, "the host does not know of it: it was restarted, or its task was lost on the way")
	for _, r := range h.held.runs {
		if r.CancelRequested {
			out.cancel(r.ID, r.Attempt)
		}
	}
	for _, r := range hello.Running {
		l.adopt(h, r)
	}
	return h, nil
}

// adopt records an attempt that a host reports and that the state does not have, because a
// crash lost its record. It cancels an attempt that the run cannot be on.
func (l *loop) adopt(h *host, rep *apiv1.Running) {
	if len(rep.Run) != len(job.RunID{}) {
		return
	}
	id := job.RunID(rep.Run)
	r := l.liveRun(rep.App, id)
	switch {
	case r != nil && r.Current(rep.Attempt, h.hello.Host):
		return
	case r != nil && !h.runsModules() && !h.abilities.Has(r.Shape().Needs): // the host does not announce what it needs
		h.out.cancel(id, rep.Attempt)
	case r != nil && r.State != job.Running && !executes(r) && rep.Attempt == r.Attempt+1:
		l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Adopted{Adopted: &apiv1.Adopted{
			Host: h.hello.Host, Session: h.hello.Session, Runs: []*apiv1.Started_Run{{Run: rep.Run, Attempt: rep.Attempt}},
		}}})
		l.take(h, r)
		r.Mark &^= isMaybeDispatched
	default: // the run has ended or another host has it: the result would be ignored
		h.out.cancel(id, rep.Attempt)
	}
}

// detach ends the stream of a host. The host retains its runs until its lease ends.
func (l *loop) detach(h *host, generation uint64) {
	if h.generation != generation || !h.connected {
		return
	}
	h.connected, h.credits = false, 0
	if h.leaving && len(h.held.runs) == 0 { // it has left in order and is not lost
		delete(l.hosts, h.hello.Host)
		return
	}
	l.awaitReturn(h)
}

func (l *loop) awaitReturn(h *host) {
	h.lostAt = l.now.Add(l.cfg.HostLease)
	l.wheel.Add(h.lostAt.UnixMilli(), &hostLease{h, h.generation})
}

// hostLease is the timer that ends the lease of a disconnected host.
type hostLease struct {
	h          *host
	generation uint64
}

// holds reports whether the host has not reconnected since.
func (x *hostLease) holds() bool { return !x.h.connected && x.h.generation == x.generation }

func (x *hostLease) expire(l *loop) {
	h := x.h
	if !x.holds() {
		return
	}
	// The host was refused meanwhile, or the clock was set: a lease lasts in real time.
	if wait := h.lostAt.Sub(l.now); wait > 0 {
		l.wheel.Add(l.nowMs+wait.Milliseconds()+1, x)
		return
	}
	if l.now.Sub(h.lostAt) >= forgetHost {
		delete(l.hosts, h.hello.Host)
		return
	}
	if l.cramped() {
		l.wheel.Add(l.nowMs+armWindow, x) // the disk is full: try again in a window
		return
	}
	l.lose(slices.Clone(h.held.runs), "the host went away and did not come back within "+l.cfg.HostLease.String())
	l.wheel.Add(h.lostAt.Add(forgetHost).UnixMilli(), x)
}

// lose ends attempts that their hosts have lost.
func (l *loop) lose(runs []*job.Run, why string) {
	slices.SortFunc(runs, func(a, b *job.Run) int { return slices.Compare(a.ID[:], b.ID[:]) })
	collected := l.resultBatch()
	for _, r := range runs {
		collected.add(r, &apiv1.TaskResult{Run: r.ID[:], Attempt: r.Attempt, Outcome: apiv1.Outcome_OUTCOME_LOST, Error: why, Code: "host_lost"})
	}
	collected.record()
}

// Limits of a result, in bytes. The hosts of the program wheelwork respect them, but the
// server does not trust a host to do so.
const (
	maxOutput = 1 << 20
	maxText   = 64 << 10
	// maxBatchOutput is the size of the outputs at which a result batch is recorded, in bytes.
	maxBatchOutput = 1 << 20
)

// bounded enforces the limits on a result.
func bounded(t *apiv1.TaskResult) {
	if n := len(t.Output); n > maxOutput {
		t.Output, t.Outcome, t.Code = nil, apiv1.Outcome_OUTCOME_PERMANENT, "output_limit"
		t.Error = fmt.Sprintf("the output is %d bytes, the limit is %d", n, maxOutput)
	}
	for _, s := range []*string{&t.Error, &t.Code, &t.Trace} {
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "")
		}
	}
}

// resultBatch collects the results in one message of a host, in a record for each slot. The
// loop has one, which is empty between two messages.
type resultBatch struct {
	l      *loop
	bySlot map[*job.Slot]*apiv1.Finished // with results for the slots in order; the others are empty
	order  []*job.Slot
	runs   []*job.Run // the runs with the mark isInResultBatch
	bytes  int        // size of the outputs, errors and traces in the batch
	free   []*apiv1.Finished_End
}

// isInResultBatch is a mark of runs: the batch has a result of the run.
const isInResultBatch = 1 << 7

func (l *loop) resultBatch() *resultBatch {
	if l.results == nil {
		l.results = &resultBatch{l: l, bySlot: map[*job.Slot]*apiv1.Finished{}}
	}
	return l.results
}

// message returns an empty message, which may have been part of an earlier record. Applying
// a record copies the values of a message and retains no pointer to it.
func (e *resultBatch) message() *apiv1.Finished_End {
	n := len(e.free)
	if n == 0 {
		return &apiv1.Finished_End{}
	}
	m := e.free[n-1]
	e.free = e.free[:n-1]
	// Reset would also store the message's type, at the cost of cache misses.
	*m = apiv1.Finished_End{}
	return m
}

// add decides the outcome of the current attempt of r by its result.
func (e *resultBatch) add(r *job.Run, t *apiv1.TaskResult) {
	l := e.l
	v := job.Settle(r, t.Outcome, time.Duration(t.RetryAfterMs)*time.Millisecond)
	if l.cameTooLate(r, t) {
		v.State, t.Code, t.Error = job.Missed, "deadline", whyMissed(r)
	}
	end := e.message()
	end.Run, end.Attempt, end.Host, end.Outcome = r.ID[:], r.Attempt, r.Host, t.Outcome
	// The run may retain them for long, and without a copy they would retain the whole message.
	end.Output, end.Error, end.Code, end.Trace = slices.Clone(t.Output), strings.Clone(t.Error), strings.Clone(t.Code), strings.Clone(t.Trace)
	h := l.hosts[r.Host]
	end.StartedMs, end.DurationUs, end.State = l.startedBy(h, r, t), t.DurationUs, string(v.State)
	if v.State == job.Waiting {
		end.RetryMs = l.nowMs + v.RetryIn.Milliseconds()
	}
	if v.State.Terminal() {
		end.JobNextMs = l.delayNext(r)
	}
	s := l.slotOf(r)
	f := e.bySlot[s]
	if f == nil {
		f = &apiv1.Finished{}
		e.bySlot[s] = f
	}
	if len(f.Ends) == 0 {
		e.order = append(e.order, s)
	}
	f.Ends = append(f.Ends, end)
	r.Mark |= isInResultBatch
	e.runs = append(e.runs, r)
	took := time.Duration(t.DurationUs) * time.Microsecond
	l.paces.learn(r, took, t.Outcome)
	if h != nil {
		l.drop(h, r, took-time.Duration(t.SleptUs)*time.Microsecond)
	}
	if e.bytes += len(t.Output) + len(t.Error) + len(t.Trace); e.bytes >= maxBatchOutput {
		e.record()
	}
}

// record appends the results to the batch of the journal, and empties the result batch.
func (e *resultBatch) record() {
	for _, s := range e.order {
		f := e.bySlot[s]
		e.l.record(s, &apiv1.Record{Kind: &apiv1.Record_Finished{Finished: f}})
		e.free = append(e.free, f.Ends...)
		clear(f.Ends)
		f.Ends = f.Ends[:0]
	}
	for _, r := range e.runs {
		r.Mark &^= isInResultBatch
	}
	if e.l.stage.bytes >= stageBytes {
		e.l.submit()
	}
	clear(e.runs)
	e.order, e.runs, e.bytes = e.order[:0], e.runs[:0], 0
	if len(e.free) > maxTasks*32 {
		e.free = nil
	}
}

// handleHostMessage handles one message of a host, except its log lines, which were stored
// when the message arrived.
func (l *loop) handleHostMessage(h *host, generation uint64, up *apiv1.WorkUp) {
	if h.generation != generation || !h.connected {
		return // the stream was replaced: the host sends its results again
	}
	h.seenAt = l.now
	h.credits += int64(up.Credits)
	h.draining = h.draining || up.Draining
	if up.Load != nil {
		h.load = up.Load
		h.held.tidy(l.nowMs)
	}
	l.noteModules(h, up.Modules)
	if up.Abilities != nil {
		h.change(up.Abilities.Abi)
	}
	l.handleStates(h, up.States)
	for _, p := range up.Progress {
		if r := l.findRun(p.App, p.Run); r != nil && r.Current(p.Attempt, h.hello.Host) {
			l.progress[r.ID] = &apiv1.Progress{Done: p.Done, Total: p.Total, Message: p.Message}
			l.hub.notify(r.ID)
		}
	}
	if len(up.Results) == 0 {
		l.leaveHost(h, up)
		return
	}
	if l.cramped() {
		h.out.close() // the host retains its results and sends them again
		return
	}
	collected := l.resultBatch()
	for i, r := range job.FindRuns(up.Results, codec.ReadResults, l.slotOfResult) {
		if r == nil || r.Mark&isInResultBatch != 0 {
			continue
		}
		t := up.Results[i]
		if r.State != job.Running && t.Attempt == r.Attempt+1 {
			l.adopt(h, &apiv1.Running{Run: t.Run, App: t.App, Attempt: t.Attempt})
		}
		if !r.Current(t.Attempt, h.hello.Host) {
			continue // late: the run is on another attempt
		}
		bounded(t)
		collected.add(r, t)
	}
	collected.record()
	l.hostFreed()
	batch := up.Batch
	l.onDurable(func(err error) {
		if err == nil {
			h.out.ack(batch)
		}
	})
	l.leaveHost(h, up)
	codec.FreeResults(up.Results)
	up.Results = nil
}

// findRun returns the live run of an app with an id; nil: there is none, or the id is
// malformed.
func (l *loop) findRun(app string, id []byte) *job.Run {
	if s, id := l.slotOfRun(app, id); s != nil {
		return s.Runs.Get(id)
	}
	return nil
}

// slotOfRun returns the slot that has a run, if it is live; nil: the app does not exist, or
// the id is malformed.
func (l *loop) slotOfRun(app string, id []byte) (s *job.Slot, run job.RunID) {
	if a := l.apps[app]; a != nil && len(id) == len(run) {
		run = job.RunID(id)
		s = a.slots[run.Slot()]
	}
	return s, run
}

func (l *loop) slotOfResult(t *apiv1.TaskResult) (*job.Slot, job.RunID) {
	return l.slotOfRun(t.App, t.Run)
}

// outbox is the queue of messages that wait for one host's stream. The loop puts them in,
// and the stream's sender takes them out. Safe for concurrent use.
type outbox struct {
	mu      sync.Mutex
	tasks   []*apiv1.Task
	cancels []*apiv1.TaskCancel
	recalls []*apiv1.TaskCancel
	fetch   []*apiv1.Prefetch
	unload  []string // digests. Invariant: none is in fetch
	acked   uint64   // the last batch to acknowledge; 0: none
	ackDue  bool     // acked has waited for ackDelay
	closed  bool
	kick    chan struct{} // capacity 1

	ackTimer *time.Timer
}

// ackDelay is how long an acknowledgement waits for a message that can carry it. A host
// needs it only within 200 ms, because it then spools results that are not acknowledged. An
// acknowledgement sent at once would compete for the processor with the caller that waits
// for the same run.
const ackDelay = 5 * time.Millisecond

func newOutbox() *outbox {
	o := &outbox{kick: make(chan struct{}, 1)}
	o.ackTimer = time.AfterFunc(ackDelay, func() { o.change(func() { o.ackDue = o.acked > 0 }) })
	o.ackTimer.Stop()
	return o
}

func (o *outbox) change(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	o.flush()
}

// send adds tasks. If they fill a message, it wakes the sender and returns true. Otherwise
// the caller must call flush.
func (o *outbox) send(tasks []*apiv1.Task) (flushed bool) {
	o.mu.Lock()
	o.tasks = append(o.tasks, tasks...)
	flushed = len(o.tasks) >= maxTasks
	o.mu.Unlock()
	if flushed {
		o.flush()
	}
	return flushed
}

// flush wakes the sender.
func (o *outbox) flush() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *outbox) close() { o.change(func() { o.closed = true }) }

// ack acknowledges a batch of results and all earlier ones, with the next message or after
// ackDelay.
func (o *outbox) ack(batch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acked == 0 {
		o.ackTimer.Reset(ackDelay)
	}
	o.acked = max(o.acked, batch)
}

func (o *outbox) cancel(id job.RunID, attempt int32) {
	o.change(func() { o.cancels = append(o.cancels, &apiv1.TaskCancel{Run: id[:], Attempt: attempt}) })
}

// recall asks the host to give back a task if its handler has not started.
func (o *outbox) recall(id job.RunID, attempt int32) {
	o.change(func() { o.recalls = append(o.recalls, &apiv1.TaskCancel{Run: id[:], Attempt: attempt}) })
}

// sizeOf returns the approximate size of an encoded task, in bytes.
func sizeOf(t *apiv1.Task) int {
	if len(t.Args) > 0 || len(t.Env) > 0 || t.Http != nil || t.Command != "" {
		return proto.Size(t)
	}
	const others = 128 // the numbers and short texts of a task
	return others + len(t.Job) + len(t.Module) + len(t.Digest) + len(t.Input) + len(t.Grants)
}

// take returns the next message; nil: there is none. closed reports whether the outbox was
// closed: the stream ends when there are no more messages.
func (o *outbox) take() (m *apiv1.WorkDown, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	acks := o.acked > 0 && (o.ackDue || o.closed)
	if len(o.tasks) == 0 && len(o.cancels)+len(o.recalls) == 0 && len(o.fetch) == 0 && len(o.unload) == 0 && !acks {
		return nil, o.closed
	}
	m = &apiv1.WorkDown{Acked: o.acked, Cancels: o.cancels, Recalls: o.recalls, Prefetch: o.fetch, Unload: o.unload}
	o.acked, o.ackDue, o.cancels, o.recalls, o.fetch, o.unload = 0, false, nil, nil, nil, nil
	size, n := 0, 0
	for n < len(o.tasks) && n < maxTasks && size < maxTaskBytes {
		size += sizeOf(o.tasks[n])
		n++
	}
	m.Tasks = o.tasks[:n:n]
	if o.tasks = o.tasks[n:]; len(o.tasks) == 0 {
		o.tasks = nil
	}
	return m, o.closed
}
