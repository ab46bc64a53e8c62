//go:build wasip1

package guest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// HandlerFunc executes one task. It returns nil when the task succeeded.
type HandlerFunc func(ctx Context) error

// handlers holds the registered handlers; the host calls one by its index. Initialisers
// fill it before the host's first call, and it does not change afterwards.
var handlers []handler

type handler struct {
	name  string
	run   HandlerFunc
	batch bool
}

// Handle registers a handler. Call it from init, because main does not run. Name the
// first handler "main": a job runs it unless the job names another one. Handle panics
// when the name is empty or taken.
func Handle(name string, run HandlerFunc) {
	if name == "" || run == nil {
		panic("guest: Handle needs a name and a function")
	}
	for _, h := range handlers {
		if h.name == name {
			panic("guest: handler " + name + " is registered twice")
		}
	}
	handlers = append(handlers, handler{name: name, run: run})
}

// HandleBatch registers a handler that the host may call for several tasks without a
// reset between them. The handler must not keep data of one task that another task must
// not see.
func HandleBatch(name string, run HandlerFunc) {
	Handle(name, run)
	handlers[len(handlers)-1].batch = true
}

// manifest is the argument of Describe.
var manifest string

// Describe sets the manifest, JSON as docs/abi.md describes it. Call it from init. The
// default manifest names the handlers and asks for no capabilities.
func Describe(text string) { manifest = text }

// Status codes of wheelwork_handle.
const (
	statusOK        = 0
	statusRetryable = 1
	statusPermanent = 2
	statusCancelled = 3
)

//go:wasmexport wheelwork_handle
func handle(index int32) int32 {
	if index < 0 || int(index) >= len(handlers) {
		tell(Permanent("no_handler", fmt.Errorf("the module registered %d handlers, the host asked for number %d", len(handlers), index)))
		return statusPermanent
	}
	return status(handlers[index].run(Context{}))
}

//go:wasmexport wheelwork_run
func run(index int32) int32 {
	for jobNext(0) == 1 {
		jobDone(handle(index))
	}
	return statusOK
}

//go:wasmexport wheelwork_describe
func describe() {
	text := []byte(manifest)
	if manifest == "" {
		text = ownManifest()
	}
	outputWrite(address(text), length(text))
}

// ownManifest returns a manifest that names the handlers.
func ownManifest() []byte {
	type entry struct {
		Name  string `json:"name"`
		Batch bool   `json:"batch,omitempty"`
	}
	var list []entry
	for _, h := range handlers {
		list = append(list, entry{h.name, h.batch})
	}
	text, err := json.Marshal(map[string][]entry{"handlers": list})
	if err != nil {
		panic(err)
	}
	return text
}

// status reports an error to the host and returns its status code.
func status(err error) int32 {
	if err == nil {
		return statusOK
	}
	return tell(err)
}

// Context is the current task. It is valid until the handler returns.
type Context struct{}

// Input returns a copy of the task's input.
func (Context) Input() []byte { return input() }

// Write appends to the task's output. Output over the task's limit ends the
// attempt. The error is always nil.
func (Context) Write(p []byte) (int, error) {
	outputWrite(address(p), length(p))
	return len(p), nil
}

// Param returns a property of the task (run_id, app, job, attempt, max_attempts,
// planned_at_ms, covers, part, parts, deadline_ms, module, digest, handler, trace_parent, trace_state)
// or a variable of the job's environment. ok is false when neither has the name.
func (Context) Param(name string) (value string, ok bool) { return param(name) }

// Progress reports the progress of the handler. total 0 means unknown. The host forwards
// only the latest of several reports.
func (Context) Progress(done, total int64, message string) {
	p := []byte(message)
	progress(done, total, address(p), length(p))
}

// Cancelled reports whether the handler should stop, because the run was cancelled or its
// deadline is near. A handler that stops for this reason returns ErrCancelled. The host
// soon ends a handler that continues.
func (Context) Cancelled() bool { return cancelled() != 0 }

// Log returns a logger that writes to the run's log.
func (Context) Log() *slog.Logger { return slog.New(logHandler{}) }

// Logf writes one line to the run's log.
func (Context) Logf(format string, args ...any) {
	writeLog(slog.LevelInfo, fmt.Appendf(nil, format, args...))
}

// Now returns the host's time, to the millisecond. time.Now works too.
func (Context) Now() time.Time { return time.UnixMilli(nowMs()) }
