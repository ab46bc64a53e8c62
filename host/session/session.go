package session

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
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Config configures a [Worker]. A zero value means the default that the comment of the
// field gives; ID, Connect and Run are required.
type Config struct {
	ID      string // stable over restarts with the same spool
	Name    string // for display; default: ID
	Version string
	Labels  map[string]string
	Apps    []string // the apps that the host serves; default: all
	ABI     []string // what the host can run at first, see Hello.abi and [Worker.Abilities]

	Slots   int // execution slots: tasks that run at once; default: GOMAXPROCS, at least 4
	Credits int // tasks that the host holds at most, queued ones included; default 8192, at least Slots
	// MaxSleeping bounds the tasks that sleep without a slot, see [Attempt.Sleep].
	// Default: 16 for each slot; negative: none.
	MaxSleeping int

	// Connect returns a connection to the server of this host. It is called before every
	// session and may block until there is a server.
	Connect func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)

	// Units returns the partitions of a cluster. The host has a session with the owner of
	// each partition, and ConnectUnit connects to that owner. Units is called until it
	// succeeds, and may block until the partitions are known. If it is nil or returns
	// none, there is one session, for which Connect is called.
	Units       func(ctx context.Context) ([]string, error)
	ConnectUnit func(ctx context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error)

	// Final reports whether an error of Units, of Connect, or of the attempt to join a session,
	// cannot be cured by another attempt: Run then returns the error. Final is called
	// until the host has joined its first session. Default: no error is final.
	Final func(error) bool

	// Cordoned is the cordon of the host at first: servers send a cordoned host no tasks.
	Cordoned bool
	// Cordon, when set, stores a change of the cordon that a server requests, for the
	// Cordoned of the next process. Default: a restart ends the cordon.
	Cordon func(on bool) error

	// Run executes an attempt and returns its result; the Worker fills in the run and the
	// attempt of the result. Run must return soon after ctx ends; the cause of ctx is
	// [ErrCancelled] or [ErrDrained] if the attempt was stopped. As many goroutines as
	// there are slots call it, and one more for each sleeping task.
	Run func(ctx context.Context, a *Attempt) *apiv1.TaskResult

	// Prefetch receives the modules that the server wants to have loaded before their
	// first task. Modules returns the module states to report on a new stream; see
	// [Worker.Module]. Default: the host has no modules.
	Prefetch func([]*apiv1.Prefetch)
	Modules  func() []*apiv1.ModuleState
	// Unload receives the digests of modules that no job refers to. Default: they are
	// ignored.
	Unload func(digests []string)

	// RunBatch, when set, is Run for several attempts in one call: it returns when all
	// have ended and has set the result of each. Together reports whether a task may go
	// into one call with the task before it. It is called under a lock and must not
	// block.
	Together func(before, t *apiv1.Task) bool
	RunBatch func(batch []*Batched)

	// Free, when set, receives the task of each attempt after its Run, or RunBatch, has
	// returned. The Worker no longer refers to it.
	Free func(*apiv1.Task)
	// FreeResults, when set, receives results that the server has acknowledged and that
	// are not in the spool. The Worker no longer refers to them.
	FreeResults func([]*apiv1.TaskResult)

	Spool Spool // default: none; unacknowledged results are lost with the process, and their runs are executed again

	DrainTimeout time.Duration // how long running tasks may continue after ctx of Run has ended; default 10 s
	Logger       *slog.Logger  // default: discard
}

// Spool stores results over a restart. The Worker calls its methods one at a time.
type Spool interface {
	// Kept returns the results that an earlier process could not deliver. It is called
	// once, before all other methods.
	Kept() ([]*apiv1.TaskResult, error)
	// Keep stores results. The Worker does not change them afterwards.
	Keep([]*apiv1.TaskResult) error
	// Forget removes a stored result: the server has acknowledged it.
	Forget(*apiv1.TaskResult) error
	// Sync returns when all stored results are durable.
	Sync() error
}

// The reasons for which an attempt is stopped, as the cause of its context.
var (
	ErrCancelled = errors.New("cancelled")
	ErrDrained   = errors.New("the host is shutting down")
)

