package core

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// maybeDispatched reports whether the former owner may have sent a run to a host that
// has not reconnected yet.
func (se *Sessions) maybeDispatched(r *job.Run) bool {
	return se.recovering && r.Mark&isMaybeDispatched != 0
}

// recoveryTimer ends recovery.
type recoveryTimer struct{}

func (recoveryTimer) fire(l *Loop) { l.Sessions.endRecovery() }

func (recoveryTimer) holds(*Loop, int64) bool { return true }

// endRecovery ends recovery if its time has passed, and sets recoveryTimer if not.
func (se *Sessions) endRecovery() {
	if wait := se.recoveryLeft(); wait > 0 {
		se.l.timing.after(wait.Milliseconds()+1, recoveryTimer{})
		return
	}
	se.recovering = false
	if j, ok := se.l.cfg.Journal.(journal.Orderly); ok {
		j.Settle()
	}
}

// current reports whether the stream is the present one of its host, and the host is
// connected.
func (x Session) current() bool { return x.h.Generation == x.generation && x.h.Connected }

// Attach begins the session of a host. It compares the attempts that the host reports with
// those that the loop expects there: missing ones are lost, unknown ones are adopted.
func (se *Sessions) Attach(hello *apiv1.Hello, out *hosts.Outbox) (Session, error) {
	h := se.hosts[hello.Host]
	if err := se.l.commits.refuseChange(); err != nil {
		se.since = se.l.clock.now
		if h != nil && !h.Connected { // the host is alive, so its lease begins again
			h.LostAt = se.l.clock.now.Add(se.l.cfg.HostLease)
		}
		return Session{}, err
	}
	if h == nil {
		h = &hosts.Host{}
		se.hosts[hello.Host] = h
	} else if h.Connected {
		h.Out.Close() // the stream that this one replaces
	}
	h.Hello, h.Out, h.Connected, h.Draining, h.Credits = hello, out, true, false, 0
	for r := range h.Held.Reports { // the host reports their states again
		h.Held.Record(fairOf(r), r, hosts.Report{StartedMs: h.Held.Reports[r].StartedMs})
	}
	h.Leaving, h.Cordoned = false, hello.Cordoned
	h.Abilities = job.NewAbilities(hello.Abi)
	se.l.Alerts.Report(rule.HostLost, rule.Event{About: aboutHost(h), Ends: true})
	h.Modules = nil // the host reports its modules again
	se.prefetchAliases(h)
	h.Generation++
	h.JoinedAt, h.SeenAt = se.l.clock.now, se.l.clock.now

	reported := map[job.RunID]int32{}
	for _, r := range hello.Running {
		if len(r.Run) == len(job.RunID{}) {
			reported[job.RunID(r.Run)] = r.Attempt
		}
	}
	var lost []*job.Run
	for _, r := range h.Held.Runs {
		if attempt, ok := reported[r.ID]; !ok || attempt != r.Attempt {
			lost = append(lost, r)
		}
	}
	se.lose(lost, "the host does not know of it: it was restarted, or its task was lost on the way")
	for _, r := range h.Held.Runs {
		if r.CancelRequested {
			out.Cancel(r.ID, r.Attempt)
		}
	}
	for _, r := range hello.Running {
		se.adopt(h, r)
	}
	return Session{h, h.Generation}, nil
}

// adopt records an attempt that a host reports and that the state does not have, because a
// crash lost its record. It cancels an attempt that the run cannot be on.
func (se *Sessions) adopt(h *hosts.Host, rep *apiv1.Running) {
	if len(rep.Run) != len(job.RunID{}) {
		return
	}
	id := job.RunID(rep.Run)
	r := se.l.State.LiveRun(rep.App, id)
	switch {
	case r != nil && r.Current(rep.Attempt, h.Hello.Host):
		return
	case r != nil && !h.RunsModules() && !h.Abilities.Has(r.Shape().Needs, rep.App): // the host does not announce what it needs
		h.Out.Cancel(id, rep.Attempt)
	case r != nil && r.State != job.Running && !hosts.Executes(r) && rep.Attempt == r.Attempt+1:
		se.l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_Adopted{Adopted: &apiv1.Adopted{
			Host: h.Hello.Host, Session: h.Hello.Session, Runs: []*apiv1.Started_Run{{Run: rep.Run, Attempt: rep.Attempt}},
		}}})
		se.l.Dispatcher.take(h, r)
		r.Mark &^= isMaybeDispatched
	default: // the run has ended or another host has it: the result would be ignored
		h.Out.Cancel(id, rep.Attempt)
	}
}

// Detach ends the stream of a host. The host retains its runs until its lease ends.
func (se *Sessions) Detach(x Session) {
	h := x.h
	if !x.current() {
		return
	}
	h.Connected, h.Credits = false, 0
	if h.Leaving && len(h.Held.Runs) == 0 { // it has left in order and is not lost
		delete(se.hosts, h.Hello.Host)
		return
	}
	se.awaitReturn(h)
}

