package core

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// Await adds a waiter for the end of a run. It returns the channel on which the waiter gets
// the run; nil: the run is not live.
func (wa *Waiters) Await(app string, id job.RunID) chan *apiv1.Run {
	if wa.l.State.LiveRun(app, id) == nil {
		return nil
	}
	ended := make(chan *apiv1.Run, 1)
	wa.awaited[id] = append(wa.awaited[id], ended)
	return ended
}

// tellEnd sends a run that has ended to its waiters. They are woken at the end of the turn,
// after the tasks of the turn were sent: see [loop.answerDurable].
func (wa *Waiters) tellEnd(r *job.Run) {
	waiting, ok := wa.awaited[r.ID]
	if !ok {
		return
	}
	delete(wa.awaited, r.ID)
	for _, ended := range waiting {
		run := wa.l.message(r) // each waiter owns its message
		wa.l.commits.answerAtEnd(func(error) { ended <- run })
	}
}

// GiveUp removes a waiter whose call has ended.
func (wa *Waiters) GiveUp(id job.RunID, ended chan *apiv1.Run) {
	left := slices.DeleteFunc(wa.awaited[id], func(c chan *apiv1.Run) bool { return c == ended })
	if len(left) == 0 {
		delete(wa.awaited, id)
		return
	}
	wa.awaited[id] = left
}
