package core

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestGiveUp checks that GiveUp removes one waiter, retains the others, and leaves no
// empty entry.
func TestGiveUp(t *testing.T) {
	l := bare(t, time.Now())
	id, a, b := job.RunID{1}, make(chan *apiv1.Run, 1), make(chan *apiv1.Run, 1)
	l.Waiters.awaited[id] = []chan *apiv1.Run{a, b}
	l.Waiters.GiveUp(job.RunID{2}, a)
	l.Waiters.GiveUp(id, a)
	if got := l.Waiters.awaited[id]; len(l.Waiters.awaited) != 1 || len(got) != 1 || got[0] != b {
		t.Errorf("left: %v", l.Waiters.awaited)
	}
	l.Waiters.GiveUp(id, b)
	l.Waiters.GiveUp(id, b)
	if len(l.Waiters.awaited) != 0 {
		t.Errorf("left: %v", l.Waiters.awaited)
	}
}
