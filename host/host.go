package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// Engine runs modules. It is safe for concurrent use.
type Engine interface {
	runtime.Executor
	// Load makes a module ready to run; loading it again is cheap.
	Load(ctx context.Context, digest string, code []byte) error
	Loaded(digest string) bool
}

// Config is what a host is made of. A zero value means the default named beside
// the field; ID, Connect, Engine, Modules and Spool are required.
type Config struct {
	ID      string // stable over restarts
	Name    string // for people; default: ID
	Version string
	Labels  map[string]string
	Apps    []string // which it serves; default: all
	ABI     []string

	Slots   int // tasks that run at once; default: GOMAXPROCS, at least 4
	Credits int // tasks that it holds at most, queued ones included; default 8192, at least Slots

	// Connect returns a connection to the server that serves this host now. It is
	// called before every session and may block until there is one.
	Connect func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)

	Engine  Engine
	Modules *modules.Store // the cache of modules
	Spool   *mq.Log        // of results; the caller closes it after Run

	Tracer trace.Tracer // of the spans of attempts; default: none

	Guests Guests // the services of handlers; default: none

	DrainTimeout time.Duration // how long running tasks may go on when the host ends; default 10 s
	Logger       *slog.Logger  // default: discard
}

// Host is a worker.
type Host struct {
	cfg     Config
	session string
	fetch   singleflight
	grants  grantCache

	mu      sync.Mutex
	held    map[key]*task
	queue   []*task // Invariant: each is in state queued
	ready   *sync.Cond
	closed  bool
	epochs  map[string]uint64 // the highest seen by app; a lower one is refused
	busy    int               // held tasks that are not finished
	granted int               // credits that the server has and did not use
	out     *outgoing
	client  apiv1.WorkerClient       // of the current session; nil: none
	conn    grpc.ClientConnInterface // of the current session; nil: none
	spooled int                      // unacknowledged results in the spool
	mean    time.Duration            // decaying, of the handlers' run time
}

// key names an attempt.
type key struct {
	app     string
	run     [16]byte
	attempt int32
}

type state uint8

const (
	queued state = iota
	running
	finished
)

// task is an attempt that the host holds.
type task struct {
	key    key
	msg    *apiv1.Task
	state  state
	cancel context.CancelFunc // nil until its handler begins
	result *apiv1.TaskResult  // when finished
	doneAt time.Time
	kept   bool // the result is in the spool
}

// New returns a host that holds the results of the spool.
func New(cfg Config) (*Host, error) {
	if cfg.ID == "" || cfg.Connect == nil || cfg.Engine == nil || cfg.Modules == nil || cfg.Spool == nil {
		return nil, errors.New("host: ID, Connect, Engine, Modules and Spool are required")
	}
	cfg.Name = cmp.Or(cfg.Name, cfg.ID)
	cfg.Slots = cmp.Or(cfg.Slots, max(goruntime.GOMAXPROCS(0), 4))
	cfg.Credits = max(cmp.Or(cfg.Credits, 8192), cfg.Slots)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	h := &Host{
		cfg: cfg, session: rand.Text(),
		held: map[key]*task{}, epochs: map[string]uint64{}, out: newOutgoing(),
	}
	h.ready = sync.NewCond(&h.mu)
	if err := h.readSpool(); err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	return h, nil
}

// Run works until ctx ends, then lets running tasks finish (DrainTimeout), ends
// the others and brings back their results; what cannot be brought back is in
// the spool for the next start.
func (h *Host) Run(ctx context.Context) error {
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	defer endSessions()
	var workers sync.WaitGroup
	for range h.cfg.Slots {
		workers.Go(func() { h.work(sessions) })
	}
	g, _ := errgroup.WithContext(sessions)
	g.Go(func() error { return h.keepSpool(sessions) })
	g.Go(func() error { h.connect(sessions); return nil })
	g.Go(func() error {
		<-ctx.Done()
		h.drain()
		workers.Wait()
		h.flush()
		endSessions()
		return nil
	})
	err := g.Wait()
	return errors.Join(err, h.spoolAll())
}

