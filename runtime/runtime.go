// Package runtime defines the execution of one task: the [Task], its [Sink] and its
// [Result]. The executors are the packages below it; for example, runtime/wasm runs
// WebAssembly modules. This package has no network, storage or scheduling.
package runtime

import (
	"context"
	"time"
)

// Task is one attempt of one run, as an executor sees it. The executor must not change
// its slices and maps, or use them after Run has returned.
type Task struct {
	RunID      string
	App        string
	Job        string
	Attempt    int // 1 for the first try
	MaxAttempt int // number of the last attempt that the retry policy allows
	PlannedAt  time.Time
	Covers     int64  // missed times that this run replaces, beside its own planned time
	Part       int    // number of this part of a fan-out, from 0
	Parts      int    // number of parts of the fan-out; 0: the run is not a part
	Role       string // in a map: "root", "part" or "reduce"; "" for other runs

	Version string // version of the module; "": it is not on a server
	Module  string // name of the module, argv[0] of a WASI command; for a plugin, its name
	Digest  string // "sha256:<hex>" of the module's bytes: the key under which the executor loaded it
	Handler string // name of the handler; "" means "main"

	Input []byte
	Args  []string          // argv[1:] of a WASI command
	Env   map[string]string // environment of a WASI command, in addition to WHEELWORK_RUN_ID and similar variables

	HTTP    *HTTPCall // only for builtin http
	Command string    // only for builtin exec: the name of the command

	Deadline    time.Time // zero: none. The executor stops the handler when the deadline passes.
	TraceParent string    // W3C trace context, "" when the run is not traced
	TraceState  string    // the tracestate that goes with it
	Limits      Limits
	Grants      *Grants // nil: allow nothing. Tasks of one module and app share the value.
}

// HTTPCall is an HTTP request and the statuses that count as success.
type HTTPCall struct {
	Request Request
	Expect  []StatusRange
	Timeout time.Duration // until the response is complete
	// Redact removes the secrets of the request from a response. Nil: the request has
	// none.
	Redact func(text []byte) []byte
}

// Confidential reports whether the request contains a secret.
func (c *HTTPCall) Confidential() bool { return c.Request.SecretBody || len(c.Request.Secret) > 0 }

// StatusRange is the range of statuses from First to Last, inclusive.
type StatusRange struct{ First, Last int }

// Limits bound one attempt. A zero field means the default beside it.
type Limits struct {
	MemoryBytes int64 // linear memory, default 256 MiB
	OutputBytes int64 // default 1 MiB
	Fuel        int64 // units of about one instruction, after which the executor stops the handler; default unlimited
	LogBytes    int64 // log of one attempt, default 1 MiB; the executor drops the rest and says so in one line
	LogLines    int64 // lines of that log, default 20 000; the executor drops the rest as well
	LogRate     int64 // lines per second, over a burst of the same number, default 2000; a faster handler has to wait
	Calls       int64 // calls of services, default 100 000; the executor refuses further ones
}

// Level is the severity of a log line.
type Level uint8

// The levels, from the least to the most severe.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Sink receives the log and the progress of a handler while it runs. An executor calls it
// only from the goroutine that called Run, and never after Run has returned. A Sink must
// copy text that it retains.
type Sink interface {
	// Log receives one line without its line break.
	Log(level Level, line []byte)
	// Progress receives the latest progress; total is 0 when unknown.
	Progress(done, total int64, message string)
}

// Sleeper is an optional interface of a Sink. It lends the execution slot of a sleeping
// handler to another task. The calls follow the rules of Sink.
type Sleeper interface {
	// Sleep is called before a handler sleeps. It returns false when the handler keeps
	// its slot. After true, the executor must call Wake when the sleep is over.
	Sleep() bool
	// Wake blocks until the handler has a slot again, or ctx is done.
	Wake(ctx context.Context)
}

// Outcome classifies the end of an attempt.
type Outcome uint8

// The outcomes. A retry policy retries Retryable, TimedOut and HostError, and never
// retries Permanent. Stopped is the outcome of a cancellation.
const (
	Succeeded Outcome = iota + 1
	Retryable         // the handler failed and did not exclude that another attempt may succeed
	Permanent         // the handler reported that another attempt cannot succeed
	TimedOut          // the deadline passed before the handler ended
	Stopped           // ctx was cancelled and the handler has ended
	HostError         // the handler did not start: the module is missing or does not compile, or there is no memory
)

// Result is the outcome of one attempt.
type Result struct {
	Outcome    Outcome
	Output     []byte        // owned by the caller
	Error      string        // one line for display; "" after success
	Code       string        // machine-readable: the handler's own code, or "trap", "exit", "output_limit", …
	Trace      string        // stack trace of a trap, of bounded length; "" otherwise
	ExitCode   int           // of a WASI command
	RetryAfter time.Duration // delay that the handler asked for; zero: the retry policy decides
	Duration   time.Duration // from the first to the last instruction of the handler
}

// A NeedsError reports that another module must be loaded first. A script needs its
// interpreter.
type NeedsError struct {
	Digest string // of the module to load first
}

func (e *NeedsError) Error() string { return "it needs the module " + e.Digest + " to be loaded first" }

// Executor runs tasks. Implementations are safe for concurrent use.
type Executor interface {
	// Run blocks until the handler has ended. When ctx is cancelled, Run asks the handler
	// to stop and stops it within milliseconds; the result is then Stopped.
	Run(ctx context.Context, t Task, sink Sink) Result
}
