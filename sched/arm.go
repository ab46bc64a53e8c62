package sched

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// armWindow is the granularity of arming: all runs planned for one window are armed
// together, at least armAhead before their planned time.
const (
	armWindow = 1000 // ms
	armAhead  = 1000 // ms
	// maxArmed bounds the runs of one record: a million jobs may be due at midnight.
	maxArmed = 4096
	// leastSweep is the number of timers below which stale timers are not dropped.
	leastSweep = 4096
)

// armAt returns when a run planned for nextMs is armed, in Unix ms: one to two seconds
// before nextMs, together with all runs of its window.
func armAt(nextMs int64) int64 {
	return (nextMs - armAhead) / armWindow * armWindow
}

// fire handles a timer that has fired. Timers may be stale, so the state of the job or run
// decides whether there is anything to do.
func (l *loop) fire(_ int64, v any) {
	switch v := v.(type) {
	case *job.Job:
		l.arming = append(l.arming, v)
	case *job.Run:
		l.coming = append(l.coming, v)
	case *readmitTimer:
		if v.b != nil {
			v.b.waiting--
		}
		l.coming = append(l.coming, v.r)
	case *deadline:
		switch {
		case !v.holds(l):
		case l.maybeDispatched(v.r):
			l.wheel.Add(l.nowMs+l.recoveryLeft().Milliseconds()+1, v)
		default:
			l.expired(v.r)
		}
	case *workflowTimer:
		l.moved = append(l.moved, v.r)
	case placementTimer:
		l.unpark(v)
	case *hostLease:
		v.expire(l)
	case recoveryTimer:
		l.endRecovery()
	}
}

// admitDue admits the runs whose timers have fired, in the order in which they are due.
func (l *loop) admitDue() {
	for _, r := range job.EachRun(l.coming) {
		if l.due(r) {
			l.admit(r)
		}
	}
	l.coming = emptied(l.coming)
}

// due reports whether a live run may be dispatched now.
func (l *loop) due(r *job.Run) bool { return dueAt(r, l.nowMs+l.ahead.lag(r)) }

func dueAt(r *job.Run, nowMs int64) bool {
	switch r.State { // a run that has left its slot has a terminal state
	case job.Queued:
		return true
	case job.Armed:
		return r.PlannedMs <= nowMs
	case job.Waiting:
		return r.RetryMs <= nowMs
	}
	return false
}

// sweep drops stale timers. Otherwise a job that changes every minute and fires once a year
// would leave a timer for each change, and the stale timers of runs would keep the runs in
// memory. sweep waits until half of the timers may be stale, so its cost per timer is small.
func (l *loop) sweep() {
	if l.wheel.Len() < l.sweepAt {
		return
	}
	l.wheel.Sweep(func(entries []wheel.Entry[any], holds []bool) {
		for i, e := range entries {
			holds[i] = l.holds(e)
		}
	})
	l.wheel.Sweep(func(entries []wheel.Entry[any], holds []bool) {
		for i, e := range entries {
			if j, ok := e.V.(*job.Job); ok {
				j.Mark &^= isSeen
			}
			holds[i] = true
		}
	})
	l.sweepAt = max(2*l.wheel.Len(), leastSweep)
}

// holds reports whether a timer is still needed. For a job these timers are needed:
//
//   - one that is due exactly when the job is armed. There may be several, because a job
//     may be planned again for a time that it had before; sweep keeps one of them.
//   - any later one that fires within an armWindow. A timer that was late when it was added
//     is due when it was added, not when the job is armed.
//
// A later timer does not replace the exact one: which of the two a sweep finds first
// depends on the position of the wheel.
func (l *loop) holds(e wheel.Entry[any]) bool {
	switch v := e.V.(type) {
	case *job.Job:
		if !v.Current() || v.NextMs == 0 {
			return false
		}
		at := armAt(l.ahead.next(v))
		if e.Due != at {
			return at < e.Due && e.Due <= l.nowMs+armWindow+1
		}
		if v.Mark&isSeen != 0 {
			return false
		}
		v.Mark |= isSeen
		return true
	case *job.Run:
		at := e.Due + l.ahead.lag(v)
		return v.State == job.Armed && v.PlannedMs <= at || v.State == job.Waiting && v.RetryMs <= at
	case *readmitTimer:
		return v.b != nil || v.holds(l)
	case *deadline:
		return v.holds(l)
	case *workflowTimer:
		return v.holds(l)
	case placementTimer:
		return v.at == l.placementAt
	case recoveryTimer:
		return true
	case *hostLease:
		return v.holds()
	}
	return false
}

// armSlice bounds the jobs that one turn arms. There is at least a second to arm a window,
// and runs that are due now must not wait while a hundred thousand jobs are armed.
const armSlice = 2048

// armBudget bounds the runs that one job gets in one turn, so that a job that catches up on
// a long outage does not delay other jobs.
const armBudget = 256