// Worker is the host side of the Work protocol: it holds tasks and executes them. It is
// made by [New].
type Worker struct {
	cfg     Config
	born    time.Time
	session string
	acked   chan struct{} // capacity 1: a result was acknowledged
	left    chan struct{} // closed after the end of ctx of Run, when every task has its result

	keeping sync.Mutex // held during calls of the spool; locked before mu

	mu    sync.Mutex
	held  held
	queue queue // Invariant: each task in it is in state queued, or waking
	slots slots
	// runners is the number of goroutines that execute tasks. Invariant until closed: it
	// is at least the number of slots and sleeping tasks, so that a goroutine is idle if
	// a slot is.
	runners   int
	executing sync.WaitGroup  // of runners
	handlers  context.Context // of runners, set by Run
	ready     *sync.Cond      // for idle runners: there is a task, or closed changed
	watch     watch
	rest      *sync.Cond // busy is 0
	closed    bool
	busy      int              // held tasks that are not finished
	stuck     int              // slots whose task has a result, but whose handler has not returned
	homes     map[string]*link // by app: the link of its last task
	links     []*link          // the first exists from the start; links are only added
	joined    bool             // there has been a session
	abi       []string         // what the host can run now: see Abilities
	cordoned  bool             // see Config.Cordoned
	mean      time.Duration    // decaying mean of the run time of handlers
}

// age converts a time to the time since the Worker was made, which takes less memory.
func (w *Worker) age(at time.Time) time.Duration { return at.Sub(w.born) }

// link is the message exchange with one server at a time: the owner of a partition, or
// the only server. All links share the slots and the queue.
type link struct {
	w    *Worker
	unit string // the partition; "": there is only one link
	out  *outgoing

	begun int // sessions that have begun; used by the goroutine of connect only

	// Guarded by Worker.mu.
	granted int                      // credits that the server has and has not used
	conn    grpc.ClientConnInterface // of the current session; nil: none
	leaving bool                     // the host is not needed by the partition: the session ends when it holds no task of it
	saidABI []string                 // the abilities in the hello of this session
	epochs  map[string]uint64        // the highest by app; a lower one is refused. Not comparable across partitions
}

func newLink(w *Worker, unit string) *link {
	return &link{w: w, unit: unit, out: newOutgoing(), epochs: map[string]uint64{}}
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
	hash   uint32      // of key.run: selects the cell of the task in held
	number uint32      // in held
	link   *link       // the link on which the task arrived and on which its result goes out
	msg    *apiv1.Task // nil when finished
	state  state
	tenant *tenant // the accounting of its app
	// As in msg, but also valid when msg is nil.
	pace     apiv1.Pace
	priority int32

	sleep  sleep                   // while its state is running
	joins  bool                    // runs in one call with the task before it
	told   bool                    // the server knows that the handler has started
	kept   bool                    // the result is in the spool
	cancel context.CancelCauseFunc // nil until the handler starts
	result *apiv1.TaskResult       // when finished
	// arrived is the age of the Worker when the task arrived, or last woke up.
	arrived time.Duration
	doneAt  time.Time

	attempt Attempt // valid once the handler starts
}

func (t *task) named(k key) *task {
	t.key, t.hash = k, hashOf(&k)
	return t
}

// New returns a Worker that holds the results in the spool.
func New(cfg Config) (*Worker, error) {
	if cfg.ID == "" || cfg.Connect == nil || cfg.Run == nil {
		return nil, errors.New("ID, Connect and Run are required")
	}
	cfg.Name = cmp.Or(cfg.Name, cfg.ID)
	cfg.Slots = cmp.Or(cfg.Slots, max(goruntime.GOMAXPROCS(0), 4))
	cfg.Credits = max(cmp.Or(cfg.Credits, 8192), cfg.Slots)
	cfg.MaxSleeping = max(cmp.Or(cfg.MaxSleeping, maxSleepingPerSlot*cfg.Slots), 0)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Final == nil {
		cfg.Final = func(error) bool { return false }
	}
	w := &Worker{
		cfg: cfg, born: time.Now(), session: rand.Text(), acked: make(chan struct{}, 1), left: make(chan struct{}),
		homes: map[string]*link{}, abi: cfg.ABI, cordoned: cfg.Cordoned, slots: slots{all: cfg.Slots, limit: cfg.MaxSleeping},
	}
	w.watch.init(w)
	w.links = []*link{newLink(w, "")}
	w.ready, w.rest = sync.NewCond(&w.mu), sync.NewCond(&w.mu)
	if cfg.Spool != nil {
		kept, err := cfg.Spool.Kept()
		if err != nil {
			return nil, fmt.Errorf("read the spool: %w", err)
		}
		for _, r := range kept {
			k := key{r.App, [16]byte(r.Run), r.Attempt}
			if before := w.held.get(k); before != nil { // the later of two results counts
				w.held.remove(before)
			}
			t := &task{link: w.links[0], state: finished, result: r, kept: true}
			w.held.put(t.named(k))
		}
	}
	return w, nil
}

