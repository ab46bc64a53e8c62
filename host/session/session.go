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

// Config is what a worker is made of. A zero value means the default named
// beside the field; ID, Connect and Run are required.
type Config struct {
	ID      string // stable over restarts of whoever has the spool
	Name    string // for people; default: ID
	Version string
	Labels  map[string]string
	Apps    []string // which it serves; default: all
	ABI     []string // what it runs at first, see Hello.abi and [Worker.Abilities]

	Slots   int // tasks that run at once; default: GOMAXPROCS, at least 4
	Credits int // tasks that it holds at most, queued ones included; default 8192, at least Slots
	// MaxSleeping bounds the tasks that sleep without a slot, see [Attempt.Sleep].
	// Default: 16 for each slot; negative: none.
	MaxSleeping int

	// Connect returns a connection to the server that serves this worker now. It is
	// called before every session and may block until there is one.
	Connect func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)

	// Units returns the units of a cluster: the worker has a session with the owner
	// of each, and ConnectUnit connects to it. It is called once, and may block until
	// it is known. None, or no Units: there is one session, and Connect connects it.
	Units       func(ctx context.Context) ([]string, error)
	ConnectUnit func(ctx context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error)

	// Final says of an error of Connect or of a session that another try cannot
	// help: Run ends with it. Default: none is.
	Final func(error) bool

	// Run executes an attempt and returns its result, of which the run and the
	// attempt are filled in. It heeds ctx, whose cause is [ErrCancelled] or
	// [ErrDrained] when somebody ends the attempt. It is called by as many
	// goroutines as there are slots.
	Run func(ctx context.Context, a *Attempt) *apiv1.TaskResult

	// Prefetch takes what the server asks to have loaded ahead, and Modules returns
	// what to tell a new stream of modules; see [Worker.Module]. Default: the worker
	// runs none.
	Prefetch func([]*apiv1.Prefetch)
	Modules  func() []*apiv1.ModuleState
	// Unload takes the digests of modules that nothing refers to any more. Default: nothing is done.
	Unload func(digests []string)

	// RunBatch, when set, is Run for attempts of which Together has said that each may
	// go in one call with the one before it: it returns when each has ended, and has
	// set the result of each. Together is asked under a lock and must not block.
	Together func(before, t *apiv1.Task) bool
	RunBatch func(batch []*Batched)

	// Free, when set, gets the task of each attempt whose Run, or RunBatch, has returned: nobody uses it any more.
	Free func(*apiv1.Task)
	// FreeResults, when set, gets the results of attempts that the server has and the spool has not: nobody uses them
	// any more.
	FreeResults func([]*apiv1.TaskResult)

	Spool Spool // of results; default: what is not acknowledged when the process ends is lost, and its runs are executed again

	DrainTimeout time.Duration // how long running tasks may go on when the worker ends; default 10 s
	Logger       *slog.Logger  // default: discard
}

// Spool keeps results over a restart. Its calls come one at a time.
type Spool interface {
	// Kept returns what an earlier process could not deliver. It is called once, first.
	Kept() ([]*apiv1.TaskResult, error)
	// Keep writes results down. What it keeps is not changed afterwards.
	Keep([]*apiv1.TaskResult) error
	// Forget takes back one that was kept: the server has it.
	Forget(*apiv1.TaskResult) error
	// Sync returns when all that was kept is durable.
	Sync() error
}

// Why an attempt is ended, as the cause of its context.
var (
	ErrCancelled = errors.New("cancelled")
	ErrDrained   = errors.New("the host is shutting down")
)

// Worker holds tasks. It is made by [New].
type Worker struct {
	cfg     Config
	born    time.Time
	session string
	acked   chan struct{} // capacity 1: something was acknowledged
	left    chan struct{} // closed when the worker ends and every task has its result

	keeping sync.Mutex // held while the spool is called; locked before mu

	mu    sync.Mutex
	held  held
	queue queue // Invariant: each task in it is in state queued, or waking
	slots slots
	// runners execute tasks, each by a goroutine of its own. Invariant until closed: there
	// are at least as many as slots and sleeping tasks, so that one is idle if a slot is.
	runners   int
	executing sync.WaitGroup  // of runners
	handlers  context.Context // of runners, set by Run
	ready     *sync.Cond      // for idle runners: there is a task, or closed changed
	watch     watch
	rest      *sync.Cond // busy is 0
	closed    bool
	busy      int              // held tasks that are not finished
	stuck     int              // slots whose task has a result and whose handler goes on
	homes     map[string]*link // by app: over which its last task came
	links     []*link          // the first is there from the beginning; it only grows
	joined    bool             // there was a session
	abi       []string         // what it runs now: see Abilities
	mean      time.Duration    // decaying, of the handlers' run time
}

