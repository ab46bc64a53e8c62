package session

import (
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// tellAfter is how long a handler runs before its start is reported to the server. If it
// ends sooner, its result reports the start.
const tellAfter = 100 * time.Millisecond

// watch finds the handlers that have run for tellAfter. A single timer is armed while any
// handler runs; a timer for each handler would cost as much as a short handler. It is
// guarded by Worker.mu.
type watch struct {
	timer *time.Timer
	armed bool
}

func (x *watch) init(w *Worker) {
	x.timer = time.AfterFunc(time.Hour, w.tellStarts)
	x.timer.Stop()
}

// startLocked arms the timer for handlers that start now; Worker.mu must be held.
func (x *watch) startLocked() {
	if !x.armed {
		x.armed = true
		x.timer.Reset(tellAfter)
	}
}

// tellStarts reports the handlers that have run for tellAfter.
func (w *Worker) tellStarts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, again := time.Now(), false
	for t := range w.held.all() {
		switch {
		case t.state != running || t.told:
		case t.cancel != nil && !t.attempt.preparing && now.Sub(t.attempt.start) >= tellAfter:
			w.tellLocked(t)
		default:
			again = true
		}
	}
	if w.watch.armed = again; again {
		w.watch.timer.Reset(tellAfter / 2)
	}
}

// tellLocked reports to the server the state of a task whose handler has started; w.mu
// must be held.
func (w *Worker) tellLocked(t *task) {
	t.told = true
	t.link.out.state(t.key, &apiv1.TaskState{
		Run: t.key.run[:], App: t.key.app, Attempt: t.key.attempt,
		WaitedUs: t.attempt.waited.Microseconds(), Sleeping: t.sleep == asleep,
	})
}

// recall gives back those of the recalled tasks whose handlers have not started.
func (w *Worker) recall(recalls []*apiv1.TaskCancel) {
	wanted := map[[16]byte]int32{}
	for _, c := range recalls {
		if len(c.Run) == 16 {
			wanted[[16]byte(c.Run)] = c.Attempt
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.held.all() {
		if attempt, ok := wanted[t.key.run]; !ok || attempt != t.key.attempt || t.state == finished || t.cancel != nil {
			continue
		}
		w.queue.remove(t)
		w.finishLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: "the server took it back before the handler started", Code: "recalled"}, time.Now())
	}
}