// Run executes tasks until ctx ends. Then it lets running tasks finish for at most
// DrainTimeout, stops the others and delivers the results. Results that it cannot deliver
// are in the spool for the next start.
func (w *Worker) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	defer endSessions()
	var keepers sync.WaitGroup
	// A handler is stopped through its own context. Its parent therefore has no
	// cancellation: otherwise each task would add an entry to the parent and remove it,
	// without need.
	w.mu.Lock()
	w.handlers = context.WithoutCancel(sessions)
	for range w.cfg.Slots {
		w.addRunnerLocked()
	}
	w.mu.Unlock()
	var err error
	keepers.Go(func() { w.keepSpool(sessions) })
	keepers.Go(func() {
		if err = w.connectAll(sessions); err != nil {
			end()
		}
	})
	<-ctx.Done()
	stop := w.drain()
	w.awaitResults()
	stop()
	close(w.left)
	w.executing.Wait()
	w.watch.timer.Stop()
	w.flush()
	endSessions()
	keepers.Wait()
	return errors.Join(err, w.spoolAll())
}

// Conn returns a connection to a server that knows an app: that of the session of its
// last task, or of any session if no task of the app has arrived; nil: there is none now.
// The connection may break at any time.
func (w *Worker) Conn(app string) grpc.ClientConnInterface {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.homes[app]; l != nil {
		return l.conn
	}
	for _, l := range w.links {
		if l.conn != nil {
			return l.conn
		}
	}
	return nil
}

// ConnOf returns a connection to the server that an attempt came from, which knows its
// run; nil: there is none now.
func (w *Worker) ConnOf(app string, run [16]byte, attempt int32) grpc.ClientConnInterface {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.held.get(key{app, run, attempt}); t != nil && t.link != nil && t.link.conn != nil {
		return t.link.conn
	}
	return nil
}

// connectAll maintains a session with the owner of each partition. It returns only final
// errors.
func (w *Worker) connectAll(ctx context.Context) error {
	if w.cfg.Units == nil {
		return w.links[0].connect(ctx)
	}
	units, err := w.units(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if len(units) == 0 {
		return w.links[0].connect(ctx)
	}
	w.mu.Lock()
	w.links[0].unit = units[0]
	for _, unit := range units[1:] {
		w.links = append(w.links, newLink(w, unit))
	}
	links := slices.Clone(w.links)
	// Assign the results of an earlier process to their links. Results without a
	// partition are older than the partitions of the cluster. They go to the first
	// partition, which took over all state of that time.
	for t := range w.held.all() {
		if i := slices.IndexFunc(links, func(l *link) bool { return l.unit == t.result.GetUnit() }); i > 0 {
			t.link = links[i]
		}
	}
	w.mu.Unlock()
	var each sync.WaitGroup
	ctx, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, len(links))
	for i, l := range links {
		each.Go(func() {
			if errs[i] = l.connect(ctx); errs[i] != nil {
				end()
			}
		})
	}
	each.Wait()
	return errors.Join(errs...)
}

// The pause before the next attempt to reach a server: it doubles from firstPause to
// longestPause. A host that a server has redirected soon learns of the right server, so
// it tries again after redirectPause.
const (
	firstPause    = 50 * time.Millisecond
	redirectPause = 100 * time.Millisecond
	longestPause  = 2 * time.Second
)

