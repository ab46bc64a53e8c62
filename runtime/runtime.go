// Package runtime defines what it means to run one task: the task, its sink
// and its result. The executors live below it: runtime/wasm runs WebAssembly
// modules. This room knows no network, no storage and no schedule.
package runtime

import (
	"context"
	"time"
)

// Task is one attempt of one run, as an executor sees it.
// The executor owns nothing in it: slices and maps must not be changed or kept
// after Run returns.
type Task struct {
	RunID      string
	App        string
	Job        string
	Attempt    int // 1 for the first try
	MaxAttempt int // the last attempt the retry policy allows
	PlannedAt  time.Time
	Covers     int64  // planned times that passed and for which the run stands beside its own
	Part       int    // of a fan-out: the number of this part, from 0
	Parts      int    // how many parts there are; 0: the run is no part
	Role       string // of a part of a run that maps: "root", "part" or "reduce"; else ""

	Module  string // the name of the module, argv[0] of a WASI command; of a plugin: its name
	Digest  string // "sha256:<hex>" of the module's bytes: the key under which it was loaded
	Handler string // the named entry; "" means "main"

	Input []byte
	Args  []string          // argv[1:] of a WASI command
	Env   map[string]string // the environment of a WASI command, beside WHEELWORK_RUN_ID and its like

	HTTP    *HTTPCall // of builtin http
	Command string    // of builtin exec: the name of the command

	Deadline    time.Time // zero: none. The executor ends the handler when it has passed.
	TraceParent string    // W3C trace context, "" when the run is not traced
	Limits      Limits
	Grants      *Grants // nil: nothing. Tasks of one module and app share it.
}

// HTTPCall is a request, and which answers to it are a success.
type HTTPCall struct {
	Request Request
	Expect  []StatusRange
	Timeout time.Duration // until the whole answer is there
	// Redact takes the secrets of the request out of the answer. Default: there are none.
	Redact func(text []byte) []byte
}

// Confidential says whether a secret is in the request.
func (c *HTTPCall) Confidential() bool { return c.Request.SecretBody || len(c.Request.Secret) > 0 }

// StatusRange are the statuses from First to Last.
type StatusRange struct{ First, Last int }

// Limits bound one task. A zero field means the default named beside it.
type Limits struct {
	MemoryBytes int64 // linear memory, default 256 MiB
	OutputBytes int64 // default 1 MiB
	Fuel        int64 // units of work, each about an instruction, after which the handler is ended; default unlimited
	LogBytes    int64 // log of one attempt, default 1 MiB; what exceeds it is dropped and said so in one line
	LogLines    int64 // lines of that log, default 20 000; the same
	LogRate     int64 // lines a second over a burst of as many, default 2000; a handler that is faster has to wait
	Calls       int64 // requests to services, default 100 000; more are refused
}

// Level is the severity of a log line.
type Level uint8

// The levels, least severe first.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Sink takes what a handler says while it runs. An executor calls it from the
// goroutine that called Run, and not after Run has returned; text must be copied to
// be kept.
type Sink interface {
	// Log takes one line without its line break.
	Log(level Level, line []byte)
	// Progress takes the latest state; total is 0 when unknown.
	Progress(done, total int64, message string)
}

// Sleeper is what a Sink may be as well: it lends the slot of a handler that sleeps to
// another one. It is called like the Sink.
type Sleeper interface {
	// Sleep is called before a handler sleeps. It reports false when the handler keeps
	// its slot; otherwise Wake must be called when it has slept.
	Sleep() bool
	// Wake waits until the handler has a slot again, or ctx ends.
	Wake(ctx context.Context)
}

// Outcome classes what became of an attempt.
type Outcome uint8

// The outcomes. A retry policy tries Retryable, TimedOut and HostError again;
// Permanent never; Stopped because someone asked for it.
const (
	Succeeded Outcome = iota + 1
	Retryable         // the handler failed and says, or does not deny, that another try may help
	Permanent         // the handler says that another try cannot help
	TimedOut          // the deadline passed
	Stopped           // the context was cancelled and the handler has ended
	HostError         // the handler never ran: module missing, does not compile, no memory
)

// Result is what one attempt came to.
type Result struct {
	Outcome    Outcome
	Output     []byte        // owned by the caller
	Error      string        // one line for people; "" when succeeded
	Code       string        // machine-readable: the handler's own code, or "trap", "exit", "output_limit", …
	Trace      string        // stack of a trap, capped; "" otherwise
	ExitCode   int           // of a WASI command
	RetryAfter time.Duration // the handler's wish; zero: the policy decides
	Duration   time.Duration // from the first to the last instruction of the handler
}

// A NeedsError says that a module can be made ready only after another one: a
// script after its interpreter.
type NeedsError struct {
	Digest string // of the other one
}

func (e *NeedsError) Error() string { return "it needs the module " + e.Digest + " to be loaded first" }

// Executor runs tasks. Implementations are safe for concurrent use.
type Executor interface {
	// Run blocks until the handler has ended. Cancelling ctx asks the handler to
	// stop and ends it within milliseconds; the result is then Stopped.
	Run(ctx context.Context, t Task, sink Sink) Result
}
