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

// Bounds of a slice: the units (about instructions) a guest runs between two
// ticks. The slice adapts to sliceTime, because a unit may take 0.3 ns or, when
// every load misses the caches, a hundred times as long.
const (
	firstSlice = 50_000
	minSlice   = 5_000
	maxSlice   = 1_000_000
	sliceTime  = 200 * time.Microsecond
)

const (
	// cancelGrace is how long a handler may run on after a cancel, so that one
	// that asks can end by itself.
	cancelGrace = 3 * time.Millisecond
	// deadlineNear is when "cancelled" begins to warn.
	deadlineNear = time.Second
	// progressEvery is how often a progress goes on to the sink.
	progressEvery = 100 * time.Millisecond
	// longSleep is how long a sleep is for which a guest gives up the slot of its host: a
	// shorter one costs less than another task in its place.
	longSleep = 50 * time.Millisecond
)

// Why the host ended a guest.
var (
	errDeadline    = errors.New("the handler did not end before its deadline")
	errStopped     = errors.New("the handler was stopped")
	errCallDepth   = errors.New("calls are nested too deep for the stack: look for a recursion without end")
	errOutputLimit = errors.New("output limit")
)

// misuse is a host call with arguments that make no sense.
type misuse struct{ text string }

func (m misuse) Error() string { return m.text }

// A call is one run of a guest function: what host functions need while it
// lasts. It is the guest's context.Context; only Value is used by the engine.
// It belongs to the goroutine that runs the guest.
type call struct {
	context.Context // Background: the engine looks for values only

	slots      chan struct{}
	ration     *ration // of guest memory; nil: there is no bound
	hasSlot    bool    // whether this call holds a token of slots
	services   runtime.Services
	starting   bool            // in _initialize, whose effects later tasks see: the task is out of reach
	describing bool            // in wheelwork_describe: there is no task, but there is output
	batch      *batch          // nil: the task is alone
	tasks      batch           // where batch lies
	inst       *instance       // the instance that JavaScript runs in; nil: none does
	bridge     *bridge         // the standard streams of Python; nil: there is none
	files      wazero.FSConfig // what is mounted; nil: nothing

	cause      error // why the host ended the guest; nil when it did not
	slice      int64 // units of the slice that runs
	sliceStart moment
	worked     int // work of host functions since the clock was looked at
	// seen is when the clock was looked at last. Looking costs as much as a short
	// call, so what happens at one moment shares a look.
	seen moment

	due   moment    // when dueAt is: the tasks of a batch often have one deadline
	dueAt time.Time // invariant: zero, or of a task that this call has faced

	attempt              // the task at hand
	own     runtime.Task // where Run keeps its task
	lines   *lines.Table // of the module that runs
}

// An attempt is what a call keeps for one task. In a batch a call has one after
// another.
type attempt struct {
	ctx      context.Context // the caller's
	task     *runtime.Task
	deadline moment // the earlier of the task's and the context's; never: none

	stdin       []byte // what is left of a command's input
	output      []byte
	outputLimit int
	log         logWriter
	progress    progress
	failure     *failure // what the guest told by fail
	cancelSeen  moment   // first tick that saw the caller's context end; never: none has
	fuel        int64    // units that may still be granted
	asked       asked
}

// failure is what a guest tells about why it fails.
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

// begin makes c a call for t, whatever it was before.
func (c *call) begin(ctx context.Context, t *runtime.Task, sink runtime.Sink, slots chan struct{}) {
	c.Context, c.slots, c.slice = context.Background(), slots, firstSlice
	c.starting, c.describing, c.batch, c.files, c.cause, c.worked = false, false, nil, nil, nil, 0
	c.due, c.dueAt = never, time.Time{}
	c.log.of = nil
	c.look()
	c.open(ctx, t, sink)
}

// look looks at the clock.
func (c *call) look() moment {
	c.seen = now()
	return c.seen
}

// open makes t the task at hand, at the time seen last.
func (c *call) open(ctx context.Context, t *runtime.Task, sink runtime.Sink) {
	c.face(ctx, t)
	c.take(sink, &t.Limits)
}

