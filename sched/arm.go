package sched

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// armWindow is the raster of arming: everything planned for one window is armed
// together, at least armAhead before its time.
const (
	armWindow = 1000 // ms
	armAhead  = 1000 // ms
	// maxArmed bounds one record: a million jobs may be due at midnight.
	maxArmed = 4096
	// leastSweep is the number of timers up to which stale ones do not matter.
	leastSweep = 4096
)

// armAt returns when a run planned for nextMs is armed: one to two seconds
// ahead, at the same moment as all runs of its window.
func armAt(nextMs int64) int64 {
	return (nextMs - armAhead) / armWindow * armWindow
}

// fire takes what the wheel found due. Entries may be stale: the state says
// what holds.
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

// admitDue admits the runs that the wheel found, in the order in which they are due.
func (l *loop) admitDue() {
	for near := range slices.Chunk(l.coming, fetchAtOnce) {
		job.FetchRuns(near)
		for _, r := range near {
			if l.due(r) {
				l.admit(r)
			}
		}
	}
	l.coming = emptied(l.coming)
}

// due reports whether a live run may be dispatched now.
func (l *loop) due(r *job.Run) bool { return dueAt(r, l.nowMs+l.ahead.lag(r)) }

func dueAt(r *job.Run, nowMs int64) bool {
	switch r.State { // of one that has left its slot it is terminal
	case job.Queued:
		return true
	case job.Armed:
		return r.PlannedMs <= nowMs
	case job.Waiting:
		return r.RetryMs <= nowMs
	}
	return false
}

// sweep drops stale timers: a job that is changed each minute and fires once a
// year would leave as many, and those of runs keep them in memory. It waits
// until half of them may be stale, so it costs each timer little.
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

// holds reports whether a timer is of any use. Of a job the one for its time is,
// once, though the job may have been planned again for a time that it had before;
// and any that goes off at once, because one that was late when it was put in has
// another time. A later one must not stand for it: which is found first depends
// on where the wheel stands.
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

// armSlice is how many jobs are armed in one turn: there is a second for it, and
// others, who may be due now, do not wait for a hundred thousand of them.
const armSlice = 2048

// armBudget bounds the runs that one job gets in one turn: who makes up for a
// long time does not hold up the others.
const armBudget = 256

// arm plans the next runs of jobs that the wheel found, and says what becomes of the planned times that passed while
// nobody could fire them.
func (l *loop) arm() {
	if len(l.arming) == 0 {
		return
	}
	bySlot := map[*job.Slot]*apiv1.Armed{}
	var order []*job.Slot
	now := l.arming[:min(len(l.arming), armSlice)]
	seen := make(map[*job.Job]bool, len(now)) // stale entries may name a job again
	for _, j := range now {
		if seen[j] || !j.Current() || j.NextMs == 0 || armAt(l.ahead.next(j)) > l.nowMs || j.Slot().Ownership.State != job.Here {
			continue
		}
		seen[j] = true
		if l.cramped() || l.live >= 2*l.cfg.MaxLive {
			l.wheel.Add(l.nowMs+armWindow, j) // the disk is full: look again
			continue
		}
		plan, err := l.planOf(j)
		if err != nil { // was checked when it was saved: a zone that is gone from the data of this machine
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

// armedRuns is what a job's planned times become. Each says which time comes
// after it: the last one may stand for some that passed.
func armedRuns(name string, due job.Due) []*apiv1.Armed_Run {
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

// missed keeps one run for the planned times that nobody could fire and that
// the misfire policy gives up.
func (l *loop) missed(j *job.Job, plan job.Plan, due job.Due) {
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

// rebuildTimers fills the wheel from the state of the slots.
func (l *loop) rebuildTimers() {
	type kept struct {
		due int64
		v   *readmitTimer
	}
	var readmits []kept // the state of the slots does not contain them
	l.wheel.Sweep(func(entries []wheel.Entry[any], holds []bool) {
		for i, e := range entries {
			if x, ok := e.V.(*readmitTimer); ok {
				readmits = append(readmits, kept{min(e.Due, l.nowMs+armWindow), x}) // an early readmission does no harm
			}
			holds[i] = true
		}
	})
	l.wheel.restart(l.nowMs)
	l.sweepAt = leastSweep // grows with what is put in now
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
		if !h.connected { // a lease is real time, whatever the clock says
			l.wheel.Add(l.nowMs+h.lostAt.Sub(l.now).Milliseconds(), &hostLease{h, h.generation})
		}
	}
}
