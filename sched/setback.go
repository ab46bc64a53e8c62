package sched

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// setBack is what a clock that was set back left behind: times of the state that are ahead
// of it. Rates, delays, retries and timeouts go on at their pace all the same. What names
// the clock, as cron does, waits until the clock shows its time.
//
// The state keeps the times as they are. What the next record says of a job or a run is by
// the clock again, and a server that starts finds again what is ahead.
type setBack struct {
	until int64              // the clock was here already, in Unix ms
	runs  map[*job.Run]int64 // ms by which the times of a run are ahead
	jobs  map[*job.Job]replanned
}

// replanned is the next planned time of a job.
type replanned struct {
	of, to int64 // what it is in the state, and when it comes
}

const (
	// leastSetBack is the least step that matters, in ms: anything may be so late.
	leastSetBack = 1000
	// knownEarly is how long before its time a run may be armed, in ms: see armAt. No armed run
	// of a clock that goes on is further from its time.
	knownEarly = armAhead + armWindow
	// clockSkew is by how much the clocks of two servers may differ, in ms, with some room. A server
	// that takes over with a clock behind must not take that for a clock that was set back.
	clockSkew = 2500
)

// lag returns by how much the times of a live run are ahead of the clock, in ms.
func (b *setBack) lag(r *job.Run) int64 { return b.runs[r] }

// next returns when the next planned time of a job comes; 0: it has none.
func (b *setBack) next(j *job.Job) int64 {
	if p, ok := b.jobs[j]; ok && p.of == j.NextMs {
		return p.to
	}
	return j.NextMs
}

// account forgets what an effect made a time by the clock.
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

// turnBack finds what is ahead of the clock, which was just set back by so many ms; 0: the
// server starts, and the clock may have been set back while it was down, or before.
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

// turnRun returns by how much the times of a run are ahead of the clock since it was set
// back by so many ms; 0 ms: by what the run itself says.
func (l *loop) turnRun(r *job.Run, by int64) int64 {
	switch r.State {
	case job.Armed:
		at := r.PlannedMs - l.ahead.lag(r)
		if by > 0 && at <= l.nowMs+by { // its time had come: it is in line
			return by
		}
		switch {
		case at <= l.nowMs || l.waitsForClock(r):
			return 0
		case by > 0:
			return by
		case r.Trigger != job.BySchedule: // enqueued with a delay
			return max(r.AcceptedMs-l.nowMs, 0)
		case at > l.nowMs+knownEarly+clockSkew:
			return at - l.nowMs
		}
	case job.Waiting:
		if by > 0 {
			return by
		}
		if n := len(r.Attempts); n > 0 { // it waits since its last attempt ended
			return max(r.Attempts[n-1].FinishedMs-l.nowMs, 0)
		}
	case job.Queued:
		if deadlineMs(r) > 0 {
			return by
		}
	case job.Running:
		if r.HasNodes() && r.Policy.Timeout > 0 { // that of an attempt is its host's
			return max(by, r.StartedMs-l.ahead.lag(r)-l.nowMs, 0)
		}
	}
	return 0
}

// waitsForClock reports whether the planned time of an armed run names the clock.
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

// turnJob plans a job again whose next planned time is ahead of the clock.
func (l *loop) turnJob(j *job.Job, by int64) {
	next := l.ahead.next(j)
	if next <= l.nowMs+knownEarly || !j.GoesOn() {
		return
	}
	plan, err := l.planOf(j)
	if err != nil {
		return // arm says so
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

// unplanned returns the first time from at on which the job has not planned, as far as the
// clock was there already. A planned time has one run, and with a delay any millisecond may be one.
func (l *loop) unplanned(j *job.Job, at time.Time) time.Time {
	for l.plannedBefore(j, at) {
		at = at.Add(time.Millisecond)
	}
	return at
}

// plannedBefore reports whether a planned time has a run of before the clock was set back.
func (l *loop) plannedBefore(j *job.Job, at time.Time) bool {
	return at.UnixMilli() <= l.ahead.until+knownEarly && l.hasRun(j.Slot().App, job.OccurrenceID(j.Slot().App, j.Name(), at, ""))
}

// hasRun reports whether there is a run, live or ended.
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

// jobMessage is what the API shows of a job.
func (l *loop) jobMessage(j *job.Job) *apiv1.Job {
	m := j.Message(l.now)
	if next := l.ahead.next(j); next != j.NextMs {
		m.NextAt = timestamppb.New(time.UnixMilli(next))
	}
	return m
}

// whyNext says why the next planned time of a job is later than its schedule says; "": it is not.
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

// whyArmed says until when an armed run waits.
func (l *loop) whyArmed(r *job.Run) string {
	if r.PlannedMs > l.nowMs+knownEarly && l.waitsForClock(r) {
		return fmt.Sprintf("the clock was set back after the run was planned: it waits for the clock until %s", clockText(r.PlannedMs))
	}
	return "its time has not come"
}

func clockText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