// face makes t the task that is next: its time runs and its fuel is used, but
// the guest cannot reach it yet, and nobody hears what it says.
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

// take gives the guest the task that it faces, with these limits. What it said before
// is gone.
func (c *call) take(sink runtime.Sink, limits *runtime.Limits) {
	c.stdin, c.output, c.failure = nil, nil, nil
	c.outputLimit = int(orDefault(limits.OutputBytes, defaultOutputBytes))
	c.log.begin(sink, limits)
	c.progress.begin(sink)
	if c.asked.calls > 0 {
		c.asked = asked{}
	}
}

// close hands on what is still held back of the task at hand, and gives back
// what it holds.
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

// Value makes the call known to host functions.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return nil
}

// callFrom is the call that a host function is part of. The engine hands on the
// context that it was given, or one made from it.
func callFrom(ctx context.Context) *call {
	if c, ok := ctx.(*call); ok {
		return c
	}
	return ctx.Value(callKey{}).(*call)
}

// end ends the guest from within a host function. The engine turns the panic
// into an error of the guest's call.
func (c *call) end(cause error) {
	c.cause = cause
	panic(cause)
}

// endf ends the guest for a misuse of a host function.
func (c *call) endf(format string, args ...any) {
	c.end(misuse{fmt.Sprintf(format, args...)})
}

// tick is called when a slice is used up: it lets other goroutines run, ends a
// guest whose time is over, and returns the next slice.
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

// Bounds of a yield. A turn that took no longer than nobody says that nobody else
// wants to run.
const (
	nobody   = moment(500 * time.Nanosecond)
	maxTurns = 32
)

// yield lets other goroutines run, for as long as a slice lasts if they want to, and
// returns what time it is then.
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

// giveTurns gives turns to others, each of which returns what time it is then, and
// reports whether there was anybody. One turn is not enough: the garbage collector
// sweeps in hundreds of small turns, and with a whole slice between any two of them
// a collection would take many times as long.
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

// workBetweenLooks is how much host functions do for a guest between two looks
// at the clock, in calls and pages. Their time is not in the guest's budget, so
// a loop around a slow one would run a thousand times as long as its slice.
const workBetweenLooks = 32

// work counts what a host function does with so many bytes, and ends a guest
// whose time is over. Functions that touch no memory cost what the guest's budget
// says of a call.
func (c *call) work(bytes int) {
	if c.worked += 1 + bytes/pageBytes; c.worked >= workBetweenLooks {
		c.worked = 0
		c.check(c.look())
	}
}

// nextSlice doubles a slice that was short and shrinks a long one at once.
func nextSlice(slice int64, used time.Duration) int64 {
	switch {
	case used > sliceTime:
		return max(minSlice, int64(float64(slice)*float64(sliceTime)/float64(used)))
	case used < sliceTime/2:
		return min(maxSlice, slice*2)
	}
	return slice
}

// check ends the guest when its deadline has passed, or a while after the
// caller cancelled it.
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

// overdue says why a guest should not even start, at the time seen last.
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

// cancelled is what the guest learns when it asks whether to stop.
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

// sleep waits for d and gives the slot to another guest meanwhile; if it takes long, that of
// the host as well. A guest that
// sleeps when its deadline passes or it is cancelled is ended at once: it would
// not ask before it wakes.
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

// wake waits until the host has a slot for a guest that has slept, or the guest's
// deadline has passed.
func (c *call) wake(s runtime.Sleeper) {
	ctx := c.ctx
	if c.deadline != never {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, c.left())
		defer end()
	}
	s.Wake(ctx)
}

// pace makes a guest wait that logs faster than it may.
func (c *call) pace() {
	if wait := c.log.wait(); wait > 0 {
		c.sleep(wait)
	}
}

// acquireSlot waits until the guest may run.
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

// writeOutput appends to the output. Over the limit it ends the guest: the
// rest could never be delivered.
func (c *call) writeOutput(b []byte) {
	if len(b) > c.outputLimit-len(c.output) {
		c.end(errOutputLimit)
	}
	if c.batch != nil && c.output == nil && len(b) <= smallOutput {
		c.output = c.batch.room(len(b))
	}
	c.output = append(c.output, b...)
}
