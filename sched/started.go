package sched

import (
	"fmt"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// A host reports the start of a handler when the handler has run for 100 ms, or with the
// result of a shorter one (ADR 39). Reported states of live runs are in no record, so the
// host repeats them on each new stream.

// paceText returns a pace as tasks carry it to hosts.
func paceText(pace uint8) apiv1.Pace {
	switch {
	case pace == 0:
		return apiv1.Pace_PACE_UNMEASURED
	case isQuick(pace):
		return apiv1.Pace_PACE_UNSPECIFIED
	}
	return apiv1.Pace_PACE_SLOW
}

// handleStates records the states that a host reports of its runs.
func (l *loop) handleStates(h *host, states []*apiv1.TaskState) {
	if len(states) == 0 {
		return
	}
	for _, s := range states {
		r := l.findRun(s.App, s.Run)
		if r == nil {
			continue
		}
		if r.State != job.Running && s.Attempt == r.Attempt+1 {
			l.adopt(h, &apiv1.Running{Run: s.Run, App: s.App, Attempt: s.Attempt})
		}
		if !r.Current(s.Attempt, h.hello.Host) || !executes(r) {
			continue
		}
		t, again := h.held.told[r]
		if !again {
			t.startedMs = l.countStart(r, s.WaitedUs)
		}
		t.asleep = s.Sleeping
		h.held.tell(r, t)
		l.hub.notify(r.ID)
	}
	l.recallCaught(h)
	l.hostFreed()
}

// countStart returns when the handler of a run has started, in Unix ms, from the time
// that the task waited at its host. For the first attempt of a scheduled run it also
// records the lateness.
func (l *loop) countStart(r *job.Run, waitedUs int64) (ms int64) {
	us := r.Attempts[len(r.Attempts)-1].DispatchedMs*1000 + int64(r.Micros) + max(waitedUs, 0)
	if r.Trigger == job.BySchedule && r.Attempt == 1 {
		l.countLateness(l.apps[r.App], time.Duration(us-r.PlannedMs*1000)*time.Microsecond)
	}
	return min(us/1000, l.nowMs)
}

// startedBy returns when the handler of an attempt with the result t has started, in Unix
// ms; 0: it has not, or the host has not reported it. h may be nil.
func (l *loop) startedBy(h *host, r *job.Run, t *apiv1.TaskResult) int64 {
	if h != nil && len(h.held.told) > 0 {
		if told, ok := h.held.told[r]; ok {
			return told.startedMs
		}
	}
	if t.StartedMs == 0 || len(r.Attempts) == 0 {
		return 0
	}
	return l.countStart(r, t.WaitedUs)
}

// cameTooLate reports whether a host has not started a run because its start deadline has
// passed.
func (l *loop) cameTooLate(r *job.Run, t *apiv1.TaskResult) bool {
	if t.Code != job.CodeStartDeadline || t.Outcome != apiv1.Outcome_OUTCOME_STOPPED || t.StartedMs != 0 || r.CancelRequested {
		return false
	}
	at := startBy(r)
	return at > 0 && l.nowMs+l.ahead.lag(r) > at
}

// leastStartTime is the shortest time that the task of a job with a rate may wait at its
// host.
const leastStartTime = 10 * time.Millisecond

// startWithin returns how long a task may wait at its host, in ms; 0: without a bound.
// After that time, a run with a start deadline is missed. A run with a rate is given back
// to the server and waits for its rate again; it may start late by a hundredth of the
// interval of the rate, but at least by 10 ms.
func (l *loop) startWithin(r *job.Run) (ms int64) {
	if at := startBy(r); at > 0 {
		ms = max(at-l.nowMs-l.ahead.lag(r), 1)
	}
	if !rated(r) || r.IsPart() || !r.Untouched() {
		return ms
	}
	starts, per := job.RateOf(ownerOf(r.Slot()).slots[job.ModuleSlot].Settings.GetRate())
	interval := time.Duration(0)
	if starts > 0 {
		interval = per / time.Duration(starts)
	}
	if r.Policy.Rate > 0 {
		interval = max(interval, r.Policy.RatePer/time.Duration(r.Policy.Rate))
	}
	within := max(interval/100, leastStartTime).Milliseconds()
	if ms == 0 {
		return within
	}
	return min(ms, within)
}

// recallCaught asks a host to give back runs of quick jobs that wait there behind runs
// that take longer than expected. When the host has confirmed that they have not started,
// they are dispatched again, perhaps to another host.
func (l *loop) recallCaught(h *host) {
	excess := h.held.quick - h.budget()
	if excess <= 0 || !h.hello.Recalls {
		return
	}
	for i := len(h.held.runs) - 1; i >= 0 && excess > 0; i-- { // roughly the newest first
		r := h.held.runs[i]
		if _, isTold := h.held.told[r]; isTold || !isQuick(r.Pace) {
			continue
		}
		excess -= paceTimes[r.Pace]
		if r.Mark&(isRecalled|isInResultBatch) == 0 {
			r.Mark |= isRecalled
			h.out.recall(r.ID, r.Attempt)
		}
	}
}

// state returns the state of a live run as the API shows it.
func (l *loop) state(r *job.Run) job.State {
	if r.State != job.Running || r.Delegates() {
		return r.State
	}
	h := l.hosts[r.Host]
	if h == nil || !h.hello.GetRecalls() { // an older host reports no starts
		return job.Running
	}
	switch t, isTold := h.held.told[r]; {
	case t.asleep:
		return job.Sleeping
	case isTold:
		return job.Running
	}
	return job.Dispatched
}

// handlerMs returns when the handler of a live run has started, in Unix ms, with the
// start that its host has reported; 0: it has not.
func (l *loop) handlerMs(r *job.Run) int64 {
	at := r.HandlerMs()
	if at == 0 && r.State == job.Running {
		if h := l.hosts[r.Host]; h != nil {
			at = h.held.told[r].startedMs
		}
	}
	return at
}

// row returns the row of a live run for the API, with the state and the start that its
// host has reported.
func (l *loop) row(r *job.Run) *apiv1.RunRow {
	row := r.Row()
	row.State = string(l.state(r))
	if h := l.hosts[r.Host]; h != nil && r.State == job.Running && len(row.Attempts) > 0 {
		row.Attempts[len(row.Attempts)-1].StartedMs = h.held.told[r].startedMs
	}
	return row
}

// whyRunning returns a text that says where a run is that a host has, and what it waits
// for.
func (l *loop) whyRunning(r *job.Run) string {
	h := l.hosts[r.Host]
	if h == nil {
		return fmt.Sprintf("attempt %d is on host %s", r.Attempt, r.Host)
	}
	on := fmt.Sprintf("attempt %d is on host %s", r.Attempt, h.hello.Name)
	if !h.connected {
		return fmt.Sprintf("%s, which is not connected: it is lost if the host is not back within %s", on, l.cfg.HostLease)
	}
	state := l.state(r)
	module := h.modules[r.Shape().Digest]
	switch {
	case state == job.Sleeping:
		return on + ", its handler sleeps and holds no slot"
	case state != job.Dispatched && h.hello.GetRecalls():
		return on
	case module.GetState() == "compiling":
		return on + ", which fetches and compiles its module"
	case state != job.Dispatched:
		return on
	case r.Mark&isRecalled != 0:
		return on + " and was called back, because others there take longer than expected"
	case h.held.slow >= int(h.hello.Slots) && h.hello.Slots > 0:
		return fmt.Sprintf("%s, where it waits for one of %d slots", on, h.hello.Slots)
	}
	return on + ", and has not run for 100 ms: its start is told with its result, or then"
}

// running returns the number of runs of this partition that hold an execution slot of the
// host.
func (h *host) running() int {
	busy := h.held.busy()
	if slots := int(h.hello.Slots); slots > 0 {
		return min(busy, slots)
	}
	return busy
}

// countStates adds the runs of a host to counts by state.
func (l *loop) countStates(h *host, counts map[job.State]int) {
	switch {
	case h.hello.GetRecalls():
		counts[job.Sleeping] += h.held.asleep
		counts[job.Running] += len(h.held.told) - h.held.asleep
		counts[job.Dispatched] += len(h.held.runs) - len(h.held.told)
	default:
		counts[job.Running] += len(h.held.runs)
	}
}

// atHosts returns the numbers of an app's runs that are dispatched and sleeping.
func (l *loop) atHosts(a *app) (dispatched, sleeping int64) {
	for _, h := range l.hosts {
		if !h.hello.GetRecalls() || h.held.of[a] == nil {
			continue
		}
		for _, r := range h.held.runs {
			if ownerOf(r.Slot()) != a {
				continue
			}
			switch l.state(r) {
			case job.Dispatched:
				dispatched++
			case job.Sleeping:
				sleeping++
			}
		}
	}
	return dispatched, sleeping
}
