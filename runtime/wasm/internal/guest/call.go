package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
)

// The causes for which the host ends a guest.
var (
	errDeadline    = errors.New("the handler did not end before its deadline")
	errStopped     = errors.New("the handler was stopped")
	errCallDepth   = errors.New("calls are nested too deep for the stack: look for a recursion without end")
	errOutputLimit = errors.New("output limit")
	errFuel        = errors.New("the handler used up its fuel")
)

// misuse is a host call with invalid arguments.
type misuse struct{ text string }

func (m misuse) Error() string { return m.text }

// A Call is one run of a guest function. It holds the state that host functions need during
// the run. It is the guest's context.Context; the engine only uses Value. Only the
// goroutine that runs the guest may use it.
type Call struct {
	context.Context // Background: the engine only looks up values

	host    *Host
	hasSlot bool   // this call holds a token of host.Slots
	phase   phase  // what the guest may access
	batch   *batch // nil: the call runs a single task
	tasks   batch  // storage for batch

	// Interpreter belongs to the package that drives the guest, if the guest is an
	// interpreter; otherwise nil.
	Interpreter any

	cause      error // why the host ended the guest; nil: it did not
	slice      int64 // units of the current slice
	sliceStart Moment
	worked     int // work of host functions since the clock was last read
	// seen is the time at which the clock was last read. A read costs as much as a short
	// call, so events at about the same time share one read.
	seen Moment

	due   Moment    // the moment of dueAt, cached because the tasks of a batch often share a deadline
	dueAt time.Time // invariant: zero, or the deadline of an earlier task of this call

	attempt              // the current task
	own     runtime.Task // storage for the task of BeginCopy
	lines   *lines.Table // of the running module
}

// An attempt is the state of a call for one task. In a batch a call has several attempts,
// one after another.
type attempt struct {
	// Task is the current task. Host functions only read it.
	Task *runtime.Task

	ctx      context.Context // the context of the caller of Run
	deadline Moment          // the earlier of the deadlines of task and context; never: none

	ungranted   string // the last refused host call, if it lacked a grant
	stdin       []byte // the unread rest of a command's input
	output      []byte
	outputLimit int
	log         logWriter
	progress    progress
	failure     *Failure // the arguments of the guest's call of fail
	cancelSeen  Moment   // first tick that saw the caller's context end; never: none did
	fuel        int64    // units that may still be granted

	// Uses is the use of services by the task.
	Uses Uses
}

// A Failure is the guest's own report of its failure.
type Failure struct {
	Permanent  bool
	RetryAfter time.Duration // 0: as the job says
	Code, Text string        // "": none
}

// A Host has what all calls of an engine share. It is immutable.
type Host struct {
	Slots    chan struct{}    // holds a token for each guest that runs
	Services runtime.Services // nil: none
	Memory   *memory.Budget   // budget of guest memory; nil: no bound
}

// A phase of a call decides whether the guest may access the task.
type phase uint8

const (
	handling     phase = iota // the guest may access the task
	initializing              // in _initialize, which serves later tasks too, so the current task is hidden from the guest
	describing                // in wheelwork_describe: there is no task, but there is output
)

// NewCall returns a call for t.
func NewCall(ctx context.Context, t *runtime.Task, sink runtime.Sink, host *Host) *Call {
	c := new(Call)
	c.Begin(ctx, t, sink, host)
	return c
}

// BeginCopy is Begin with a copy of t that the call stores.
func (c *Call) BeginCopy(ctx context.Context, t *runtime.Task, sink runtime.Sink, host *Host) {
	c.own = *t
	c.Begin(ctx, &c.own, sink, host)
}

// Begin resets c to a call for t.
func (c *Call) Begin(ctx context.Context, t *runtime.Task, sink runtime.Sink, host *Host) {
	c.Context, c.host, c.slice = context.Background(), host, firstSlice
	c.phase, c.batch, c.Interpreter, c.cause, c.worked = handling, nil, nil, nil, 0
	c.due, c.dueAt = never, time.Time{}
	c.log.of = nil
	c.Look()
	c.open(ctx, t, sink)
}

// Release drops the references to the tasks of a batch. It returns false when the call must
// not be used for another task: a service that the guest used may still hold a reference to
// it.
func (c *Call) Release() (reusable bool) {
	if c.batch != nil {
		c.batch, c.tasks = nil, batch{}
	}
	return c.Uses.calls == 0
}

