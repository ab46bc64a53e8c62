package core

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
)

const (
	// leastSetBack is the smallest step of the clock that counts, in ms. A smaller one
	// only makes runs as late as they may be anyway.
	leastSetBack = 1000
	// knownEarly is how long before its planned time a run may be armed, in ms, see
	// armAt. An armed run that is further ahead was planned before the clock was set
	// back.
	knownEarly = armAhead + armWindow
	// clockSkew is the tolerated difference of the clocks of two servers, in ms. A server
	// that takes over with a slower clock must not conclude that the clock was set back.
	clockSkew = 2500
)

// turnBack finds the times that are ahead of the clock. by is the step by which the clock
// was just set back, in ms; 0 means that the server starts, and that the clock may have
// been set back before.
func (tm *timing) turnBack(by int64) {
	if 0 < by && by < leastSetBack {
		return
	}
	tm.ahead.until = max(tm.ahead.until, tm.l.clock.nowMs+by)
	for _, a := range tm.l.State.apps {
		for _, s := range a.slots {
			for j := range s.Jobs.All() {
				tm.ahead.until = max(tm.ahead.until, j.LastEndMs())
			}
		}
	}
	for _, a := range tm.l.State.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here {
				continue
			}
			for r := range s.Runs.All() {
				if lag := tm.turnRun(r, by); lag > 0 {
					tm.ahead.putRun(r, lag)
				}
			}
			for j := range s.Jobs.All() {
				tm.turnJob(j, by)
			}
		}
	}
}

// turnRun returns by how much the times of a run are ahead of a clock that was set back
// by the given ms. If by is 0, it derives the result from the times of the run.
func (tm *timing) turnRun(r *job.Run, by int64) int64 {
	switch r.State {
	case job.Armed:
		at := r.PlannedMs - tm.ahead.lag(r)
		if by > 0 && at <= tm.l.clock.nowMs+by { // it was due before and is in the ready queue
			return by
		}
		switch {
		case at <= tm.l.clock.nowMs || tm.waitsForClock(r):
			return 0
		case by > 0:
			return by
		case r.Trigger != job.BySchedule: // it was enqueued with a delay
			return max(r.AcceptedMs-tm.l.clock.nowMs, 0)
		case at > tm.l.clock.nowMs+knownEarly+clockSkew:
			return at - tm.l.clock.nowMs
		}
	case job.Waiting:
		if by > 0 {
			return by
		}
		if n := len(r.Attempts); n > 0 { // it waits since the end of its last attempt
			return max(r.Attempts[n-1].FinishedMs-tm.l.clock.nowMs, 0)
		}
	case job.Queued:
		if deadlineMs(r) > 0 {
			return by
		}
	case job.Running:
		if r.HasNodes() && r.Policy.Timeout > 0 { // the host enforces the timeout of an attempt
			return max(by, r.StartedMs-tm.ahead.lag(r)-tm.l.clock.nowMs, 0)
		}
	}
	return 0
}

// waitsForClock reports whether an armed run waits until the clock shows its planned
// time.
func (tm *timing) waitsForClock(r *job.Run) bool {
	j := tm.l.State.Job(r.App, r.Job)
	if j == nil || r.Trigger != job.BySchedule {
		return false
	}
	plan, err := tm.l.Planner.planOf(j)
	if err != nil {
		return false
	}
	_, goesOn := plan.Back(time.UnixMilli(r.PlannedMs), 0)
	return !goesOn
}

// turnJob moves the next planned time of a job back with the clock, if the time is ahead
// of the clock and does not name it.
func (tm *timing) turnJob(j *job.Job, by int64) {
	next := tm.ahead.next(j)
	if next <= tm.l.clock.nowMs+knownEarly || !j.GoesOn() {
		return
	}
	plan, err := tm.l.Planner.planOf(j)
	if err != nil {
		return // arm logs the error
	}
	at := time.UnixMilli(next)
	back := time.Duration(by) * time.Millisecond
	if by == 0 {
		back = plan.Ahead(at, time.UnixMilli(tm.l.clock.nowMs), (knownEarly+clockSkew)*time.Millisecond)
	}
	if back == 0 {
		return
	}
	to, ok := plan.Back(at, back)
	if !ok {
		return
	}
	to = tm.unplanned(j, to)
	if tm.ahead.jobs == nil {
		tm.ahead.jobs = map[*job.Job]replanned{}
	}
	tm.ahead.jobs[j] = replanned{j.NextMs, to.UnixMilli()}
}

// unplanned returns the first time from at on, in steps of 1 ms, at which the job has no
// run yet. A planned time has only one run, and a delay schedule may have planned any
// millisecond that the clock has shown.
func (tm *timing) unplanned(j *job.Job, at time.Time) time.Time {
	for tm.plannedBefore(j, at) {
		at = at.Add(time.Millisecond)
	}
	return at
}

// plannedBefore reports whether a planned time got its run before the clock was set back.
func (tm *timing) plannedBefore(j *job.Job, at time.Time) bool {
	return at.UnixMilli() <= tm.ahead.until+knownEarly && tm.hasRun(j.Slot().App, job.OccurrenceID(j.Slot().App, j.Name(), at, ""))
}

// hasRun reports whether a run with this id is live or in the history.
func (tm *timing) hasRun(app string, id job.RunID) bool {
	if tm.l.HasRecent(app, id) {
		return true
	}
	ok, err := tm.l.cfg.ended(app, id)
	if err != nil {
		tm.l.cfg.Logger.Error("the history cannot be asked for a run", "run", id, "error", err)
	}
	return ok
}

// whyNext returns the reason why the next planned time of a job is later than the next
// time of its schedule; "": it is not.
func (tm *timing) whyNext(j *job.Job) string {
	if j.NextMs <= tm.l.clock.nowMs+knownEarly || tm.ahead.next(j) != j.NextMs {
		return ""
	}
	plan, err := tm.l.Planner.planOf(j)
	if err != nil {
		return ""
	}
	if _, goesOn := plan.Back(time.UnixMilli(j.NextMs), 0); goesOn {
		return ""
	}
	first, ok := plan.After(time.UnixMilli(tm.l.clock.nowMs + knownEarly))
	for ok && j.GaveUp(first.UnixMilli()) {
		first, ok = behind(plan, first)
	}
	if !ok || first.UnixMilli() >= j.NextMs {
		return ""
	}
	return "the clock was set back: the job waits for the clock until " + clockText(j.NextMs) + ", because its times before that were planned already"
}

// whyArmed returns the reason why an armed run waits.
func (tm *timing) whyArmed(r *job.Run) reason.Reason {
	if r.PlannedMs > tm.l.clock.nowMs+knownEarly && tm.waitsForClock(r) {
		return reason.New(reason.ClockSetBack, "until", clockText(r.PlannedMs))
	}
	return reason.New(reason.NotYet)
}

func clockText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
