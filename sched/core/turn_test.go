package core

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// TestFlushWakesSenders checks that the end of a turn wakes the sender of each outbox with
// tasks of the turn, once.
func TestFlushWakesSenders(t *testing.T) {
	l := bare(t, time.Now())
	o := hosts.NewOutbox()
	o.Send(make([]*apiv1.Task, 1))
	l.Dispatcher.unsent = append(l.Dispatcher.unsent, o)
	l.Dispatcher.flush()
	if len(o.Kick) != 1 || len(l.Dispatcher.unsent) > 0 {
		t.Errorf("%d wake-ups, %d outboxes are left", len(o.Kick), len(l.Dispatcher.unsent))
	}
}
