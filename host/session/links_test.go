package session

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
)

// owner is the owner of a partition, as a host sees it.
type owner struct {
	apiv1.UnimplementedWorkerServer
	conn *grpc.ClientConn
	srv  *grpc.Server

	mu      sync.Mutex
	hello   *apiv1.Hello // of the last session
	down    apiv1.Worker_WorkServer
	credits uint32
	results []*apiv1.TaskResult
	sent    int
	leaving bool          // the host announced it in this session, which ends when the results of all its tasks have arrived
	joined  int           // sessions
	silent  bool          // it sends no acknowledgements
	changed chan struct{} // capacity 1
}

func newOwner(t *testing.T) *owner {
	t.Helper()
	o := &owner{srv: grpc.NewServer(), changed: make(chan struct{}, 1)}
	apiv1.RegisterWorkerServer(o.srv, o)
	lis := memconn.Listen(1 << 16)
	go o.srv.Serve(lis) //nolint:errcheck // ends with Stop
	var err error
	o.conn, err = grpc.NewClient("passthrough:owner", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.conn.Close(); o.srv.Stop() }) //nolint:errcheck // a test's
	return o
}

func (o *owner) Work(s apiv1.Worker_WorkServer) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if err := s.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: "s"}}); err != nil {
		return err
	}
	o.note(func() { o.hello, o.down, o.credits, o.leaving = first.Hello, s, 0, false; o.joined++ })
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		o.note(func() {
			o.credits += m.Credits
			o.leaving = o.leaving || m.Leaving
			o.results = append(o.results, m.Results...)
		})
		if m.Batch > 0 && !o.isSilent() {
			if err := s.Send(&apiv1.WorkDown{Acked: m.Batch}); err != nil {
				return err
			}
		}
		if o.letsGo() {
			return status.Error(codes.Unavailable, "it may go")
		}
	}
}

func (o *owner) letsGo() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leaving && len(o.results) >= o.sent
}

// lookAgain makes until check its condition again without a change of the owner.
func (o *owner) lookAgain() bool {
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return true
}

func (o *owner) isSilent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.silent
}

func (o *owner) note(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *owner) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		o.mu.Lock()
		ok := is()
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-o.changed:
		case <-end:
			t.Fatalf("waited for %s", what)
		}
	}
}

func (o *owner) send(t *testing.T, tasks ...*apiv1.Task) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent += len(tasks)
	if err := o.down.Send(&apiv1.WorkDown{Tasks: tasks}); err != nil {
		t.Fatal(err)
	}
}

func taskOf(app string, n byte, epoch uint64) *apiv1.Task {
	return &apiv1.Task{App: app, Run: append(make([]byte, 15), n), Attempt: 1, Epoch: epoch}
}

// memory is a spool in memory.
type memory struct {
	mu   sync.Mutex
	kept []*apiv1.TaskResult
}

func (m *memory) Kept() ([]*apiv1.TaskResult, error) { return slices.Clone(m.kept), nil }

func (m *memory) Keep(rs []*apiv1.TaskResult) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, rs...)
	return nil
}

func (m *memory) Forget(r *apiv1.TaskResult) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = slices.DeleteFunc(m.kept, func(k *apiv1.TaskResult) bool { return k.App == r.App && k.Run[15] == r.Run[15] })
	return nil
}

func (m *memory) keeps() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kept)
}

func (m *memory) Sync() error { return nil }

type nothing struct{}

func (nothing) Close() error { return nil }

