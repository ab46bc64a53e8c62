package core

import (
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// jobTimer arms the next runs of a job. Like runTimer it is a pointer in an interface, so
// it takes no memory of its own.
type jobTimer struct{ j *job.Job }

// runTimer admits an armed or a waiting run when it is due.
type runTimer struct{ r *job.Run }

// The number of a timer, with the sizes of its fields in bits:
//
//	| app (24) | slot (8) | number of the job (31) | 0 |
//	| 0 (31)   | number in rest (32)               | 1 |

func newTimers(now int64) *timers { return &timers{wheel: wheel.New[uint64](now)} }

// restart drops all timers.
func (t *timers) restart(now int64) { *t = timers{wheel: wheel.New[uint64](now), apps: t.apps} }

// len returns the number of timers, stale ones included.
func (t *timers) len() int { return t.wheel.Len() }

// next returns a time, in Unix ms, before which no timer is due. It returns false if there
// is no timer.
func (t *timers) next() (at int64, ok bool) { return t.wheel.Next() }

// add adds a timer that is due at a time in Unix ms. The job of a jobTimer must be in its
// slot.
func (t *timers) add(due int64, v timer) {
	x, ok := v.(jobTimer)
	if !ok {
		t.wheel.Add(due, t.store(v))
		return
	}
	s := x.j.Slot()
	a := ownerOf(s)
	a.fair.Coming.Add(x.j.NextMs)
	if a.number == 0 {
		t.apps = append(t.apps, a)
		a.number = len(t.apps)
	}
	t.wheel.Add(due, uint64(a.number-1)<<40|uint64(s.Index)<<32|uint64(x.j.Number())<<1)
}

// store puts a timer into rest, and returns its number.
func (t *timers) store(v timer) uint64 {
	i := uint32(len(t.rest))
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = t.free[last], t.free[:last]
		t.rest[i] = v
	} else {
		t.rest = append(t.rest, v)
	}
	return uint64(i)<<1 | 1
}

// of returns the timer with a number; nil: its job is gone.
func (t *timers) of(number uint64) timer {
	if number&1 != 0 {
		return t.rest[number>>1]
	}
	if j := t.apps[number>>40].slots[uint8(number>>32)].Jobs.At(uint32(number) >> 1); j != nil {
		return jobTimer{j}
	}
	return nil
}

// drop frees the number of a timer that is not a job's.
func (t *timers) drop(number uint64) {
	if number&1 != 0 {
		t.rest[number>>1] = nil
		t.free = append(t.free, uint32(number>>1))
	}
}

// advance calls fire for each timer that is due, as [wheel.Wheel.Advance] does. fire may
// call add, but no other method of the timers.
func (t *timers) advance(now int64, fire func(due int64, v timer)) {
	t.wheel.Advance(now, func(due int64, number uint64) {
		if v := t.of(number); v != nil {
			t.drop(number)
			fire(due, v)
		}
	})
	if t.wheel.Len() == 0 {
		t.rest, t.free = nil, nil
	}
}

// sweep drops the timers for which needed returns false, and those of jobs that are gone.
// As in [wheel.Wheel.Sweep], needed must not add timers.
func (t *timers) sweep(needed func(due int64, v timer) bool) {
	t.wheel.Sweep(func(entries []wheel.Entry[uint64], holds []bool) {
		for i, e := range entries {
			v := t.of(e.V)
			if holds[i] = v != nil && needed(e.Due, v); !holds[i] {
				t.drop(e.V)
			}
		}
	})
}

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

// armAt returns when a run planned for NextMs is armed, in Unix ms: one to two seconds
// before NextMs, together with all runs of its window.
func armAt(nextMs int64) int64 {
	return (nextMs - armAhead) / armWindow * armWindow
}

// after adds a timer that is due in that many ms.
func (tm *timing) after(ms int64, v timer) { tm.wheel.add(tm.l.clock.nowMs+ms, v) }

// plan adds the timer that arms the next run of a job.
func (tm *timing) plan(j *job.Job) { tm.wheel.add(armAt(tm.ahead.next(j)), jobTimer{j}) }

// due reports whether a live run may be dispatched now.
func (tm *timing) due(r *job.Run) bool { return dueAt(r, tm.l.clock.nowMs+tm.ahead.lag(r)) }

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
