package session

import (
	"context"
	"time"
)

// sleep is the sleep state of the handler of a task.
type sleep uint8

const (
	awake  sleep = iota
	asleep       // its slot is free for other tasks
	waking       // it waits for a slot, in the queue
)

// nap describes the sleep of a handler.
type nap struct {
	slept time.Duration // total time without a slot
	since time.Time     // since when it has no slot
	woken chan struct{} // set by Wake while it waits for a slot; closed when it has one
}

// slept returns how long the handler slept without a slot.
func (a *Attempt) slept() time.Duration {
	if a.nap == nil {
		return 0
	}
	return a.nap.slept
}

// Sleep frees the slot of an attempt whose handler is about to sleep. The handler must
// call Wake before it continues. Sleep returns false, and the attempt keeps its slot,
// when the maximum number of tasks sleeps.
func (a *Attempt) Sleep() bool {
	w, t := a.w, a.t
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.state != running || t.sleep != awake || !a.r.holds || w.slots.asleep >= w.slots.limit {
		return false
	}
	if a.nap == nil {
		a.nap = &nap{}
	}
	t.sleep, a.nap.since = asleep, time.Now()
	w.slots.vacate(a.r)
	w.slots.asleep++
	if w.runners < w.slots.all+w.slots.asleep && !w.closed {
		w.addRunnerLocked()
	}
	w.ready.Signal()
	w.tellLocked(t)
	if len(w.links) > 1 {
		w.signalLocked() // there is room for tasks of other servers
	}
	return true
}

// Wake waits until an attempt that has slept has a slot again. The attempt waits in the
// queue with the other tasks. If ctx ends, the attempt gets a slot at once, beyond the
// number of slots, so that it can end.
func (a *Attempt) Wake(ctx context.Context) {
	w, t := a.w, a.t
	w.mu.Lock()
	if t.sleep != asleep {
		w.mu.Unlock()
		return
	}
	t.sleep, t.arrived = waking, w.age(time.Now())
	a.nap.woken = make(chan struct{})
	switch {
	case t.state != running || ctx.Err() != nil:
		w.resumeLocked(t)
		w.mu.Unlock()
		return
	case w.slots.used < w.slots.all && (w.closed || w.queue.len() == 0 && w.slots.admits(t, t.arrived)):
		w.resumeLocked(t)
	default:
		w.queue.push(t)
		w.ready.Signal()
	}
	w.tellLocked(t)
	woken := a.nap.woken
	w.mu.Unlock()
	select {
	case <-woken:
	case <-ctx.Done():
		w.mu.Lock()
		if t.sleep == waking {
			w.queue.remove(t)
			w.resumeLocked(t)
		}
		w.mu.Unlock()
	}
}

// resumeLocked gives a slot to a task that has slept; w.mu must be held.
func (w *Worker) resumeLocked(t *task) {
	a := &t.attempt
	w.slots.asleep--
	t.sleep = awake
	a.nap.slept += time.Since(a.nap.since)
	w.slots.occupy(a.r, t)
	close(a.nap.woken)
	if w.closed && w.queue.len() == 0 {
		w.ready.Broadcast() // idle runners end
	}
}