// aboutHost is the subject of alerts about a host.
func aboutHost(h *hosts.Host) string { return "host/" + h.Hello.Host }

func (se *Sessions) awaitReturn(h *hosts.Host) {
	h.LostAt = se.l.clock.now.Add(se.l.cfg.HostLease)
	se.l.timing.wheel.add(h.LostAt.UnixMilli(), &hostLease{h, h.Generation})
}

// hostLease is the timer that ends the lease of a disconnected host.
type hostLease struct {
	h          *hosts.Host
	generation uint64
}

// holds reports whether the host has not reconnected since.
func (x *hostLease) holds(*Loop, int64) bool { return !x.h.Connected && x.h.Generation == x.generation }

func (x *hostLease) fire(l *Loop) {
	h := x.h
	if !x.holds(l, 0) {
		return
	}
	// The host was refused meanwhile, or the clock was set: a lease lasts in real time.
	if wait := h.LostAt.Sub(l.clock.now); wait > 0 {
		l.timing.after(wait.Milliseconds()+1, x)
		return
	}
	if l.clock.now.Sub(h.LostAt) >= forgetHost {
		delete(l.Sessions.hosts, h.Hello.Host)
		l.Alerts.Report(rule.HostLost, rule.Event{About: aboutHost(h), Ends: true}) // the server no longer waits for it
		return
	}
	if l.commits.cramped() {
		l.timing.after(armWindow, x) // the disk is full: try again in a window
		return
	}
	for _, a := range l.State.apps {
		if h.Serves(a.name) {
			l.Alerts.report(a, rule.HostLost, rule.Event{Host: h.Hello.Host, About: aboutHost(h), Error: "host " + h.Hello.Name + " went away and did not come back within " + l.cfg.HostLease.String()})
		}
	}
	l.Sessions.lose(slices.Clone(h.Held.Runs), "the host went away and did not come back within "+l.cfg.HostLease.String())
	l.timing.wheel.add(h.LostAt.Add(forgetHost).UnixMilli(), x)
}

// lose ends attempts that their hosts have lost.
func (se *Sessions) lose(runs []*job.Run, why string) {
	slices.SortFunc(runs, func(a, b *job.Run) int { return slices.Compare(a.ID[:], b.ID[:]) })
	collected := se.resultBatch()
	for _, r := range runs {
		collected.add(r, &apiv1.TaskResult{Run: r.ID[:], Attempt: r.Attempt, Outcome: apiv1.Outcome_OUTCOME_LOST, Error: why, Code: "host_lost"})
	}
	collected.record()
}

// HandleHostMessage handles one message of a host, except its log lines, which were stored
// when the message arrived.
func (se *Sessions) HandleHostMessage(x Session, up *apiv1.WorkUp) {
	h := x.h
	if !x.current() {
		return // the stream was replaced: the host sends its results again
	}
	h.SeenAt = se.l.clock.now
	h.Credits += int64(up.Credits)
	h.Draining = h.Draining || up.Draining
	if up.Cordoned != nil {
		h.Cordoned = *up.Cordoned
		se.l.Dispatcher.hostFreed()
	}
	if up.Load != nil {
		h.Load = up.Load
		h.Held.Tidy(se.l.clock.nowMs)
	}
	se.noteModules(h, up.Modules)
	if up.Abilities != nil {
		h.SetAbilities(up.Abilities.Abi)
	}
	se.handleStates(h, up.States)
	for _, p := range up.Progress {
		if r := se.l.State.findRun(p.App, p.Run); r != nil && r.Current(p.Attempt, h.Hello.Host) {
			se.progress[r.ID] = &apiv1.Progress{Done: p.Done, Total: p.Total, Message: p.Message}
			se.l.Hub.Notify(r.ID)
		}
	}
	if len(up.Results) == 0 {
		se.leaveHost(h, up)
		return
	}
	if se.l.commits.cramped() {
		h.Out.Close() // the host retains its results and sends them again
		return
	}
	collected := se.resultBatch()
	for i, r := range job.FindRuns(up.Results, codec.ReadResults, se.slotOfResult) {
		if r == nil || r.Mark&isInResultBatch != 0 {
			continue
		}
		t := up.Results[i]
		if r.State != job.Running && t.Attempt == r.Attempt+1 {
			se.adopt(h, &apiv1.Running{Run: t.Run, App: t.App, Attempt: t.Attempt})
		}
		if !r.Current(t.Attempt, h.Hello.Host) {
			continue // late: the run is on another attempt
		}
		bounded(t)
		collected.add(r, t)
	}
	collected.record()
	se.l.Dispatcher.hostFreed()
	batch := up.Batch
	se.l.commits.onDurable(func(err error) {
		if err == nil {
			h.Out.Ack(batch)
		}
	})
	se.leaveHost(h, up)
	codec.FreeResults(up.Results)
	up.Results = nil
}

