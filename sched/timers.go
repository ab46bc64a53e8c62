package sched

import (
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// timers is the loop's timing wheel of jobs, runs and the few other values with a
// deadline. The wheel has numbers and no pointers, so that the garbage collector does not
// scan it: in the order of their deadlines, a million jobs are spread all over the
// memory. With the tables of job, a collection with a million jobs takes 0.15 of the
// processor time (gctrace of e2e/batch100 of bench/sched, ADR 27). It is not safe for concurrent use.
//
// A timer names a job by its number in its slot. When the job is deleted, another job may
// get the number and with it a stale timer.
type timers struct {
	wheel *wheel.Wheel[uint64]
	apps  []*app   // by app.number-1
	rest  []any    // the values that are no jobs, by their number; nil: the number is free
	free  []uint32 // the free numbers of rest
}

// The number of a timer, with the sizes of its fields in bits:
//
//	| app (24) | slot (8) | number of the job (31) | 0 |
//	| 0 (31)   | number in rest (32)               | 1 |

func newTimers(now int64) *timers { return &timers{wheel: wheel.New[uint64](now)} }

// restart drops all timers.
func (t *timers) restart(now int64) { *t = timers{wheel: wheel.New[uint64](now), apps: t.apps} }

// Len returns the number of timers, stale ones included.
func (t *timers) Len() int { return t.wheel.Len() }

// Next is like [wheel.Wheel.Next].
func (t *timers) Next() (at int64, ok bool) { return t.wheel.Next() }

// Add adds a timer for v. A job must be in its slot.
func (t *timers) Add(due int64, v any) {
	j, ok := v.(*job.Job)
	if !ok {
		t.wheel.Add(due, t.keep(v))
		return
	}
	s := j.Slot()
	a := ownerOf(s)
	a.coming.add(j.NextMs)
	if a.number == 0 {
		t.apps = append(t.apps, a)
		a.number = len(t.apps)
	}
	t.wheel.Add(due, uint64(a.number-1)<<40|uint64(s.Index)<<32|uint64(j.Number())<<1)
}

func (t *timers) keep(v any) uint64 {
	i := uint32(len(t.rest))
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = t.free[last], t.free[:last]
		t.rest[i] = v
	} else {
		t.rest = append(t.rest, v)
	}
	return uint64(i)<<1 | 1
}

// of returns the value of a timer; nil: its job is gone.
func (t *timers) of(number uint64) any {
	if number&1 != 0 {
		return t.rest[number>>1]
	}
	if j := t.apps[number>>40].slots[uint8(number>>32)].Jobs.At(uint32(number) >> 1); j != nil {
		return j
	}
	return nil
}

// drop frees the number of a timer whose value is no job.
func (t *timers) drop(number uint64) {
	if number&1 != 0 {
		t.rest[number>>1] = nil
		t.free = append(t.free, uint32(number>>1))
	}
}

// Advance calls fire for each timer that is due, as [wheel.Wheel.Advance] does. fire may
// call Add, but no other method of the timers.
func (t *timers) Advance(now int64, fire func(due int64, v any)) {
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

// Sweep is like [wheel.Wheel.Sweep]. The value of the timer of a job that is gone is nil;
// judge drops it.
func (t *timers) Sweep(judge func(entries []wheel.Entry[any], holds []bool)) {
	var values []wheel.Entry[any]
	t.wheel.Sweep(func(entries []wheel.Entry[uint64], holds []bool) {
		values = values[:0]
		for _, e := range entries {
			values = append(values, wheel.Entry[any]{Due: e.Due, V: t.of(e.V)})
		}
		judge(values, holds)
		for i, e := range entries {
			if !holds[i] {
				t.drop(e.V)
			}
		}
	})
}