// Cause returns the reason for which the host ended the guest; nil: it did not.
func (c *Call) Cause() error { return c.cause }

// Initialize hides the task from the guest until the returned function is called.
func (c *Call) Initialize() (end func()) {
	c.phase = initializing
	return func() { c.phase = handling }
}

// Initializing reports whether the guest initializes an instance.
func (c *Call) Initializing() bool { return c.phase == initializing }

// Describe hides the task from the guest, which describes its module in the output.
func (c *Call) Describe() { c.phase = describing }

// HasTask reports whether the guest may access a task.
func (c *Call) HasTask() bool { return c.phase == handling && (c.batch == nil || c.batch.open) }

// EndWithoutTask ends a guest that calls a function of its task while it has none.
func (c *Call) EndWithoutTask(function string) {
	switch c.phase {
	case initializing:
		c.Endf("%s was called in %s, where there is no task yet", function, abi.ExportInit)
	case describing:
		c.Endf("%s was called in %s, where there is no task", function, abi.ExportDescribe)
	default:
		c.Endf("%s was called between two tasks: call job_next first", function)
	}
}

// HandlerName returns the name of a task's handler.
func HandlerName(t *runtime.Task) string {
	if t.Handler == "" {
		return abi.DefaultHandler
	}
	return t.Handler
}

// Due returns the deadline of the task; the zero time means none.
func (c *Call) Due() time.Time { return c.deadline.time() }

// SetLines sets the line table of the module that will run.
func (c *Call) SetLines(table *lines.Table) { c.lines = table }

// Seen returns the moment at which the clock was last read.
func (c *Call) Seen() Moment { return c.seen }

// Look reads the clock.
func (c *Call) Look() Moment {
	c.seen = Now()
	return c.seen
}

// open makes t the current task, starting at c.seen.
func (c *Call) open(ctx context.Context, t *runtime.Task, sink runtime.Sink) {
	c.announce(ctx, t)
	c.expose(sink, &t.Limits)
}

// announce makes t the next task: its deadline and its fuel apply from now on, but the
// guest cannot access the task yet, and its log lines and progress reports are discarded.
func (c *Call) announce(ctx context.Context, t *runtime.Task) {
	c.ctx, c.Task = ctx, t
	c.cancelSeen = never
	c.fuel = orDefault(t.Limits.Fuel, unlimited)
	if t.Deadline != c.dueAt {
		c.due, c.dueAt = momentOf(t.Deadline, c.seen), t.Deadline
	}
	c.deadline = c.due
	if d, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, momentOf(d, c.seen))
	}
	c.log.sink, c.progress.sink = Discard{}, Discard{}
}

// expose gives the guest access to the task set by announce, with the given limits. It
// discards the output and failure of the previous task.
func (c *Call) expose(sink runtime.Sink, limits *runtime.Limits) {
	c.stdin, c.output, c.failure = nil, nil, nil
	c.outputLimit = int(orDefault(limits.OutputBytes, defaultOutputBytes))
	c.log.begin(sink, limits)
	c.progress.begin(sink)
	if c.Uses.calls > 0 {
		c.Uses = Uses{}
	}
}

// Close flushes buffered log lines and progress of the current task, and releases its
// resources.
func (c *Call) Close() {
	if c.log.touched {
		c.log.Flush(runtime.LevelInfo)
	}
	if c.progress.pending {
		c.progress.flush(c.seen, true)
	}
	if c.Uses.calls > 0 {
		c.Uses.close()
	}
}

type callKey struct{}

// Value lets host functions find the call.
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return nil
}

// CallFrom returns the call that a host function belongs to. The engine passes the context
// that it was given, or one derived from it.
func CallFrom(ctx context.Context) *Call {
	if c, ok := ctx.(*Call); ok {
		return c
	}
	return ctx.Value(callKey{}).(*Call)
}

// end ends the guest from within a host function. The engine converts the panic to an error
// of the guest's call.
func (c *Call) end(cause error) {
	c.cause = cause
	panic(cause)
}

// Endf ends the guest because it misused a host function.
func (c *Call) Endf(format string, args ...any) {
	c.end(misuse{fmt.Sprintf(format, args...)})
}
