package session

import (
	"context"
	"time"
)

// sleep is whether the handler of a task sleeps.
type sleep uint8

const (
	awake  sleep = iota
	asleep       // its slot is free for another task
	waking       // it waits for a slot, in the queue
)

// nap is the sleep of a handler.
type nap struct {
	slept time.Duration // without a slot
	since time.Time     // while it has none
	woken chan struct{} // while it waits for one; closed when it has one
}

// slept returns how long the handler slept without a slot.
func (a *Attempt) slept() time.Duration {
	if a.nap == nil {
		return 0
	}
	return a.nap.slept
}

// Sleep frees the slot of an attempt whose handler is about to sleep; the handler must
// call Wake before it goes on. It reports false, and the attempt keeps its slot, when the
// worker has as many sleeping tasks as it may have.
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

// Wake waits until an attempt that has slept has a slot again: it waits among the tasks
// that came meanwhile. When ctx ends it has one at once, in addition to those of the
// worker, to end.
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

// resumeLocked gives a task that has slept a slot; w.mu must be held.
func (w *Worker) resumeLocked(t *task) {
	a := &t.attempt
	w.slots.asleep--
	t.sleep = awake
	a.nap.slept += time.Since(a.nap.since)
	w.slots.occupy(a.r, t)
	close(a.nap.woken)
	if w.closed && w.queue.len() == 0 {
		w.ready.Broadcast() // the runners that are idle end
	}
}
