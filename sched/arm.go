package sched

import (
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
		if l.due(v) {
			l.enqueue(v)
		}
	case *hostLease:
		v.expire(l)
	}
}

// due reports whether a live run may be dispatched now.
func (l *loop) due(r *job.Run) bool {
	if l.liveRun(r.App, r.ID) != r {
		return false
	}
	switch r.State {
	case job.Queued:
		return true
	case job.Armed:
		return r.PlannedMs <= l.nowMs
	case job.Waiting:
		return r.RetryMs <= l.nowMs
	}
	return false
}

// arm plans the next run of the jobs that the wheel found. A job whose time
// passed while nobody could fire it fires once, now.
func (l *loop) arm() {
	if len(l.arming) == 0 {
		return
	}
	bySlot := map[*job.Slot]*apiv1.Armed{}
	var order []*job.Slot
	seen := make(map[*job.Job]bool, len(l.arming)) // stale entries may name a job again
	for _, j := range l.arming {
		if seen[j] || !j.Current() || j.NextMs == 0 || armAt(j.NextMs) > l.nowMs {
			continue
		}
		if l.cramped() || l.live >= 2*l.cfg.MaxLive {
			l.wheel.Add(l.nowMs+armWindow, j) // the disk is full: look again
			continue
		}
		plan, err := l.plan(j.Definition())
		if err != nil { // was checked when it was saved: a zone that is gone from the data of this machine
			l.cfg.Logger.Error("a schedule cannot be read any more", "app", j.Slot().App, "job", j.Name, "error", err)
			continue
		}
		run := &apiv1.Armed_Run{Job: j.Name, PlannedMs: j.NextMs}
		if next, ok := plan.Next(time.UnixMilli(j.NextMs), l.now); ok {
			run.NextMs = next.UnixMilli()
		}
		a := bySlot[j.Slot()]
		if a == nil {
			a = &apiv1.Armed{}
			bySlot[j.Slot()] = a
			order = append(order, j.Slot())
		}
		a.Runs = append(a.Runs, run)
		seen[j] = true
	}
	clear(l.arming)
	l.arming = l.arming[:0]
	for _, s := range order {
		for runs := range slices.Chunk(bySlot[s].Runs, maxArmed) {
			l.record(s, &apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: runs}}})
			if l.stage.bytes >= stageBytes {
				l.submit()
			}
		}
	}
}

// rewind builds the wheel from the state.
func (l *loop) rewind() {
	l.wheel = wheel.New[any](l.nowMs)
	for _, a := range l.apps {
		for _, s := range a.slots {
			for _, j := range s.Jobs {
				if j.NextMs > 0 {
					l.wheel.Add(armAt(j.NextMs), j)
				}
			}
			for _, r := range s.Runs {
				switch r.State {
				case job.Armed:
					l.wheel.Add(r.PlannedMs, r)
				case job.Waiting:
					l.wheel.Add(r.RetryMs, r)
				}
			}
		}
	}
	for _, h := range l.hosts {
		if !h.connected {
			l.wheel.Add(h.lostAt.UnixMilli(), &hostLease{h, h.generation})
		}
	}
}
