package core

import (
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// A host reports the start of a handler when the handler has run for 100 ms, or with the
// result of a shorter one (ADR 39). Reported states of live runs are in no record, so the
// host repeats them on each new stream.

// paceText returns a pace as tasks carry it to hosts.
func paceText(pace uint8) apiv1.Pace {
	switch {
	case pace == 0:
		return apiv1.Pace_PACE_UNMEASURED
	case fair.IsQuick(pace):
		return apiv1.Pace_PACE_UNSPECIFIED
	}
	return apiv1.Pace_PACE_SLOW
}

// countStart returns when the handler of a run has started, in Unix ms, from the time
// that the task waited at its host. For the first attempt of a scheduled run it also
// records the lateness.
func (se *Sessions) countStart(r *job.Run, waitedUs int64) (ms int64) {
	us := r.Attempts[len(r.Attempts)-1].DispatchedMs*1000 + int64(r.Micros) + max(waitedUs, 0)
	if r.Trigger == job.BySchedule && r.Attempt == 1 {
		se.l.Stats.countLateness(se.l.State.apps[r.App], time.Duration(us-r.PlannedMs*1000)*time.Microsecond)
	}
	return min(us/1000, se.l.clock.nowMs)
}

// startedBy returns when the handler of an attempt with the result t has started, in Unix
// ms; 0: it has not, or the host has not reported it. h may be nil.
func (se *Sessions) startedBy(h *hosts.Host, r *job.Run, t *apiv1.TaskResult) int64 {
	if h != nil && len(h.Held.Reports) > 0 {
		if told, ok := h.Held.Reports[r]; ok {
			return told.StartedMs
		}
	}
	if t.StartedMs == 0 || len(r.Attempts) == 0 {
		return 0
	}
	return se.countStart(r, t.WaitedUs)
}

// cameTooLate reports whether a host has not started a run because its start deadline has
// passed.
func (se *Sessions) cameTooLate(r *job.Run, t *apiv1.TaskResult) bool {
	if t.Code != job.CodeStartDeadline || t.Outcome != apiv1.Outcome_OUTCOME_STOPPED || t.StartedMs != 0 || r.CancelRequested {
		return false
	}
	at := startBy(r)
	return at > 0 && se.l.clock.nowMs+se.l.timing.ahead.lag(r) > at
}

// leastStartTime is the shortest time that the task of a job with a rate may wait at its
// host.
const leastStartTime = 10 * time.Millisecond

// startWithin returns how long a task may wait at its host, in ms; 0: without a bound.
// After that time, a run with a start deadline is missed. The host returns
// a run with a rate to the server, where it waits for its rate again; such a task may wait
// for a hundredth of the interval of the rate, or for 10 ms if that is longer.
func (se *Sessions) startWithin(r *job.Run) (ms int64) {
	if at := startBy(r); at > 0 {
		ms = max(at-se.l.clock.nowMs-se.l.timing.ahead.lag(r), 1)
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
func (se *Sessions) recallCaught(h *hosts.Host) {
	excess := h.Held.Quick - h.Budget()
	if excess <= 0 || !h.Hello.Recalls {
		return
	}
	for i := len(h.Held.Runs) - 1; i >= 0 && excess > 0; i-- { // roughly the newest first
		r := h.Held.Runs[i]
		if _, isTold := h.Held.Reports[r]; isTold || !fair.IsQuick(r.Pace) {
			continue
		}
		excess -= fair.Times[r.Pace]
		se.recall(h, r)
	}
}

// recall asks a host to give back a run unless its handler has started.
func (se *Sessions) recall(h *hosts.Host, r *job.Run) {
	if _, isTold := h.Held.Reports[r]; !isTold && r.Mark&(isRecalled|isInResultBatch) == 0 {
		r.Mark |= isRecalled
		h.Out.Recall(r.ID, r.Attempt)
	}
}

// state returns the state of a live run as the API shows it.
func (se *Sessions) state(r *job.Run) job.State {
	if r.State != job.Running || r.Delegates() {
		return r.State
	}
	h := se.hosts[r.Host]
	if h == nil || !h.Hello.GetRecalls() { // an older host reports no starts
		return job.Running
	}
	switch t, isTold := h.Held.Reports[r]; {
	case t.Asleep:
		return job.Sleeping
	case isTold:
		return job.Running
	}
	return job.Dispatched
}

// handlerMs returns when the handler of a live run has started, in Unix ms, with the
// start that its host has reported; 0: it has not.
func (se *Sessions) handlerMs(r *job.Run) int64 {
	at := r.HandlerMs()
	if at == 0 && r.State == job.Running {
		if h := se.hosts[r.Host]; h != nil {
			at = h.Held.Reports[r].StartedMs
		}
	}
	return at
}

// row returns the row of a live run for the API, with the state and the start that its
// host has reported.
func (se *Sessions) row(r *job.Run) *apiv1.RunRow {
	row := r.Row()
	row.State = string(se.state(r))
	if h := se.hosts[r.Host]; h != nil && r.State == job.Running && len(row.Attempts) > 0 {
		row.Attempts[len(row.Attempts)-1].StartedMs = h.Held.Reports[r].StartedMs
	}
	return row
}

// countStates adds the runs of a host to counts by state.
func (se *Sessions) countStates(h *hosts.Host, counts map[job.State]int) {
	switch {
	case h.Hello.GetRecalls():
		counts[job.Sleeping] += h.Held.Asleep
		counts[job.Running] += len(h.Held.Reports) - h.Held.Asleep
		counts[job.Dispatched] += len(h.Held.Runs) - len(h.Held.Reports)
	default:
		counts[job.Running] += len(h.Held.Runs)
	}
}

// AtHosts returns the numbers of an app's runs that are dispatched and sleeping.
func (se *Sessions) atHosts(a *app) (dispatched, sleeping int64) {
	for _, h := range se.hosts {
		if !h.Hello.GetRecalls() || h.Held.Apps[&a.fair] == nil {
			continue
		}
		for _, r := range h.Held.Runs {
			if ownerOf(r.Slot()) != a {
				continue
			}
			switch se.state(r) {
			case job.Dispatched:
				dispatched++
			case job.Sleeping:
				sleeping++
			}
		}
	}
	return dispatched, sleeping
}
