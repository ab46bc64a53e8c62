package sched

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestGiveUp checks that giveUp removes one waiter, retains the others, and leaves no
// empty entry.
func TestGiveUp(t *testing.T) {
	l := &loop{awaited: map[job.RunID][]chan *apiv1.Run{}}
	id, a, b := job.RunID{1}, make(chan *apiv1.Run, 1), make(chan *apiv1.Run, 1)
	l.awaited[id] = []chan *apiv1.Run{a, b}
	l.giveUp(job.RunID{2}, a)
	l.giveUp(id, a)
	if got := l.awaited[id]; len(l.awaited) != 1 || len(got) != 1 || got[0] != b {
		t.Errorf("left: %v", l.awaited)
	}
	l.giveUp(id, b)
	l.giveUp(id, b)
	if len(l.awaited) != 0 {
		t.Errorf("left: %v", l.awaited)
	}
}
