package sched

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// setBack has the times of the state that are ahead of the clock because the clock was
// set back (ADR 36). Rates, delays, retries and timeouts go on at their pace. Times that
// name the clock, as those of cron do, wait until the clock shows them.
//
// The times in the state do not change. With the next record of a job or a run its times
// are by the clock again. After a restart, turnBack(0) finds the times that are still
// ahead.
type setBack struct {
	until int64              // the latest time that the clock has shown, in Unix ms
	runs  map[*job.Run]int64 // by how much the times of a run are ahead, in ms
	jobs  map[*job.Job]replanned
}

// replanned is the next planned time of a job, in Unix ms.
type replanned struct {
	of, to int64 // in the state, and by the clock that was set back
}

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

// lag returns by how much the times of a live run are ahead of the clock, in ms; 0: they
// are not.
func (b *setBack) lag(r *job.Run) int64 { return b.runs[r] }

// next returns the next planned time of a job by the present clock, in Unix ms; 0: the
// job has none.
func (b *setBack) next(j *job.Job) int64 {
	if p, ok := b.jobs[j]; ok && p.of == j.NextMs {
		return p.to
	}
	return j.NextMs
}

// account drops the entry of a run or a job whose times an effect has replaced.
func (b *setBack) account(e *job.Effect) {
	switch e.Change {
	case job.RunStarted, job.RunWaiting, job.RunEnded, job.RunRevoked:
		delete(b.runs, e.Run)
	case job.JobDeleted, job.JobMoved, job.JobChanged:
		if p, ok := b.jobs[e.Job]; ok && (p.of != e.Job.NextMs || e.Change == job.JobDeleted) {
			delete(b.jobs, e.Job)
		}
	}
}

// turnBack finds the times that are ahead of the clock. by is the step by which the clock
// was just set back, in ms; 0 means that the server starts, and that the clock may have
// been set back before.
func (l *loop) turnBack(by int64) {
	if 0 < by && by < leastSetBack {
		return
	}
	l.ahead.until = max(l.ahead.until, l.nowMs+by)
	for _, a := range l.apps {
		for _, s := range a.slots {
			for j := range s.Jobs.All() {
				l.ahead.until = max(l.ahead.until, j.LastEndMs())
			}
		}
	}
	for _, a := range l.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here {
				continue
			}
			for r := range s.Runs.All() {
				if lag := l.turnRun(r, by); lag > 0 {
					l.ahead.putRun(r, lag)
				}
			}
			for j := range s.Jobs.All() {
				l.turnJob(j, by)
			}
		}
	}
}

func (b *setBack) putRun(r *job.Run, lag int64) {
	if b.runs == nil {
		b.runs = map[*job.Run]int64{}
	}
	b.runs[r] += lag
}

// turnRun returns by how much the times of a run are ahead of a clock that was set back
// by the given ms. If by is 0, it derives the result from the times of the run.
func (l *loop) turnRun(r *job.Run, by int64) int64 {
	switch r.State {
	case job.Armed:
		at := r.PlannedMs - l.ahead.lag(r)
		if by > 0 && at <= l.nowMs+by { // it was due before and is in the ready queue
			return by
		}
		switch {
		case at <= l.nowMs || l.waitsForClock(r):
			return 0
		case by > 0:
			return by
		case r.Trigger != job.BySchedule: // it was enqueued with a delay
			return max(r.AcceptedMs-l.nowMs, 0)
		case at > l.nowMs+knownEarly+clockSkew:
			return at - l.nowMs
		}
	case job.Waiting:
		if by > 0 {
			return by
		}
		if n := len(r.Attempts); n > 0 { // it waits since the end of its last attempt
			return max(r.Attempts[n-1].FinishedMs-l.nowMs, 0)
		}
	case job.Queued:
		if deadlineMs(r) > 0 {
			return by
		}
	case job.Running:
		if r.HasNodes() && r.Policy.Timeout > 0 { // the host enforces the timeout of an attempt
			return max(by, r.StartedMs-l.ahead.lag(r)-l.nowMs, 0)
		}
	}
	return 0
}