// connect keeps a session going.
func (h *Host) connect(ctx context.Context) {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	wait := first
	for ctx.Err() == nil {
		start := time.Now()
		err := h.runSession(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > longest {
			wait = first
		}
		h.cfg.Logger.Warn("no server", "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, longest)
	}
}

// drain gives back what has not begun, and ends what runs too long.
func (h *Host) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, t := range h.queue {
		h.settleLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: "the host is shutting down", Code: "drained"})
	}
	h.queue = nil
	h.ready.Broadcast()
	h.out.signal(h.out.kick) // the server must know before it has the results
	time.AfterFunc(h.cfg.DrainTimeout, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, t := range h.held {
			h.stopLocked(t, "the host is shutting down", "drained")
		}
	})
}

// flush waits a little for the acknowledgements of the last results.
func (h *Host) flush() {
	const patience = 2 * time.Second
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		h.mu.Lock()
		open, connected := len(h.held), h.client != nil
		h.mu.Unlock()
		if open == 0 || !connected {
			return
		}
		select {
		case <-h.out.acked:
		case <-time.After(time.Until(deadline)):
		}
	}
}

// accept takes tasks from the server.
func (h *Host) accept(tasks []*apiv1.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range tasks {
		h.granted--
		if len(m.Run) != 16 || m.Epoch < h.epochs[m.App] {
			h.cfg.Logger.Warn("a task of a server that does not own it any more is refused", "app", m.App, "job", m.Job, "epoch", m.Epoch)
			continue
		}
		h.epochs[m.App] = m.Epoch
		k := key{m.App, [16]byte(m.Run), m.Attempt}
		if h.held[k] != nil {
			continue // sent twice: its result is on the way
		}
		t := &task{key: k, msg: m}
		h.held[k] = t
		h.busy++
		if h.closed {
			h.settleLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: "the host is shutting down", Code: "drained"})
			continue
		}
		h.queue = append(h.queue, t)
	}
	h.ready.Broadcast()
}

// stop ends an attempt because the server asks for it.
func (h *Host) stop(c *apiv1.TaskCancel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, t := range h.held {
		if len(c.Run) == 16 && k.run == [16]byte(c.Run) && k.attempt == c.Attempt {
			h.stopLocked(t, "cancelled before it started", "cancelled")
		}
	}
}

// stopLocked ends a task: a running one through its context, another at once.
// h.mu must be held.
func (h *Host) stopLocked(t *task, why, code string) {
	switch {
	case t.state == finished:
	case t.cancel != nil:
		t.cancel()
	default:
		h.queue = slices.DeleteFunc(h.queue, func(q *task) bool { return q == t })
		h.settleLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why, Code: code})
	}
}

// settleLocked makes t finished; h.mu must be held.
func (h *Host) settleLocked(t *task, r *apiv1.TaskResult) {
	r.Run, r.App, r.Attempt = t.key.run[:], t.key.app, t.key.attempt
	if t.msg != nil {
		r.Epoch = t.msg.Epoch
	}
	t.state, t.result, t.doneAt, t.cancel, t.msg = finished, r, time.Now(), nil, nil
	h.busy--
	h.out.result(t)
}

// ack forgets the results of a batch and of all before it.
func (h *Host) ack(batch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.out.take(batch) {
		delete(h.held, t.key)
		if t.kept {
			h.unspoolLocked(t.key)
		}
	}
}

// spareLocked returns the credits to grant now; h.mu must be held.
func (h *Host) spareLocked() int {
	if h.closed {
		return 0
	}
	return max(h.wantedLocked()-h.busy-h.granted, 0)
}

const (
	// ahead is how much work a host holds: enough not to run dry on the way to the
	// server and back, and no more, so that slow tasks do not queue here while
	// another host is idle.
	ahead = 100 * time.Millisecond
	// unknownAhead is the tasks for each slot while nothing is known of how long
	// they take, and the least.
	unknownAhead = 16
)

// wantedLocked returns how many tasks the host wants to hold; h.mu must be held.
func (h *Host) wantedLocked() int {
	want := unknownAhead * h.cfg.Slots
	if h.mean > 0 {
		want = max(int(int64(h.cfg.Slots)*int64(ahead)/int64(h.mean)), 2*h.cfg.Slots)
	}
	return min(want, h.cfg.Credits)
}
