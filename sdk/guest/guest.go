//go:build wasip1

package guest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// A HandlerFunc runs one task. It returns nil when the task is done.
type HandlerFunc func(ctx Context) error

// handlers are the registered handlers; the host calls one by its index. It is
// filled by initialisers, before the host calls, and not changed after.
var handlers []handler

type handler struct {
	name  string
	run   HandlerFunc
	batch bool
}

// Handle registers a handler. Call it from init: main does not run. The first
// handler should be named "main", which is what a job runs unless it says
// otherwise. Handle panics when the name is empty or taken.
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

// HandleBatch registers a handler whose tasks the host may run several of in one
// call, without a reset between them: it must not keep anything of one task that
// another must not see.
func HandleBatch(name string, run HandlerFunc) {
	Handle(name, run)
	handlers[len(handlers)-1].batch = true
}

// manifest is what Describe was given.
var manifest string

// Describe sets the manifest, JSON as docs/abi.md describes it. Call it from init.
// Without it the manifest names the handlers and asks for nothing.
func Describe(text string) { manifest = text }

// Statuses of wheelwork_handle.
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

// ownManifest names the handlers.
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

// status reports an error to the host.
func status(err error) int32 {
	if err == nil {
		return statusOK
	}
	return tell(err)
}

// Context is the task at hand. It is valid until the handler returns.
type Context struct{}

// Input returns a copy of the task's input.
func (Context) Input() []byte { return input() }

// Write appends to the task's output. Output over the task's limit ends the
// attempt. The error is always nil.
func (Context) Write(p []byte) (int, error) {
	outputWrite(address(p), length(p))
	return len(p), nil
}

// Param returns what the task tells about itself (run_id, app, job, attempt,
// max_attempts, planned_at_ms, covers, part, parts, deadline_ms, module, digest,
// handler, trace_parent) or a variable of the job's environment. ok is false when there
// is none of that name.
func (Context) Param(name string) (value string, ok bool) { return param(name) }

// Progress tells how far the handler is. total 0 means unknown. The host passes
// on the latest of several.
func (Context) Progress(done, total int64, message string) {
	p := []byte(message)
	progress(done, total, address(p), length(p))
}

// Cancelled says whether the handler should stop: it was cancelled, or its
// deadline is near. A handler that stops for it returns ErrCancelled; one that
// does not is ended soon after.
func (Context) Cancelled() bool { return cancelled() != 0 }

// Log returns a logger that writes to the run's log.
func (Context) Log() *slog.Logger { return slog.New(logHandler{}) }

// Logf writes one line to the run's log.
func (Context) Logf(format string, args ...any) {
	writeLog(slog.LevelInfo, fmt.Appendf(nil, format, args...))
}

// Now is the host's clock, to the millisecond. time.Now works too.
func (Context) Now() time.Time { return time.UnixMilli(nowMs()) }
