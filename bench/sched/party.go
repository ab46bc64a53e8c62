package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"

	"github.com/wheelworkhq/wheelwork/sched/wheel"
)

// party is a store of timers. Timers are numbered in the order of their addition.
type party interface {
	name() string
	// reserve allocates what a user of the store holds for n timers.
	reserve(n int)
	// add sets timer i to fire after d. The timer does nothing.
	add(i int, d time.Duration)
	// cancel cancels timer i.
	cancel(i int)
	// close stops the store.
	close()
}

// ours is the wheel with an owner like the scheduler's loop. The owner knows which timers
// are valid, here by a generation for each, and sweeps when half of them may be stale.
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

// afterFunc is a store of runtime timers.
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

// russellLuo is RussellLuo/timingwheel as its README shows it: a tick of 1 ms.
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