// arm records the next runs of the jobs whose timers have fired as armed, and applies the
// misfire policy to missed times.
func (l *loop) arm() {
	if len(l.arming) == 0 {
		return
	}
	bySlot := map[*job.Slot]*apiv1.Armed{}
	var order []*job.Slot
	now := l.arming[:min(len(l.arming), armSlice)]
	seen := make(map[*job.Job]bool, len(now)) // stale timers may be of the same job
	for _, j := range now {
		if seen[j] || !j.Current() || j.NextMs == 0 || armAt(l.ahead.next(j)) > l.nowMs || j.Slot().Ownership.State != job.Here {
			continue
		}
		seen[j] = true
		if l.cramped() || l.live >= 2*l.cfg.MaxLive {
			l.wheel.Add(l.nowMs+armWindow, j) // the disk or the server is full: try again in a window
			continue
		}
		plan, err := l.planOf(j)
		// The schedule was valid when it was saved. This machine may lack its time zone.
		if err != nil {
			l.cfg.Logger.Error("a schedule cannot be read any more", "app", j.Slot().App, "job", j.Name(), "error", err)
			continue
		}
		due := plan.Due(j.Misfire(), time.UnixMilli(l.ahead.next(j)), l.now, 0, plan.Left(j.Planned), armBudget)
		if due.Missed != nil {
			l.missed(j, plan, due)
		}
		runs := armedRuns(j.Name(), due)
		if len(runs) == 0 {
			continue
		}
		a := bySlot[j.Slot()]
		if a == nil {
			a = &apiv1.Armed{}
			bySlot[j.Slot()] = a
			order = append(order, j.Slot())
		}
		a.Runs = append(a.Runs, runs...)
	}
	clear(now)
	if l.arming = l.arming[len(now):]; len(l.arming) > 0 {
		l.wake()
	} else {
		l.arming = nil
	}
	for _, s := range order {
		for runs := range slices.Chunk(bySlot[s].Runs, maxArmed) {
			l.record(s, &apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: runs}}})
			if l.stage.bytes >= stageBytes {
				l.submit()
			}
		}
	}
}

// armedRuns returns the runs for the due times of a job. Each has the next planned time,
// which for a run that covers missed times is not the time right after its own.
func armedRuns(name string, due schedule.Due) []*apiv1.Armed_Run {
	runs := make([]*apiv1.Armed_Run, len(due.Runs))
	for i, o := range due.Runs {
		runs[i] = &apiv1.Armed_Run{Job: name, PlannedMs: o.At.UnixMilli(), Covers: o.Covers}
		next := due.Next
		if i+1 < len(due.Runs) {
			next = due.Runs[i+1].At
		}
		if !next.IsZero() {
			runs[i].NextMs = next.UnixMilli()
		}
	}
	return runs
}

// missed records one ended run for all missed times that the misfire policy drops.
func (l *loop) missed(j *job.Job, plan schedule.Plan, due schedule.Due) {
	m := due.Missed
	next := due.Next
	if len(due.Runs) > 0 {
		next = due.Runs[0].At
	} else if next.IsZero() && plan.Left(j.Planned+m.Count) > 0 {
		next, _ = plan.AfterEnd(l.now)
	}
	p := &apiv1.Passed{
		Job: j.Name(), FirstMs: m.First.UnixMilli(), LastMs: m.Last.UnixMilli(), Count: m.Count, State: string(job.Missed), Code: "misfire",
		Error: fmt.Sprintf("nobody could fire it at its time; its misfire policy gives up %d planned times, the last of them %s",
			m.Count, m.Last.UTC().Format(time.RFC3339)),
	}
	if !next.IsZero() {
		p.NextMs = next.UnixMilli()
	}
	l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Passed{Passed: p}})
}

// rebuildTimers rebuilds the wheel from the state of the slots.
func (l *loop) rebuildTimers() {
	type kept struct {
		due int64
		v   *readmitTimer
	}
	var readmits []kept // not part of the state of the slots
	l.wheel.Sweep(func(entries []wheel.Entry[any], holds []bool) {
		for i, e := range entries {
			if x, ok := e.V.(*readmitTimer); ok {
				readmits = append(readmits, kept{min(e.Due, l.nowMs+armWindow), x}) // an early readmission does no harm
			}
			holds[i] = true
		}
	})
	l.wheel.restart(l.nowMs)
	l.sweepAt = leastSweep // the next sweep adapts it to the number of timers
	for _, a := range l.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here {
				continue
			}
			for j := range s.Jobs.All() {
				if j.NextMs > 0 {
					l.wheel.Add(armAt(l.ahead.next(j)), j)
				}
			}
			for r := range s.Runs.All() {
				lag := l.ahead.lag(r)
				switch r.State {
				case job.Armed:
					l.wheel.Add(r.PlannedMs-lag, r)
				case job.Waiting:
					l.wheel.Add(r.RetryMs-lag, r)
				}
				if at := deadlineMs(r); at > 0 {
					l.wheel.Add(at-lag+1, &deadline{r})
				}
				if r.HasNodes() {
					l.watchNodes(r)
				}
			}
		}
	}
	for _, x := range readmits {
		l.wheel.Add(x.due, x.v)
	}
	if l.placementAt != 0 {
		l.retryPlacementAt(l.nowMs + parkTime)
	}
	if l.recovering {
		l.endRecovery()
	}
	for _, h := range l.hosts {
		if !h.connected { // a lease lasts in real time, also if the clock is set
			l.wheel.Add(l.nowMs+h.lostAt.Sub(l.now).Milliseconds(), &hostLease{h, h.generation})
		}
	}
}