// waitsForClock reports whether an armed run waits until the clock shows its planned
// time.
func (l *loop) waitsForClock(r *job.Run) bool {
	j := l.job(r.App, r.Job)
	if j == nil || r.Trigger != job.BySchedule {
		return false
	}
	plan, err := l.planOf(j)
	if err != nil {
		return false
	}
	_, goesOn := plan.Back(time.UnixMilli(r.PlannedMs), 0)
	return !goesOn
}

// turnJob moves the next planned time of a job back with the clock, if the time is ahead
// of the clock and does not name it.
func (l *loop) turnJob(j *job.Job, by int64) {
	next := l.ahead.next(j)
	if next <= l.nowMs+knownEarly || !j.GoesOn() {
		return
	}
	plan, err := l.planOf(j)
	if err != nil {
		return // arm logs the error
	}
	at := time.UnixMilli(next)
	back := time.Duration(by) * time.Millisecond
	if by == 0 {
		back = plan.Ahead(at, time.UnixMilli(l.nowMs), (knownEarly+clockSkew)*time.Millisecond)
	}
	if back == 0 {
		return
	}
	to, ok := plan.Back(at, back)
	if !ok {
		return
	}
	to = l.unplanned(j, to)
	if l.ahead.jobs == nil {
		l.ahead.jobs = map[*job.Job]replanned{}
	}
	l.ahead.jobs[j] = replanned{j.NextMs, to.UnixMilli()}
}

// unplanned returns the first time from at on, in steps of 1 ms, at which the job has no
// run yet. A planned time has only one run, and a delay schedule may have planned any
// millisecond that the clock has shown.
func (l *loop) unplanned(j *job.Job, at time.Time) time.Time {
	for l.plannedBefore(j, at) {
		at = at.Add(time.Millisecond)
	}
	return at
}

// plannedBefore reports whether a planned time got its run before the clock was set back.
func (l *loop) plannedBefore(j *job.Job, at time.Time) bool {
	return at.UnixMilli() <= l.ahead.until+knownEarly && l.hasRun(j.Slot().App, job.OccurrenceID(j.Slot().App, j.Name(), at, ""))
}

// hasRun reports whether a run with this id is live or in the history.
func (l *loop) hasRun(app string, id job.RunID) bool {
	if l.liveRun(app, id) != nil || l.view.recent(app, id) != nil {
		return true
	}
	_, ok, err := l.cfg.Store.Run(app, id)
	if err != nil {
		l.cfg.Logger.Error("the history cannot be asked for a run", "run", id, "error", err)
	}
	return ok
}

// jobMessage returns a job as the API shows it.
func (l *loop) jobMessage(j *job.Job) *apiv1.Job {
	m := j.Message(l.now)
	if next := l.ahead.next(j); next != j.NextMs {
		m.NextAt = timestamppb.New(time.UnixMilli(next))
	}
	return m
}

// whyNext returns the reason why the next planned time of a job is later than the next
// time of its schedule; "": it is not.
func (l *loop) whyNext(j *job.Job) string {
	if j.NextMs <= l.nowMs+knownEarly || l.ahead.next(j) != j.NextMs {
		return ""
	}
	plan, err := l.planOf(j)
	if err != nil {
		return ""
	}
	if _, goesOn := plan.Back(time.UnixMilli(j.NextMs), 0); goesOn {
		return ""
	}
	first, ok := plan.After(time.UnixMilli(l.nowMs + knownEarly))
	for ok && j.GaveUp(first.UnixMilli()) {
		first, ok = behind(plan, first)
	}
	if !ok || first.UnixMilli() >= j.NextMs {
		return ""
	}
	return "the clock was set back: the job waits for the clock until " + clockText(j.NextMs) + ", because its times before that were planned already"
}

// whyArmed returns the reason why an armed run waits.
func (l *loop) whyArmed(r *job.Run) string {
	if r.PlannedMs > l.nowMs+knownEarly && l.waitsForClock(r) {
		return fmt.Sprintf("the clock was set back after the run was planned: it waits for the clock until %s", clockText(r.PlannedMs))
	}
	return "its time has not come"
}

func clockText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