// age is a moment, as the time since the worker was made: a time that takes little room.
func (w *Worker) age(at time.Time) time.Duration { return at.Sub(w.born) }

// link is what goes to and fro between the worker and one server at a time: the
// owner of a unit, or the one server that there is. Slots and queue are all
// links' together.
type link struct {
	w    *Worker
	unit string // "": there is but one link
	out  *outgoing

	// Guarded by Worker.mu.
	granted int                      // credits that the server has and did not use
	conn    grpc.ClientConnInterface // of the current session; nil: none
	leaving bool                     // the worker is not needed any more: this session ends when nothing is held of it
	saidABI []string                 // what the hello of this session said of what the worker runs
	epochs  map[string]uint64        // the highest seen by app; a lower one is refused. Those of different units do not compare
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

// task is an attempt that the worker holds.
type task struct {
	key    key
	hash   uint64      // of its run: its place in the table of what is held
	link   *link       // over which it came, and over which its result goes
	msg    *apiv1.Task // nil when finished
	state  state
	tenant *tenant // of its app
	// As the server said, and also when msg is nil.
	pace     apiv1.Pace
	priority int32

	sleep  sleep                   // while its state is running
	joins  bool                    // it goes in one call with the task before it
	told   bool                    // the server knows that its handler has started
	kept   bool                    // the result is in the spool
	cancel context.CancelCauseFunc // nil until its handler begins
	result *apiv1.TaskResult       // when finished
	// arrived is when it came, or woke up last, as an age of the worker.
	arrived time.Duration
	doneAt  time.Time

	attempt Attempt // once its handler begins
}

func (t *task) named(k key) *task {
	t.key, t.hash = k, hashOf(&k)
	return t
}

// New returns a worker that holds the results of the spool.
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
		homes: map[string]*link{}, abi: cfg.ABI, slots: slots{all: cfg.Slots, limit: cfg.MaxSleeping},
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
			if before := w.held.get(k); before != nil { // of two the later one counts
				w.held.remove(before)
			}
			t := &task{link: w.links[0], state: finished, result: r, kept: true}
			w.held.put(t.named(k))
		}
	}
	return w, nil
}

// Run works until ctx ends, then lets running tasks finish (DrainTimeout), ends
// the others and brings back their results; what cannot be brought back is in
// the spool for the next start.
func (w *Worker) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	defer endSessions()
	var keepers sync.WaitGroup
	// A handler ends through its own context: sessions end after all of them, and
	// an entry there for each task would be made and removed for nothing.
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
	w.settled()
	stop()
	close(w.left)
	w.executing.Wait()
	w.watch.timer.Stop()
	w.flush()
	endSessions()
	keepers.Wait()
	return errors.Join(err, w.spoolAll())
}

// Conn returns a connection to a server that knows an app: that of the session
// over which its tasks came, or of any that there is when none came yet; nil: there
// is none now. It may break at any moment.
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

// ConnOf returns a connection to the server that an attempt came from: it knows
// the run. nil: there is none now.
func (w *Worker) ConnOf(app string, run [16]byte, attempt int32) grpc.ClientConnInterface {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.held.get(key{app, run, attempt}); t != nil && t.link != nil && t.link.conn != nil {
		return t.link.conn
	}
	return nil
}