// units asks for the partitions until there is an answer, or a final error.
func (w *Worker) units(ctx context.Context) ([]string, error) {
	var down outage
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		units, err := w.cfg.Units(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return units, nil
		case w.cfg.Final(err):
			return nil, err
		}
		down.log(w.cfg.Logger, time.Now(), "", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// connect maintains a session. It returns only final errors.
func (l *link) connect(ctx context.Context) error {
	w := l.w
	wait := firstPause
	var down outage
	for ctx.Err() == nil {
		start, begun := time.Now(), l.begun
		err := l.runSession(ctx)
		if l.begun != begun {
			down = outage{}
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errLeft) || errors.Is(err, errBack) {
			w.cfg.Logger.Info("left", "unit", l.unit, "because", err)
			wait = firstPause
			continue
		}
		if !w.hasJoined() && w.cfg.Final(err) {
			return err
		}
		if time.Since(start) > longestPause {
			wait = firstPause
		}
		if elsewhere(err) {
			wait = min(wait, redirectPause)
		}
		down.log(w.cfg.Logger, time.Now(), l.unit, err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, longestPause)
	}
	return nil
}

// elsewhere reports whether a server has refused the host and named another server.
func elsewhere(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.FailedPrecondition && slices.ContainsFunc(s.Details(), func(d any) bool {
		a, ok := d.(*apiv1.Assignment)
		return ok && a.Address != ""
	})
}

func (w *Worker) hasJoined() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.joined
}

// signalLocked makes every link check for messages to send; w.mu must be held.
func (w *Worker) signalLocked() {
	for _, l := range w.links {
		l.out.signal(l.out.kick)
	}
}

// drain gives back the tasks that have not started and, after DrainTimeout, stops the
// tasks that still run, unless stop is called before.
func (w *Worker) drain() (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.giveBackLocked(ErrDrained.Error(), "drained")
	w.ready.Broadcast()
	w.signalLocked() // the servers must know of the drain before they get the results
	return time.AfterFunc(w.cfg.DrainTimeout, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for t := range w.held.all() {
			w.stopLocked(t, ErrDrained, "drained")
		}
	}).Stop
}

// giveBackLocked ends the tasks that have not started, so that the server can send them
// to other hosts; w.mu must be held.
func (w *Worker) giveBackLocked(why, code string) {
	for _, t := range w.queue.fresh() {
		w.finishLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why, Code: code}, time.Now())
	}
}

// awaitResults waits until every task has its result.
func (w *Worker) awaitResults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy > 0 {
		w.rest.Wait()
	}
}

// flush waits for the acknowledgements of the last results, at most 2 s.
func (w *Worker) flush() {
	const patience = 2 * time.Second
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		w.mu.Lock()
		open := 0 // results whose server is connected
		for t := range w.held.all() {
			if t.link != nil && t.link.conn != nil {
				open++
			}
		}
		w.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-w.acked:
		case <-time.After(time.Until(deadline)):
		}
	}
}

// tasksAtOnce is how many tasks of one message share an allocation, which stays in memory
// until the last of them has ended. With it and with one hash per task, e2e/batch100 of
// bench/sched was 1.09 times as high in four pairs.
const tasksAtOnce = 16

// accept queues tasks from the server.
func (l *link) accept(tasks []*apiv1.Task) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var spare []task
	age := w.age(time.Now())
	for i, m := range tasks {
		l.granted--
		last := l.epochs[m.App]
		if len(m.Run) != 16 || m.Epoch < last {
			w.cfg.Logger.Warn("a task of a former owner is refused", "app", m.App, "job", m.Job, "epoch", m.Epoch)
			continue
		}
		if m.Epoch != last {
			l.epochs[m.App] = m.Epoch
		}
		if !l.leaving && w.homes[m.App] != l {
			w.homes[m.App] = l
		}
		k := key{m.App, [16]byte(m.Run), m.Attempt}
		if len(spare) == 0 {
			spare = make([]task, min(len(tasks)-i, tasksAtOnce))
		}
		t := spare[0].named(k)
		if !w.held.put(t) {
			continue // sent twice: its result will be sent
		}
		spare = spare[1:]
		t.link, t.msg, t.arrived, t.tenant, t.pace, t.priority = l, m, age, w.slots.tenant(m.App), m.Pace, m.Priority
		t.tenant.held++
		w.slots.see(t, age)
		w.busy++
		w.queue.push(t)
	}
	switch {
	case w.closed:
		w.giveBackLocked(ErrDrained.Error(), "drained")
	case w.stuck == w.cfg.Slots:
		w.giveBackLocked(allStuck, "host_stuck")
	}
	for range min(w.queue.len(), w.cfg.Slots) { // a single task wakes one goroutine, not all
		w.ready.Signal()
	}
}

