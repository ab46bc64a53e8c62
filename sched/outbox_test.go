package sched

import (
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestAcksWait checks that an acknowledgement goes with the next message, alone after
// ackDelay, or at once when the stream ends.
func TestAcksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		woken := func(o *outbox) bool {
			select {
			case <-o.kick:
				return true
			default:
				return false
			}
		}
		o := newOutbox()
		o.ack(3)
		o.ack(2)
		if m, _ := o.take(); m != nil || woken(o) {
			t.Errorf("at once: %v", m)
		}
		pass(ackDelay)
		if m, _ := o.take(); !woken(o) || m.GetAcked() != 3 {
			t.Errorf("a little later: %v", m)
		}
		pass(time.Second)
		if m, _ := o.take(); m != nil || woken(o) {
			t.Errorf("when it was said: %v", m)
		}

		o.ack(4)
		o.send([]*apiv1.Task{{}})
		if m, _ := o.take(); m.GetAcked() != 4 || len(m.GetTasks()) != 1 {
			t.Errorf("with a task: %v", m)
		}
		o.ack(5) // within the delay of the one before
		if m, _ := o.take(); m != nil {
			t.Errorf("at once: %v", m)
		}
		pass(ackDelay)
		if m, _ := o.take(); m.GetAcked() != 5 {
			t.Errorf("a little later: %v", m)
		}

		o.ack(6)
		o.close()
		if m, closed := o.take(); m.GetAcked() != 6 || !closed || !woken(o) {
			t.Errorf("at the end: %v, %v", m, closed)
		}
		if m, closed := o.take(); m != nil || !closed {
			t.Errorf("after it: %v, %v", m, closed)
		}
	})
}

// TestTasksGoTogether checks that the sender is woken when a message is full, or else at
// the end of the turn.
func TestTasksGoTogether(t *testing.T) {
	l := &loop{}
	o := newOutbox()
	if o.send(make([]*apiv1.Task, maxTasks-1)) || len(o.kick) > 0 {
		t.Error("few tasks went at once")
	}
	if !o.send(make([]*apiv1.Task, 1)) || len(o.kick) != 1 {
		t.Error("a whole message waits")
	}
	<-o.kick
	l.unsent = append(l.unsent, o)
	l.flush()
	if len(o.kick) != 1 || len(l.unsent) > 0 {
		t.Errorf("the turn has ended: %d, %d", len(o.kick), len(l.unsent))
	}
}