// connectAll keeps a session going with the owner of each unit. It returns an
// error that is final.
func (w *Worker) connectAll(ctx context.Context) error {
	if w.cfg.Units == nil {
		return w.links[0].connect(ctx)
	}
	units, err := w.cfg.Units(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
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
	// Results of an earlier process. Those of the time before the cluster had units
	// are the first one's: it has what was there then.
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

// connect keeps a session going. It returns an error that is final.
func (l *link) connect(ctx context.Context) error {
	w := l.w
	// Who is told that the server is not the right one any more is soon told which
	// one is: it asks again before long.
	const first, soon, longest = 50 * time.Millisecond, 100 * time.Millisecond, 2 * time.Second
	wait := first
	for ctx.Err() == nil {
		start := time.Now()
		err := l.runSession(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errLeft) || errors.Is(err, errBack) {
			w.cfg.Logger.Info("left", "unit", l.unit, "because", err)
			wait = first
			continue
		}
		if !w.hasJoined() && w.cfg.Final(err) {
			return err
		}
		if time.Since(start) > longest {
			wait = first
		}
		if elsewhere(err) {
			wait = min(wait, soon)
		}
		w.cfg.Logger.Warn("no server", "unit", l.unit, "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, longest)
	}
	return nil
}

// elsewhere reports whether a server has refused because another one is to be asked.
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

// signalLocked has every link look what there is to say; w.mu must be held.
func (w *Worker) signalLocked() {
	for _, l := range w.links {
		l.out.signal(l.out.kick)
	}
}

// drain gives back what has not begun, and ends what runs too long, unless stop
// is called before.
func (w *Worker) drain() (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.giveBackLocked(ErrDrained.Error(), "drained")
	w.ready.Broadcast()
	w.signalLocked() // the servers must know before they have the results
	return time.AfterFunc(w.cfg.DrainTimeout, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for t := range w.held.all() {
			w.stopLocked(t, ErrDrained, "drained")
		}
	}).Stop
}

// giveBackLocked lets the server send what has not started elsewhere; w.mu must be held.
func (w *Worker) giveBackLocked(why, code string) {
	for _, t := range w.queue.fresh() {
		w.settleLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why, Code: code}, time.Now())
	}
}

// settled waits until every task has its result.
func (w *Worker) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy > 0 {
		w.rest.Wait()
	}
}

// flush waits a little for the acknowledgements of the last results.
func (w *Worker) flush() {
	const patience = 2 * time.Second
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		w.mu.Lock()
		open := 0 // results that a server is there for
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

// tasksAtOnce is how many tasks of a message are made together. They are in memory
// until the last of them has ended.
const tasksAtOnce = 16

// accept takes tasks from the server.
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
			w.cfg.Logger.Warn("a task of a server that does not own it any more is refused", "app", m.App, "job", m.Job, "epoch", m.Epoch)
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
			continue // sent twice: its result is on the way
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
	for range min(w.queue.len(), w.cfg.Slots) { // for a single task one is woken, and not all
		w.ready.Signal()
	}
}

const allStuck = "every slot of the host is taken by a handler that does not return"

// stop ends an attempt because the server asks for it.
func (w *Worker) stop(c *apiv1.TaskCancel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.held.all() {
		if k := &t.key; len(c.Run) == 16 && k.run == [16]byte(c.Run) && k.attempt == c.Attempt {
			w.stopLocked(t, ErrCancelled, "cancelled")
		}
	}
}

// stopLocked ends a task: a running one through its context, another at once.
// w.mu must be held.
func (w *Worker) stopLocked(t *task, why error, code string) {
	switch {
	case t.state == finished:
	case t.cancel != nil:
		t.cancel(why)
	default:
		w.queue.remove(t)
		w.settleLocked(t, &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why.Error() + " before the handler began", Code: code}, time.Now())
	}
}

// settleLocked makes t finished, about when it was done; w.mu must be held.
func (w *Worker) settleLocked(t *task, r *apiv1.TaskResult, doneAt time.Time) {
	r.Run, r.App, r.Attempt, r.Epoch = t.key.run[:], t.key.app, t.key.attempt, t.msg.GetEpoch()
	// A text that is not UTF-8 does not encode: it would end this stream and all after it.
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
	if len(w.links) > 1 { // there is room again, for the others too
		w.signalLocked()
	}
}

// ack forgets the results of a batch and of all before it.
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
		t.result = nil // an attempt that goes on refers to t
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

// spareLocked returns the credits to grant now; w.mu must be held. Each link may
// have as many as the worker wants in all: who has work must not wait for those
// who have none. So a worker holds more than it wants when several fill it at
// once, up to what it wants for each.
func (l *link) spareLocked() int {
	if l.w.closed || l.leaving {
		return 0
	}
	return max(l.w.wantedLocked()-(l.w.busy-l.w.slots.asleep)-l.granted, 0)
}

const (
	// ahead is how much work a worker holds: enough not to run dry on the way to the
	// server and back, and no more, so that slow tasks do not queue here while
	// another host is idle.
	ahead = 100 * time.Millisecond
	// unknownAhead is the tasks for each slot while nothing is known of how long
	// they take, and the least.
	unknownAhead = 16
)

// wantedLocked returns how many tasks the worker wants to hold; w.mu must be held.
func (w *Worker) wantedLocked() int {
	slots := w.cfg.Slots - w.stuck
	want := unknownAhead * slots
	if w.mean > 0 {
		want = max(int(int64(slots)*int64(ahead)/int64(w.mean)), 2*slots)
	}
	return min(want, w.cfg.Credits)
}