const allStuck = "every slot of the host is taken by a handler that does not return"

// stop stops an attempt at the request of the server.
func (w *Worker) stop(c *apiv1.TaskCancel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.held.all() {
		if k := &t.key; len(c.Run) == 16 && k.run == [16]byte(c.Run) && k.attempt == c.Attempt {
			w.stopLocked(t, ErrCancelled, "cancelled")
		}
	}
}

// stopLocked stops a task: a running one through its context, any other at once. w.mu
// must be held.
func (w *Worker) stopLocked(t *task, why error, code string) {
	switch {
	case t.state == finished:
	case t.cancel != nil:
		t.cancel(why)
	default:
		w.queue.remove(t)
		w.finishLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why.Error() + " before the handler began", Code: code}, time.Now())
	}
}

// finishLocked gives a task its result, at the approximate time doneAt; w.mu must be
// held.
func (w *Worker) finishLocked(t *task, r *apiv1.TaskResult, doneAt time.Time) {
	r.Run, r.App, r.Attempt, r.Epoch = t.key.run[:], t.key.app, t.key.attempt, t.msg.GetEpoch()
	// A text that is not UTF-8 cannot be encoded: it would break this stream and all
	// later ones.
	for _, s := range []*string{&r.Error, &r.Code, &r.Trace} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	t.tenant.held--
	w.slots.see(t, w.age(doneAt))
	t.state, t.result, t.doneAt, t.cancel, t.msg = finished, r, doneAt, nil, nil
	if w.busy--; w.busy == 0 && w.closed {
		w.rest.Broadcast()
	}
	t.link.out.result(t)
	if len(w.links) > 1 { // the other links have room again, too
		w.signalLocked()
	}
}

// ack forgets the results of a batch and of all earlier batches.
func (l *link) ack(batch uint64) {
	w := l.w
	var kept, free []*apiv1.TaskResult
	w.mu.Lock()
	for _, t := range l.out.take(batch) {
		w.held.remove(t)
		switch {
		case t.kept:
			kept = append(kept, t.result)
		case w.cfg.FreeResults != nil:
			free = append(free, t.result)
		}
		t.result = nil // a running attempt may still refer to t
	}
	w.mu.Unlock()
	if len(free) > 0 {
		w.cfg.FreeResults(free)
	}
	w.forget(kept)
	select {
	case w.acked <- struct{}{}:
	default:
	}
}

// spareLocked returns the credits to grant now; w.mu must be held. Each link may grant as
// many credits as the host wants in all, so that a server with tasks does not wait for
// the credits of servers without tasks. So if several servers use their credits at once,
// the host holds more tasks than it wants, up to the wanted number for each link.
func (l *link) spareLocked() int {
	if l.w.closed || l.leaving {
		return 0
	}
	return max(l.w.wantedLocked()-(l.w.busy-l.w.slots.asleep)-l.granted, 0)
}

const (
	// ahead is how much work a host holds: enough for one round trip to the server, and
	// no more, so that slow tasks do not queue here while another host is idle.
	ahead = 100 * time.Millisecond
	// unknownAhead is the wanted number of tasks for each slot while the run time of
	// handlers is unknown. Later it is at least 2.
	unknownAhead = 16
)

// wantedLocked returns how many tasks the host wants to hold; w.mu must be held.
func (w *Worker) wantedLocked() int {
	slots := w.cfg.Slots - w.stuck
	want := unknownAhead * slots
	if w.mean > 0 {
		want = max(int(int64(slots)*int64(ahead)/int64(w.mean)), 2*slots)
	}
	return min(want, w.cfg.Credits)
}
