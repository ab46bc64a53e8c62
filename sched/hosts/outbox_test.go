package hosts

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
		woken := func(o *Outbox) bool {
			select {
			case <-o.Kick:
				return true
			default:
				return false
			}
		}
		o := NewOutbox()
		o.Ack(3)
		o.Ack(2)
		if m, _ := o.Take(); m != nil || woken(o) {
			t.Errorf("at once: %v", m)
		}
		pass(ackDelay)
		if m, _ := o.Take(); !woken(o) || m.GetAcked() != 3 {
			t.Errorf("a little later: %v", m)
		}
		pass(time.Second)
		if m, _ := o.Take(); m != nil || woken(o) {
			t.Errorf("when it was said: %v", m)
		}

		o.Ack(4)
		o.Send([]*apiv1.Task{{}})
		if m, _ := o.Take(); m.GetAcked() != 4 || len(m.GetTasks()) != 1 {
			t.Errorf("with a task: %v", m)
		}
		o.Ack(5) // within the delay of the one before
		if m, _ := o.Take(); m != nil {
			t.Errorf("at once: %v", m)
		}
		pass(ackDelay)
		if m, _ := o.Take(); m.GetAcked() != 5 {
			t.Errorf("a little later: %v", m)
		}

		o.Ack(6)
		o.Close()
		if m, closed := o.Take(); m.GetAcked() != 6 || !closed || !woken(o) {
			t.Errorf("at the end: %v, %v", m, closed)
		}
		if m, closed := o.Take(); m != nil || !closed {
			t.Errorf("after it: %v, %v", m, closed)
		}
	})
}

// TestTasksGoTogether checks that the sender is woken when a message is full, or else by
// flush.
func TestTasksGoTogether(t *testing.T) {
	o := NewOutbox()
	if o.Send(make([]*apiv1.Task, MaxTasks-1)) || len(o.Kick) > 0 {
		t.Error("few tasks went at once")
	}
	if !o.Send(make([]*apiv1.Task, 1)) || len(o.Kick) != 1 {
		t.Error("a whole message waits")
	}
	<-o.Kick
	if o.Flush(); len(o.Kick) != 1 {
		t.Errorf("after flush: %d", len(o.Kick))
	}
}
