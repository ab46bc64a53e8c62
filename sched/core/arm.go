package core

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// advance fires the timers that are due: it fills arming and coming.
func (tm *timing) advance() {
	tm.wheel.advance(tm.l.clock.nowMs, func(_ int64, v timer) { v.fire(tm.l) })
}

func (x jobTimer) fire(l *Loop) { l.timing.arming = append(l.timing.arming, x.j) }

// holds reports whether the timer is needed. For a job these timers are needed:
//
//   - one that is due exactly when the job is armed. There may be several, because a job
//     may be planned again for a time that it had before; sweep keeps one of them.
//   - any later one that fires within an armWindow. A timer that was late when it was added
//     is due when it was added, not when the job is armed.
//
// A later timer does not replace the exact one: which of the two a sweep finds first
// depends on the position of the wheel.
func (x jobTimer) holds(l *Loop, due int64) bool {
	if !x.j.Current() || x.j.NextMs == 0 {
		return false
	}
	at := armAt(l.timing.ahead.next(x.j))
	if due != at {
		return at < due && due <= l.clock.nowMs+armWindow+1
	}
	if x.j.Mark&isSeen != 0 {
		return false
	}
	x.j.Mark |= isSeen
	return true
}

func (x runTimer) fire(l *Loop) { l.timing.coming = append(l.timing.coming, x.r) }

func (x runTimer) holds(l *Loop, due int64) bool {
	at := due + l.timing.ahead.lag(x.r)
	return x.r.State == job.Armed && x.r.PlannedMs <= at || x.r.State == job.Waiting && x.r.RetryMs <= at
}

// admitDue admits the runs whose timers have fired, in the order in which they are due.
func (tm *timing) admitDue() {
	for _, r := range job.EachRun(tm.coming) {
		if tm.due(r) {
			tm.l.admission.admit(r)
		}
	}
	tm.coming = emptied(tm.coming)
}

// sweep drops stale timers. Otherwise a job that changes every minute and fires once a year
// would leave a timer for each change, and the stale timers of runs would keep the runs in
// memory. sweep waits until half of the timers may be stale, so its cost per timer is small.
func (tm *timing) sweep() {
	if tm.wheel.len() < tm.sweepAt {
		return
	}
	tm.wheel.sweep(func(due int64, v timer) bool { return v.holds(tm.l, due) })
	tm.wheel.sweep(func(_ int64, v timer) bool {
		if x, ok := v.(jobTimer); ok {
			x.j.Mark &^= isSeen
		}
		return true
	})
	tm.sweepAt = max(2*tm.wheel.len(), leastSweep)
}

// armSlice bounds the jobs that one turn arms. There is at least a second to arm a window,
// and runs that are due now must not wait while a hundred thousand jobs are armed.
const armSlice = 2048

// armBudget bounds the runs that one job gets in one turn, so that a job that catches up on
// a long outage does not delay other jobs.
const armBudget = 256

// arm records the next runs of the jobs whose timers have fired as armed, and applies the
// misfire policy to missed times.
func (tm *timing) arm() {
	if len(tm.arming) == 0 {
		return
	}
	bySlot := map[*job.Slot]*apiv1.Armed{}
	var order []*job.Slot
	now := tm.arming[:min(len(tm.arming), armSlice)]
	seen := make(map[*job.Job]bool, len(now)) // stale timers may be of the same job
	for _, j := range now {
		if seen[j] || !j.Current() || j.NextMs == 0 || armAt(tm.ahead.next(j)) > tm.l.clock.nowMs || j.Slot().Ownership.State != job.Here {
			continue
		}
		seen[j] = true
		if tm.l.commits.cramped() || tm.l.limits.mayAccept(ownerOf(j.Slot()), 0, 2) != nil {
			tm.after(armWindow, jobTimer{j}) // the disk, the server or the app is full: try again in a window
			continue
		}
		plan, err := tm.l.Planner.planOf(j)
		// The schedule was valid when it was saved. This machine may lack its time zone.
		if err != nil {
			tm.l.cfg.Logger.Error("a schedule cannot be read any more", "app", j.Slot().App, "job", j.Name(), "error", err)
			continue
		}
		due := plan.Due(j.Misfire(), time.UnixMilli(tm.ahead.next(j)), tm.l.clock.now, 0, plan.Left(j.Planned), armBudget)
		if due.Missed != nil {
			tm.missed(j, plan, due)
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
	if tm.arming = tm.arming[len(now):]; len(tm.arming) > 0 {
		tm.l.Mail.wake()
	} else {
		tm.arming = nil
	}
	for _, s := range order {
		for runs := range slices.Chunk(bySlot[s].Runs, maxArmed) {
			tm.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: runs}}})
			if tm.l.commits.stage.bytes >= stageBytes {
				tm.l.commits.submit()
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
func (tm *timing) missed(j *job.Job, plan schedule.Plan, due schedule.Due) {
	m := due.Missed
	next := due.Next
	if len(due.Runs) > 0 {
		next = due.Runs[0].At
	} else if next.IsZero() && plan.Left(j.Planned+m.Count) > 0 {
		next, _ = plan.AfterEnd(tm.l.clock.now)
	}
	p := &apiv1.Passed{
		Job: j.Name(), FirstMs: m.First.UnixMilli(), LastMs: m.Last.UnixMilli(), Count: m.Count, State: string(job.Missed), Code: "misfire",
		Error: fmt.Sprintf("nobody could fire it at its time; its misfire policy gives up %d planned times, the last of them %s",
			m.Count, m.Last.UTC().Format(time.RFC3339)),
	}
	if !next.IsZero() {
		p.NextMs = next.UnixMilli()
	}
	tm.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Passed{Passed: p}})
}