// TestOwnersOfSeveralUnits: a host has a session with the owner of each partition. Their
// tasks share its slots. Each owner gets only its own results and running tasks, and an
// owner that is away does not delay the others.
func TestOwnersOfSeveralUnits(t *testing.T) {
	owners := map[string]*owner{"u0": newOwner(t), "u1": newOwner(t), "u2": newOwner(t)}
	started, release := make(chan struct{}), make(chan struct{})
	spool := &memory{kept: []*apiv1.TaskResult{
		{App: "b", Run: taskOf("b", 90, 0).Run, Attempt: 1, Unit: "u1"},
		{App: "old", Run: taskOf("old", 91, 0).Run, Attempt: 1}, // of an older host that did not know partitions
	}}
	var mu sync.Mutex
	away := map[string]bool{"u2": true}
	w, err := New(Config{
		ID: "h", Slots: 2, Spool: spool, DrainTimeout: 10 * time.Millisecond,
		Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
			return nil, nil, errors.New("there are units")
		},
		Units: func(context.Context) ([]string, error) { return []string{"u0", "u1", "u2"}, nil },
		ConnectUnit: func(_ context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error) {
			mu.Lock()
			defer mu.Unlock()
			if away[unit] {
				return nil, nil, errors.New("it has no owner")
			}
			return owners[unit].conn, nothing{}, nil
		},
		Run: func(ctx context.Context, a *Attempt) *apiv1.TaskResult {
			if a.Task.Job == "long" {
				close(started)
				select {
				case <-release:
				case <-ctx.Done():
					return &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED}
				}
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

	a, b, c := owners["u0"], owners["u1"], owners["u2"]
	a.until(t, "the old result", func() bool { return len(a.results) == 1 && a.results[0].App == "old" && a.credits > 0 })
	b.until(t, "the unit's own result", func() bool { return len(b.results) == 1 && b.results[0].App == "b" && b.credits > 0 })
	a.until(t, "the spool to know that both are delivered", func() bool { return a.lookAgain() && spool.keeps() == 0 })
	if len(a.hello.Running) != 1 || len(b.hello.Running) != 1 {
		t.Errorf("the owners were told of %v and %v", a.hello.Running, b.hello.Running)
	}

	long := taskOf("a", 1, 5)
	long.Job = "long"
	a.send(t, long)
	b.send(t, taskOf("b", 2, 3), taskOf("b", 3, 3))
	b.until(t, "two results beside the long task of another owner", func() bool { return len(b.results) == 3 })
	if w.Conn("a") != grpc.ClientConnInterface(a.conn) || w.Conn("b") != grpc.ClientConnInterface(b.conn) {
		t.Error("an app's calls go to the owner of another one")
	}
	<-started
	if _, ok := w.Caller("a", [16]byte(long.Run), 1); !ok {
		t.Error("the long task does not run")
	}

	// Another server takes over the partition of the long task. Its hello has the long
	// task, those of the others do not.
	next := newOwner(t)
	mu.Lock()
	owners["u0"], away["u2"] = next, false
	mu.Unlock()
	a.srv.Stop()
	next.until(t, "the worker to come", func() bool { return next.hello != nil })
	if r := next.hello.Running; len(r) != 1 || r[0].App != "a" || r[0].Epoch != 5 {
		t.Errorf("the new owner was told of %v", r)
	}
	next.send(t, taskOf("a", 4, 4)) // of an earlier ownership than that of the long task
	c.until(t, "the owner that was away", func() bool { return c.hello != nil && c.credits > 0 })
	if len(c.hello.Running) != 0 {
		t.Errorf("it was told of %v", c.hello.Running)
	}
	c.send(t, taskOf("a", 7, 1)) // the app is split: epochs of another partition do not matter here
	c.until(t, "its result", func() bool { return len(c.results) == 1 && c.results[0].Run[15] == 7 })
	c.note(func() { c.results = nil })
	close(release)
	next.until(t, "the long task's result", func() bool {
		return len(next.results) == 1 && next.results[0].Run[15] == 1
	})
	c.send(t, taskOf("c", 5, 1))
	c.until(t, "a result of the third", func() bool { return len(c.results) == 1 })
	// An unacknowledged result is stored with its partition.
	c.note(func() { c.silent = true })
	c.send(t, taskOf("c", 6, 1))
	c.until(t, "a result that nobody acknowledges", func() bool { return len(c.results) == 2 })
	c.until(t, "it to be in the spool", func() bool {
		c.lookAgain()
		spool.mu.Lock()
		defer spool.mu.Unlock()
		return len(spool.kept) == 1 && spool.kept[0].Run[15] == 6 && spool.kept[0].Unit == "u2"
	})
	spool.mu.Lock()
	spool.kept = nil
	spool.mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(spool.kept) != 0 {
		t.Errorf("the spool keeps %v", spool.kept)
	}
	next.mu.Lock()
	defer next.mu.Unlock()
	if len(next.results) != 1 {
		t.Errorf("a task of an earlier ownership was taken: %v", next.results)
	}
}
