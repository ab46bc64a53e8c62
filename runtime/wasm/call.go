package wasm

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
)

// Bounds of a slice: the number of units (about one instruction each) that a guest runs
// between two ticks. The slice adapts to sliceTime, because a unit takes from 0.3 ns up to
// a hundred times as long when every load misses the caches.
const (
	firstSlice = 50_000
	minSlice   = 5_000
	maxSlice   = 1_000_000
	sliceTime  = 200 * time.Microsecond
)

const (
	// cancelGrace is how long a handler may continue after a cancel, so that a handler that
	// polls for cancellation can return by itself.
	cancelGrace = 3 * time.Millisecond
	// deadlineNear is the time before the deadline from which "cancelled" warns the guest.
	deadlineNear = time.Second
	// progressEvery is the minimum time between two progress reports to the sink.
	progressEvery = 100 * time.Millisecond
	// longSleep is the longest sleep during which a guest retains its execution slot of the
	// host. For a shorter sleep it costs more to run another task than to wait.
	longSleep = 50 * time.Millisecond
)

// The causes for which the host ends a guest.
var (
	errDeadline    = errors.New("the handler did not end before its deadline")
	errStopped     = errors.New("the handler was stopped")
	errCallDepth   = errors.New("calls are nested too deep for the stack: look for a recursion without end")
	errOutputLimit = errors.New("output limit")
)

// misuse is a host call with invalid arguments.
type misuse struct{ text string }

func (m misuse) Error() string { return m.text }

// A call is one run of a guest function. It holds the state that host functions need during
// the run. It is the guest's context.Context; the engine only uses Value. Only the
// goroutine that runs the guest may use it.
type call struct {
	context.Context // Background: the engine only looks up values

	slots      chan struct{}
	ration     *ration // budget of guest memory; nil: no bound
	hasSlot    bool    // this call holds a token of slots
	services   runtime.Services
	starting   bool            // in _initialize, which serves later tasks too, so the current task is hidden from the guest
	describing bool            // in wheelwork_describe: there is no task, but there is output
	batch      *batch          // nil: the call runs a single task
	tasks      batch           // storage for batch
	inst       *instance       // the instance that runs JavaScript; nil: none
	bridge     *bridge         // the standard streams of Python; nil: none
	files      wazero.FSConfig // the mounted files; nil: none

	cause      error // why the host ended the guest; nil: it did not
	slice      int64 // units of the current slice
	sliceStart moment
	worked     int // work of host functions since the clock was last read
	// seen is the time at which the clock was last read. A read costs as much as a short
	// call, so events at about the same time share one read.
	seen moment

	due   moment    // the moment of dueAt, cached because the tasks of a batch often share a deadline
	dueAt time.Time // invariant: zero, or the deadline of an earlier task of this call

	attempt              // the current task
	own     runtime.Task // storage for the task of Run
	lines   *lines.Table // of the running module
}

// An attempt is the state of a call for one task. In a batch a call has several attempts,
// one after another.
type attempt struct {
	ctx      context.Context // the context of the caller of Run
	task     *runtime.Task
	deadline moment // the earlier of the deadlines of task and context; never: none

	stdin       []byte // the unread rest of a command's input
	output      []byte
	outputLimit int
	log         logWriter
	progress    progress
	failure     *failure // the arguments of the guest's call of fail
	cancelSeen  moment   // first tick that saw the caller's context end; never: none did
	fuel        int64    // units that may still be granted
	asked       asked
}

// failure is the guest's own report of its failure.
type failure struct {
	permanent  bool
	retryAfter time.Duration
	code, text string
}

func newCall(ctx context.Context, t *runtime.Task, sink runtime.Sink, slots chan struct{}) *call {
	c := new(call)
	c.begin(ctx, t, sink, slots)
	return c
}

// begin resets c to a call for t.
func (c *call) begin(ctx context.Context, t *runtime.Task, sink runtime.Sink, slots chan struct{}) {
	c.Context, c.slots, c.slice = context.Background(), slots, firstSlice
	c.starting, c.describing, c.batch, c.files, c.cause, c.worked = false, false, nil, nil, nil, 0
	c.due, c.dueAt = never, time.Time{}
	c.log.of = nil
	c.look()
	c.open(ctx, t, sink)
}

