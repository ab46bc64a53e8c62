package session

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// attended is the closer of a connection to the owner of a partition that may not need
// the host.
type attended struct {
	*Notice
	closed func()
}

func (a attended) Close() error {
	a.closed()
	return nil
}

// TestWorkerLeavesAUnit: a host opens no session with the owner of a partition that does
// not need it, except to deliver a result. It leaves a session in order, with the results
// of all its tasks, including those that arrive while it leaves. It returns when it is
// needed, before or after it has left.
func TestWorkerLeavesAUnit(t *testing.T) {
	owners := map[string]*owner{"u0": newOwner(t), "u1": newOwner(t)}
	notices := map[string]*Notice{"u0": {}, "u1": {}}
	notices["u1"].Tell(false)
	closings := make(chan string, 100)
	spool := &memory{kept: []*apiv1.TaskResult{{App: "b", Run: taskOf("b", 90, 0).Run, Attempt: 1, Unit: "u1"}}}
	release := make(chan struct{})
	w, err := New(Config{
		ID: "h", Slots: 2, Spool: spool,
		Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) { panic("there are units") },
		Units:   func(context.Context) ([]string, error) { return []string{"u0", "u1"}, nil },
		ConnectUnit: func(_ context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error) {
			return owners[unit].conn, attended{notices[unit], func() { closings <- unit }}, nil
		},
		Run: func(_ context.Context, a *Attempt) *apiv1.TaskResult {
			if a.Task.Job == "long" {
				<-release
			}
			return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	a, b := owners["u0"], owners["u1"]
	a.until(t, "the session that is needed", func() bool { return a.credits > 0 })
	b.until(t, "the result of the last process", func() bool { return len(b.results) == 1 })
	if unit := <-closings; unit != "u1" {
		t.Fatalf("the session with %s ended", unit)
	}
	b.note(func() {
		if b.joined != 1 {
			t.Errorf("%d sessions for one result", b.joined)
		}
	})

	// It leaves with a running task, and another task arrives while it leaves.
	long := taskOf("a", 1, 5)
	long.Job = "long"
	a.send(t, long)
	notices["u0"].Tell(false)
	a.until(t, "it to say that it leaves", func() bool { return a.leaving })
	a.note(func() { a.credits = 0 })
	a.send(t, taskOf("a", 2, 5))
	a.until(t, "the result of the short task", func() bool { return len(a.results) == 1 })
	a.until(t, "it to know that it is there", func() bool {
		a.lookAgain()
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.held.len() == 1
	})
	a.note(func() {
		if a.credits != 0 || a.joined != 1 {
			t.Errorf("one that leaves grants %d credits in session %d", a.credits, a.joined)
		}
	})
	// It is needed again: a new session begins, and its hello has the long task.
	notices["u0"].Tell(true)
	a.until(t, "it to come back", func() bool { return a.joined == 2 && a.credits > 0 })
	a.note(func() {
		if len(a.hello.Running) != 1 || a.hello.Running[0].Run[15] != 1 {
			t.Errorf("it says that it holds %v", a.hello.Running)
		}
	})
	if unit := <-closings; unit != "u0" {
		t.Fatalf("the session with %s ended", unit)
	}
	notices["u0"].Tell(false)
	a.until(t, "it to say that it leaves", func() bool { return a.leaving })
	close(release)
	a.until(t, "the result of the long task", func() bool { return len(a.results) == 2 })
	if unit := <-closings; unit != "u0" {
		t.Fatalf("the session with %s ended", unit)
	}
	if w.Conn("a") != nil {
		t.Error("it has a connection, and no session")
	}
	// It is needed again after it has left.
	notices["u1"].Tell(true)
	b.until(t, "it to come to the other unit", func() bool { return b.joined == 2 && b.credits > 0 })
	b.send(t, taskOf("b", 3, 1))
	b.until(t, "a result", func() bool { return len(b.results) == 2 })
	if w.Conn("a") != grpc.ClientConnInterface(b.conn) {
		t.Error("the session that there is does not stand in for the one that was left")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	a.note(func() {
		if a.joined != 2 || spool.keeps() != 0 {
			t.Errorf("%d sessions with a unit that was left; %d results are kept", a.joined, spool.keeps())
		}
	})
}

func TestNotice(t *testing.T) {
	var n Notice
	needed, changed := n.Needed()
	if !needed {
		t.Error("it says at first that nobody is needed")
	}
	n.Tell(true)
	select {
	case <-changed:
		t.Error("it says that what is as it was has changed")
	default:
	}
	n.Tell(false)
	<-changed
	if needed, _ := n.Needed(); needed {
		t.Error("it does not believe what it is told")
	}
}