// Cordon keeps new tasks from a connected host, or ends that. name is the id of the host,
// or its name if only one has it. With drain it also asks for the tasks that have not
// started (ADR 43).
func (se *Sessions) Cordon(name string, on, drain bool) (*hosts.Host, error) {
	h, err := se.connectedHost(name)
	if err != nil {
		return nil, err
	}
	by := se.l.commits.by
	if by != byServer { // the change has an event
		if err := se.l.commits.refuseChange(); err != nil {
			return nil, err
		}
	}
	h.Cordoned = on
	h.Out.Cordon(on)
	if drain && h.Hello.Recalls {
		for _, r := range h.Held.Runs {
			se.recall(h, r)
		}
	}
	se.l.Dispatcher.hostFreed()
	code := "host.uncordoned"
	if on {
		code = "host.cordoned"
	}
	if by != byServer {
		se.l.Note(by, audit.Row{Code: code, Object: h.Hello.Name})
	}
	return h, nil
}

// connectedHost returns the host with an id, or the only one with a name.
func (se *Sessions) connectedHost(name string) (*hosts.Host, error) {
	h := se.hosts[name]
	if h == nil {
		for _, other := range se.hosts {
			switch {
			case other.Hello.Name != name:
			case h != nil:
				return nil, status.Errorf(codes.FailedPrecondition, "several hosts have the name %q: use the id that `wheelwork host list` shows", name)
			default:
				h = other
			}
		}
	}
	switch {
	case h == nil:
		return nil, status.Errorf(codes.NotFound, "there is no host %q: `wheelwork host list` shows the hosts", name)
	case !h.Connected:
		return nil, status.Errorf(codes.NotFound, "host %s is not connected: try again when it is back", name)
	}
	return h, nil
}

// leaveHost ends the stream of a host that was assigned to other partitions, once it
// has reported the results of all its tasks.
func (se *Sessions) leaveHost(h *hosts.Host, up *apiv1.WorkUp) {
	if up.GetLeaving() {
		h.Leaving, h.Draining = true, true
	}
	if h.Leaving && len(h.Held.Runs) == 0 {
		out := h.Out
		se.l.commits.onDurable(func(error) { out.Close() })
	}
}

// expect records that a host had a run before the restart. The host is not connected; the
// caller sets the time at which its lease ends.
func (se *Sessions) expect(r *job.Run) {
	h := se.hosts[r.Host]
	if h == nil {
		h = &hosts.Host{
			Hello:  &apiv1.Hello{Host: r.Host, Name: r.Host, Session: r.Session},
			Out:    hosts.NewOutbox(),
			SeenAt: se.l.clock.now,
		}
		se.hosts[r.Host] = h
	}
	se.l.Dispatcher.take(h, r)
}

// recoveryLeft returns the rest of recoveryTime. Before it has passed, a broadcast would
// leave out hosts that have not reconnected, and a run could be sent to a second host.
func (se *Sessions) recoveryLeft() time.Duration {
	return max(recoveryTime-se.l.clock.now.Sub(se.since), 0)
}

const (
	// recoveryTime is how long recovery lasts after the start of a server or, if it
	// refused a host, after the last refusal. All hosts reconnect within two seconds of
	// each other and then report the tasks that they hold.
	recoveryTime = 3 * time.Second
	// forgetHost is how long a lost host is still shown.
	forgetHost = time.Hour
)

// handleStates records the states that a host reports of its runs.
func (se *Sessions) handleStates(h *hosts.Host, states []*apiv1.TaskState) {
	if len(states) == 0 {
		return
	}
	for _, s := range states {
		r := se.l.State.findRun(s.App, s.Run)
		if r == nil {
			continue
		}
		if r.State != job.Running && s.Attempt == r.Attempt+1 {
			se.adopt(h, &apiv1.Running{Run: s.Run, App: s.App, Attempt: s.Attempt})
		}
		if !r.Current(s.Attempt, h.Hello.Host) || !hosts.Executes(r) {
			continue
		}
		t, again := h.Held.Reports[r]
		if !again {
			t.StartedMs = se.countStart(r, s.WaitedUs)
		}
		t.Asleep = s.Sleeping
		h.Held.Record(fairOf(r), r, t)
		se.l.Hub.Notify(r.ID)
	}
	se.recallCaught(h)
	se.l.Dispatcher.hostFreed()
}

func (se *Sessions) slotOfResult(t *apiv1.TaskResult) (*job.Slot, job.RunID) {
	return se.l.State.slotOfRun(t.App, t.Run)
}
