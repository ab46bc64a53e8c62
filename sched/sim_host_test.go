package sched_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/host"
	"github.com/wheelworkhq/wheelwork/host/services"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// machine is a host whose network can be cut and that can crash. The ledger records what
// its handlers really did, whether or not a server learned of it.
type machine struct {
	w      *world
	id     string
	slots  int
	labels map[string]string
	ledger *ledger
	stop   func() // nil while the machine is down

	svc *services.Services

	mu   sync.Mutex
	cut  bool
	conn *grpc.ClientConn // nil: not connected
	away []absence        // an open absence is the last one
}

// absence is an interval in which a machine could not reach a server.
type absence struct{ from, to time.Time } // to is zero while the absence is open

func (m *machine) leaves() {
	if n := len(m.away); n == 0 || !m.away[n-1].to.IsZero() {
		m.away = append(m.away, absence{from: time.Now()})
	}
}

func (m *machine) returns() {
	if n := len(m.away); n > 0 && m.away[n-1].to.IsZero() && !m.cut && m.stop != nil {
		m.away[n-1].to = time.Now()
	}
}

// wasAway reports whether the machine was unreachable at any time in the interval.
func (m *machine) wasAway(from, to time.Time) bool {
	return slices.ContainsFunc(m.away, func(a absence) bool {
		return !a.from.After(to) && (a.to.IsZero() || !a.to.Before(from))
	})
}

// ledger records the executions of handlers on all machines.
type ledger struct {
	mu    sync.Mutex
	execs []*execution
	do    handler
}

type execution struct {
	job, run   string
	attempt    int32
	host       string
	begin, end time.Time // end is zero while the handler executes
}

// engine is the host.Engine of one machine.
type engine struct{ m *machine }

func (e engine) Load(context.Context, string, []byte) error { return nil }
func (e engine) Loaded(string) bool                         { return true }

func (e engine) Run(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	l := e.m.ledger
	x := &execution{job: t.Job, run: t.RunID, attempt: int32(t.Attempt), host: e.m.id, begin: time.Now()}
	l.mu.Lock()
	l.execs = append(l.execs, x)
	l.mu.Unlock()
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.Deadline)
		defer cancel()
	}
	res := l.do(context.WithValue(ctx, servicesKey{}, e.m.svc), t, s)
	l.mu.Lock()
	x.end = time.Now()
	l.mu.Unlock()
	res.Duration = x.end.Sub(x.begin)
	return res
}

func (m *machine) connect(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut {
		return nil, nil, errors.New("the network is cut")
	}
	conn, err := m.w.dial()
	m.conn = conn
	return conn, conn, err
}

// sever cuts the network of the machine until heal is called.
func (m *machine) sever() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = true
	m.leaves()
	if m.conn != nil {
		m.conn.Close() //nolint:errcheck // it is to break
	}
}

func (m *machine) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = false
	m.returns()
}

func (m *machine) spoolDir() string { return filepath.Join(m.w.dir, m.id, "spool") }

// start starts the machine with the files on its disk.
func (m *machine) start() {
	t := m.w.t
	t.Helper()
	spool, err := mq.Open(mq.Config{Dir: m.spoolDir(), SegmentBytes: 1 << 20, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(m.w.dir, m.id, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	m.svc = services.New(services.Config{})
	h, err := host.New(host.Config{
		ID: m.id, Slots: m.slots, Credits: 2 * m.slots, Labels: m.labels, Engine: engine{m}, Modules: mods, Spool: spool,
		Connect: m.connect, DrainTimeout: time.Second, Guests: m.svc,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.svc.Attach(h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := errors.Join(h.Run(ctx), spool.Close()); err != nil {
			t.Errorf("host %s: %v", m.id, err)
		}
	}()
	m.stop = func() { cancel(); <-done; m.stop = nil; m.leaves() }
	m.returns()
}

// crash stops the machine and deletes its spool, with all results that it has not
// delivered.
func (m *machine) crash() {
	m.sever()
	m.stop()
	m.heal()
	if err := os.RemoveAll(m.spoolDir()); err != nil {
		m.w.t.Fatal(err)
	}
}