// look reads the clock.
func (c *call) look() moment {
	c.seen = now()
	return c.seen
}

// open makes t the current task, starting at c.seen.
func (c *call) open(ctx context.Context, t *runtime.Task, sink runtime.Sink) {
	c.face(ctx, t)
	c.take(sink, &t.Limits)
}

// face makes t the next task: its deadline and its fuel apply from now on, but the guest
// cannot access the task yet, and its log lines and progress reports are discarded.
func (c *call) face(ctx context.Context, t *runtime.Task) {
	c.ctx, c.task = ctx, t
	c.cancelSeen = never
	c.fuel = orDefault(t.Limits.Fuel, unlimited)
	if t.Deadline != c.dueAt {
		c.due, c.dueAt = momentOf(t.Deadline, c.seen), t.Deadline
	}
	c.deadline = c.due
	if d, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, momentOf(d, c.seen))
	}
	c.log.sink, c.progress.sink = discard{}, discard{}
}

// take gives the guest access to the task set by face, with the given limits. It discards
// the output and failure of the previous task.
func (c *call) take(sink runtime.Sink, limits *runtime.Limits) {
	c.stdin, c.output, c.failure = nil, nil, nil
	c.outputLimit = int(orDefault(limits.OutputBytes, defaultOutputBytes))
	c.log.begin(sink, limits)
	c.progress.begin(sink)
	if c.asked.calls > 0 {
		c.asked = asked{}
	}
}

// close flushes buffered log lines and progress of the current task, and releases its
// resources.
func (c *call) close() {
	if c.log.touched {
		c.log.Flush(runtime.LevelInfo)
	}
	if c.progress.pending {
		c.progress.flush(c.seen, true)
	}
	if c.asked.calls > 0 {
		c.asked.close()
	}
}

func orDefault(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}

type callKey struct{}

// Value lets host functions find the call.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return nil
}

// callFrom returns the call that a host function belongs to. The engine passes the context
// that it was given, or one derived from it.
func callFrom(ctx context.Context) *call {
	if c, ok := ctx.(*call); ok {
		return c
	}
	return ctx.Value(callKey{}).(*call)
}

// end ends the guest from within a host function. The engine converts the panic to an error
// of the guest's call.
func (c *call) end(cause error) {
	c.cause = cause
	panic(cause)
}

// endf ends the guest because it misused a host function.
func (c *call) endf(format string, args ...any) {
	c.end(misuse{fmt.Sprintf(format, args...)})
}

// tick is called when a slice is used up. It lets other goroutines run, ends a guest after
// its deadline or cancellation, and returns the next slice.
func (c *call) tick() int64 {
	at := now()
	used := time.Duration(at - c.sliceStart)
	c.seen = yield(at)
	c.check(c.seen)
	c.progress.flush(c.seen, false)
	c.slice = nextSlice(c.slice, used)
	c.sliceStart = c.seen
	return c.slice
}

// Bounds of a yield. If a turn takes less than nobody, no other goroutine wants to run.
const (
	nobody   = moment(500 * time.Nanosecond)
	maxTurns = 32
)

// yield lets other goroutines run, for up to sliceTime if they need it, and returns the
// time afterwards.
func yield(begin moment) moment {
	at, others := giveTurns(begin, func() moment {
		goruntime.Gosched()
		return now()
	})
	if others {
		at = standBack(at)
	}
	return at
}

// giveTurns calls turn, which lets other goroutines run and returns the time afterwards. It
// repeats the calls until no other goroutine wants to run, and reports whether any did. One
// turn is not enough: the garbage collector sweeps in hundreds of small turns, and with a
// whole slice between every two of them a collection would take many times as long.
func giveTurns(begin moment, turn func() moment) (at moment, others bool) {
	at = begin
	for range maxTurns {
		next := turn()
		if next-at < nobody {
			return next, others
		}
		if at, others = next, true; at-begin >= moment(sliceTime) {
			break
		}
	}
	return at, others
}

// workBetweenLooks is how much host functions do for a guest between two reads of the
// clock, in calls and pages. Their time is not in the guest's budget, so a loop around a
// slow host function would run a thousand times as long as its slice.
const workBetweenLooks = 32

