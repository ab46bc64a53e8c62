package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"

	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// party is a store of timers. Its timers are numbered as they are added.
type party interface {
	name() string
	// reserve makes room for what a party's user keeps for n timers.
	reserve(n int)
	// add sets timer i to go off after d, which does nothing.
	add(i int, d time.Duration)
	// cancel takes timer i back.
	cancel(i int)
	// close ends what is left.
	close()
}

// ours is the wheel with an owner as the scheduler's loop is one: it knows which
// timers hold, here by a number for each, and sweeps when half may be stale.
type ours struct {
	w     *wheel.Wheel[timer]
	gens  []uint32
	stale int
}

type timer struct{ id, gen uint32 }

func (o *ours) name() string { return "wheel" }

func (o *ours) reserve(n int) {
	o.w, o.gens = wheel.New[timer](0), make([]uint32, n)
}

func (o *ours) add(i int, d time.Duration) {
	o.w.Add(int64(d/time.Millisecond), timer{uint32(i), o.gens[i]})
}

func (o *ours) cancel(i int) {
	o.gens[i]++
	o.stale++
	if o.stale > o.w.Len()/2 {
		o.w.Sweep(o.holds)
		o.stale = 0
	}
}

func (o *ours) holds(e []wheel.Entry[timer], holds []bool) {
	for i := range e {
		holds[i] = o.gens[e[i].V.id] == e[i].V.gen
	}
}

func (o *ours) close() { o.w, o.gens = nil, nil }

// afterFunc is the runtime's own timers.
type afterFunc struct{ timers []*time.Timer }

func nothing() {}

func (a *afterFunc) name() string               { return "AfterFunc" }
func (a *afterFunc) reserve(n int)              { a.timers = make([]*time.Timer, n) }
func (a *afterFunc) add(i int, d time.Duration) { a.timers[i] = time.AfterFunc(d, nothing) }
func (a *afterFunc) cancel(i int)               { a.timers[i].Stop() }

func (a *afterFunc) close() {
	for _, t := range a.timers {
		t.Stop()
	}
	a.timers = nil
}

// russellLuo is RussellLuo/timingwheel as its page shows it: 1 ms a tick.
type russellLuo struct {
	w      *timingwheel.TimingWheel
	timers []*timingwheel.Timer
}

func (r *russellLuo) name() string { return "timingwheel" }

func (r *russellLuo) reserve(n int) {
	r.w, r.timers = timingwheel.NewTimingWheel(time.Millisecond, 256), make([]*timingwheel.Timer, n)
	r.w.Start()
}

func (r *russellLuo) add(i int, d time.Duration) { r.timers[i] = r.w.AfterFunc(d, nothing) }
func (r *russellLuo) cancel(i int)               { r.timers[i].Stop() }

func (r *russellLuo) close() {
	r.w.Stop()
	r.w, r.timers = nil, nil
}
