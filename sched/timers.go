package sched

import (
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// timers are the loop's wheel of jobs, runs and the few other things that have a
// time. The wheel holds numbers and the garbage collector does not look into it:
// in the order in which they are due, a million jobs are a million places all
// over the memory. It follows them in a list, in the order in which they came,
// which is about that in which they lie. Like a wheel it is not safe for
// concurrent use, and fire may call Add and nothing else.
type timers struct {
	wheel *wheel.Wheel[uint32]
	jobs  numbered[*job.Job] // their numbers are even
	rest  numbered[any]      // odd
}

func newTimers(now int64) *timers { return &timers{wheel: wheel.New[uint32](now)} }

// numbered gives values small numbers.
type numbered[T any] struct {
	list []T
	free []uint32
}

func (n *numbered[T]) put(v T) uint32 {
	if last := len(n.free) - 1; last >= 0 {
		i := n.free[last]
		n.free = n.free[:last]
		n.list[i] = v
		return i
	}
	n.list = append(n.list, v)
	return uint32(len(n.list) - 1)
}

// take returns the value of a number, which is then another's.
func (n *numbered[T]) take(i uint32) (v T) {
	v, n.list[i] = n.list[i], v
	n.free = append(n.free, i)
	return v
}

// Len returns the number of timers, those that no longer hold included.
func (t *timers) Len() int { return t.wheel.Len() }

// Next is [wheel.Wheel.Next].
func (t *timers) Next() (at int64, ok bool) { return t.wheel.Next() }

// Add puts v in.
func (t *timers) Add(due int64, v any) {
	if j, ok := v.(*job.Job); ok {
		t.wheel.Add(due, t.jobs.put(j)<<1)
		return
	}
	t.wheel.Add(due, t.rest.put(v)<<1|1)
}

func (t *timers) take(number uint32) any {
	if number&1 == 0 {
		return t.jobs.take(number >> 1)
	}
	return t.rest.take(number >> 1)
}

// Advance is [wheel.Wheel.Advance].
func (t *timers) Advance(now int64, fire func(due int64, v any)) {
	t.wheel.Advance(now, func(due int64, number uint32) { fire(due, t.take(number)) })
	if t.wheel.Len() == 0 {
		t.jobs, t.rest = numbered[*job.Job]{}, numbered[any]{}
	}
}

// Sweep is [wheel.Wheel.Sweep].
func (t *timers) Sweep(judge func(entries []wheel.Entry[any], holds []bool)) {
	var values []wheel.Entry[any]
	t.wheel.Sweep(func(entries []wheel.Entry[uint32], holds []bool) {
		values = values[:0]
		for _, e := range entries {
			var v any
			if e.V&1 == 0 {
				v = t.jobs.list[e.V>>1]
			} else {
				v = t.rest.list[e.V>>1]
			}
			values = append(values, wheel.Entry[any]{Due: e.Due, V: v})
		}
		judge(values, holds)
		for i, e := range entries {
			if !holds[i] {
				t.take(e.V)
			}
		}
	})
}