// work counts the work of a host function on so many bytes, and ends a guest whose deadline
// has passed. Functions that touch no memory cost what the guest's budget charges for a
// call.
func (c *call) work(bytes int) {
	if c.worked += 1 + bytes/pageBytes; c.worked >= workBetweenLooks {
		c.worked = 0
		c.check(c.look())
	}
}

// nextSlice doubles a slice that took less than half of sliceTime. It shrinks a slice that
// took longer than sliceTime to about sliceTime at once.
func nextSlice(slice int64, used time.Duration) int64 {
	switch {
	case used > sliceTime:
		return max(minSlice, int64(float64(slice)*float64(sliceTime)/float64(used)))
	case used < sliceTime/2:
		return min(maxSlice, slice*2)
	}
	return slice
}

// check ends the guest when its deadline has passed, or cancelGrace after the caller
// cancelled it.
func (c *call) check(now moment) {
	if now >= c.deadline {
		c.end(errDeadline)
	}
	err := c.ctx.Err()
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		c.end(errDeadline)
	case c.cancelSeen == never:
		c.cancelSeen = now
	case time.Duration(now-c.cancelSeen) > cancelGrace:
		c.end(errStopped)
	}
}

// overdue returns the reason why a guest should not start at c.seen, or nil.
func (c *call) overdue() error {
	err := c.ctx.Err()
	switch {
	case c.seen >= c.deadline:
		return errDeadline
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	}
	return errStopped
}

// cancelled returns the answer to a guest that polls for cancellation.
func (c *call) cancelled() abi.Cancel {
	switch {
	case c.ctx.Err() != nil:
		return abi.CancelRequested
	case c.left() < deadlineNear:
		return abi.CancelDeadlineNear
	}
	return abi.CancelNone
}

// left is the time until the deadline.
func (c *call) left() time.Duration {
	if c.deadline == never {
		return time.Duration(never)
	}
	return time.Duration(c.deadline - now())
}

// sleep waits for d and gives its slot to another guest meanwhile. A sleep longer than
// longSleep also releases the execution slot of the host, unless guest memory is scarce or
// the host refuses. A guest whose deadline passes or that is
// cancelled during its sleep is ended at once, because it could not poll for cancellation
// before it wakes.
func (c *call) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	c.progress.flush(c.look(), d >= progressEvery)
	d = min(d, c.left())
	c.releaseSlot()
	sleeper, _ := c.log.sink.(runtime.Sleeper)
	if d <= longSleep || c.ration.scarce() || sleeper != nil && !sleeper.Sleep() {
		sleeper = nil
	}
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		timer.Stop()
	}
	if sleeper != nil {
		c.wake(sleeper)
	}
	err := c.acquireSlot()
	c.sliceStart = c.look()
	if err == nil {
		err = c.overdue()
	}
	if err != nil {
		c.end(err)
	}
}

// wake waits until the host has an execution slot for a guest that has slept, or until the
// guest's deadline.
func (c *call) wake(s runtime.Sleeper) {
	ctx := c.ctx
	if c.deadline != never {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, c.left())
		defer end()
	}
	s.Wake(ctx)
}

// pace delays a guest that logs faster than its log rate.
func (c *call) pace() {
	if wait := c.log.wait(); wait > 0 {
		c.sleep(wait)
	}
}

// acquireSlot waits for a slot of the engine.
func (c *call) acquireSlot() error {
	select {
	case c.slots <- struct{}{}:
		c.hasSlot = true
		return nil
	default:
	}
	var expired <-chan time.Time
	if c.deadline != never {
		timer := time.NewTimer(c.left())
		defer timer.Stop()
		expired = timer.C
	}
	defer c.look()
	select {
	case c.slots <- struct{}{}:
		c.hasSlot = true
		return nil
	case <-c.ctx.Done():
		return c.overdue()
	case <-expired:
		return errDeadline
	}
}

func (c *call) releaseSlot() {
	if c.hasSlot {
		c.hasSlot = false
		<-c.slots
	}
}

// writeOutput appends to the output. It ends the guest when the output exceeds its limit,
// because a truncated output is useless.
func (c *call) writeOutput(b []byte) {
	if len(b) > c.outputLimit-len(c.output) {
		c.end(errOutputLimit)
	}
	if c.batch != nil && c.output == nil && len(b) <= smallOutput {
		c.output = c.batch.room(len(b))
	}
	c.output = append(c.output, b...)
}
