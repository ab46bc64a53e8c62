package wasm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/files"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// maxTrace bounds the stack trace of a trap in a result, in bytes.
const maxTrace = 4 << 10

// Codes of the results that the host reports. If the handler reported a code of its own,
// the result has that one instead of codeStatus.
const (
	codeTrap        = "trap"
	codeExit        = "exit"
	codeStatus      = "status"
	codeDeadline    = "deadline"
	codeStopped     = "stopped"
	codeCallDepth   = "call_depth"
	codeFuel        = "fuel"
	codeOutputLimit = "output_limit"
	codeMisuse      = "host_call"
	codeNotLoaded   = "not_loaded"
	codeNoHandler   = "no_handler"
	codeMemory      = "memory_limit"
	codeInstantiate = "instantiate"
	codeBadTask     = "bad_task"
	codeService     = "service"
	codeFiles       = "files"
)

// Run runs one task. It blocks until the guest has ended; see runtime.Executor. The error
// of the result is one line, its trace at most maxTrace bytes.
func (e *Engine) Run(ctx context.Context, t runtime.Task, sink runtime.Sink) runtime.Result {
	p, refused := e.prepare(&t)
	if refused != nil {
		return *refused
	}
	c := e.calls.Get().(*call)
	defer e.release(c)
	c.own = t
	c.begin(ctx, &c.own, sink, e.slots)
	c.services, c.ration = e.cfg.Services, &e.ration
	if err := c.start(); err != nil {
		return c.ended(err)
	}
	defer c.releaseSlot()
	var r runtime.Result
	switch {
	case p.module.info.Kind == Command:
		r = e.runCommand(c, p.module, p.limit)
	case p.module.info.Kind == Script:
		r = e.runScript(c, p.module, p.limit)
	case len(c.mounts()) > 0:
		r = e.runMounted(c, p.module, p.limit, p.index)
	default:
		r = e.runReactor(c, p.module, p.limit, p.index)
	}
	c.close()
	return r
}

// prepared holds the facts that Run determines before it calls a handler.
type prepared struct {
	module *module
	limit  int64 // bytes of linear memory
	index  int   // index of the handler in the module
}

// prepare checks whether a task can run at all. If not, refused is its result.
func (e *Engine) prepare(t *runtime.Task) (p prepared, refused *runtime.Result) {
	refuse := func(r runtime.Result) (prepared, *runtime.Result) { return prepared{}, &r }
	m := e.module(t.Digest)
	if m == nil {
		return refuse(failed(runtime.HostError, codeNotLoaded, "module %s (%s) is not loaded on this host", t.Module, t.Digest))
	}
	if m.info.Kind == Interpreter {
		return refuse(failed(runtime.Permanent, codeNoHandler, "module %s is an interpreter, which runs scripts and nothing by itself: name the module of a script", t.Module))
	}
	index := slices.Index(m.info.Handlers, handlerName(t))
	if index < 0 {
		return refuse(failed(runtime.Permanent, codeNoHandler, "module %s has no handler %q; it has: %s",
			t.Module, handlerName(t), strings.Join(m.info.Handlers, ", ")))
	}
	m.bound(t, index)
	limit := min(orDefault(t.Limits.MemoryBytes, defaultMemoryBytes), e.cfg.MaxMemoryBytes)
	if m.info.MinMemoryBytes > limit {
		return refuse(failed(runtime.Permanent, codeMemory, "module %s needs %d bytes of memory to start, its limit is %d: raise the memory limit",
			t.Module, m.info.MinMemoryBytes, limit))
	}
	if err := checkStrings(t); err != nil {
		return refuse(failed(runtime.Permanent, codeBadTask, "%v", err))
	}
	return prepared{m, limit, index}, nil
}

// bound applies the limits of the module's manifest for a handler to the task, where the
// task has no limit or a larger one.
func (m *module) bound(t *runtime.Task, index int) {
	h := m.limits(index)
	if h.none() {
		return
	}
	t.Limits.MemoryBytes = smaller(t.Limits.MemoryBytes, h.MemoryMiB<<20)
	t.Limits.Fuel = smaller(t.Limits.Fuel, h.Fuel)
	if h.TimeoutMs > 0 {
		if latest := time.Now().Add(h.timeout()); t.Deadline.IsZero() || t.Deadline.After(latest) {
			t.Deadline = latest
		}
	}
}

// smaller returns the smaller of two limits; 0 means no limit.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// handlerLimits are the limits of a handler in its module's manifest.
type handlerLimits struct{ *manifest.Handler }

func (h handlerLimits) none() bool { return h.MemoryMiB == 0 && h.Fuel == 0 && h.TimeoutMs == 0 }

func (h handlerLimits) timeout() time.Duration { return time.Duration(h.TimeoutMs) * time.Millisecond }

// limits returns the manifest's limits of a handler; zero limits if the manifest names
// none.
func (m *module) limits(index int) handlerLimits {
	if h := m.info.Manifest.Handlers; index < len(h) {
		return handlerLimits{&h[index]}
	}
	return handlerLimits{&manifest.Handler{}}
}

// release returns a call to the pool for another task. A call that used services is not
// reused, because a service may still hold a reference to it.
func (e *Engine) release(c *call) {
	if c.asked.calls == 0 {
		e.calls.Put(c)
	}
}

// start waits for a slot, unless the deadline has passed or the task was stopped.
func (c *call) start() error {
	if err := c.overdue(); err != nil {
		return err
	}
	return c.acquireSlot()
}

// checkStrings refuses strings that a zero-terminated string list cannot carry.
func checkStrings(t *runtime.Task) error {
	for _, arg := range t.Args {
		if strings.Contains(arg, "\x00") {
			return fmt.Errorf("the argument %.40q has a zero byte, which no program can be given", arg)
		}
	}
	if len(t.Env) == 0 { // true for most tasks; this check is faster than ranging over an empty map
		return nil
	}
	for key, value := range t.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("the environment variable %.40q is empty, or has a zero byte or an equals sign in its name", key)
		}
	}
	return nil
}

func handlerName(t *runtime.Task) string {
	if t.Handler == "" {
		return abi.DefaultHandler
	}
	return t.Handler
}

func failed(o runtime.Outcome, code, format string, args ...any) runtime.Result {
	return runtime.Result{Outcome: o, Code: code, Error: oneLine(fmt.Sprintf(format, args...))}
}

// runCommand runs a WASI command in a new instance.
func (e *Engine) runCommand(c *call, m *module, limit int64) runtime.Result {
	start := c.look()
	unmount, err := e.mount(c)
	if err != nil {
		return failed(runtime.HostError, codeFiles, "%v", err)
	}
	defer unmount()
	inst, err := e.instantiate(c, m, limit)
	if err != nil {
		return c.notStarted(err)
	}
	defer inst.close(c)
	inst.arm(c, e.cfg.StackBytes)
	_, err = inst.mod.ExportedFunction(abi.ExportStart).Call(c)
	r := c.commandResult(err)
	r.Duration = time.Duration(c.look() - start)
	return r
}

// runMounted runs a handler that has files. It uses a new instance, because a guest reads
// its list of mounts in _initialize.
func (e *Engine) runMounted(c *call, m *module, limit int64, index int) runtime.Result {
	unmount, err := e.mount(c)
	if err != nil {
		return failed(runtime.HostError, codeFiles, "%v", err)
	}
	defer unmount()
	inst, err := e.instantiate(c, m, limit)
	if err != nil {
		return c.notStarted(err)
	}
	defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
	if err := e.initialize(c, inst); err != nil {
		return c.notStarted(err)
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.sliceStart
	inst.params[0] = uint64(index)
	err = inst.handle.CallWithStack(c, inst.params[:])
	var r runtime.Result
	if err != nil {
		r = c.errorResult(err)
	} else {
		r = c.statusResult(abi.Status(int32(inst.params[0])))
	}
	r.Duration = time.Duration(c.look() - start)
	return r
}

// mounts returns the files that the task was granted.
func (c *call) mounts() []runtime.FileGrant {
	if c.task.Grants == nil {
		return nil
	}
	return c.task.Grants.Files
}

// mount opens the files of the current task. The caller closes them with unmount.
func (e *Engine) mount(c *call) (unmount func(), err error) {
	var open []files.FS
	unmount = func() {
		for _, fs := range open {
			_ = fs.Close() // all writes are already done
		}
	}
	if len(c.mounts()) == 0 {
		return unmount, nil
	}
	cfg := wazero.NewFSConfig()
	for _, g := range c.mounts() {
		fs := files.Memory(g.Quota(), g.Write, c.work)
		if g.Dir != "" {
			path, ok := e.cfg.Dirs[g.Dir]
			if !ok {
				unmount()
				return nil, fmt.Errorf("the directory %.60q is not on this host: name it when the host is started, or route the job to one that has it", g.Dir)
			}
			if fs, err = files.Open(path, g.Quota(), g.Write, c.work); err != nil {
				unmount()
				return nil, fmt.Errorf("the directory %.60q: %w", g.Dir, err)
			}
		}
		open = append(open, fs)
		cfg = cfg.(sysfs.FSConfig).WithSysFSMount(fs, g.Mount)
	}
	c.files = cfg
	return unmount, nil
}

// runReactor runs a handler in an instance that is reused if the call returns normally.
func (e *Engine) runReactor(c *call, m *module, limit int64, index int) runtime.Result {
	inst, err := e.reactor(c, m, limit)
	if err != nil {
		return c.notStarted(err)
	}
	inst.arm(c, e.cfg.StackBytes)
	start := c.sliceStart
	inst.params[0] = uint64(index)
	err = inst.handle.CallWithStack(c, inst.params[:])
	status := abi.Status(int32(inst.params[0]))
	took := time.Duration(c.look() - start)
	var r runtime.Result
	if err != nil {
		_ = inst.close(c) // its state is unknown
		r = c.errorResult(err)
	} else {
		e.recycle(c, inst)
		r = c.statusResult(status)
	}
	r.Duration = took
	return r
}

// notStarted is the result when no instance could be created or initialised.
func (c *call) notStarted(err error) runtime.Result {
	if c.cause == nil && errors.Is(err, errInstantiate) {
		return failed(runtime.HostError, codeInstantiate, "%v", err)
	}
	r := c.errorResult(err)
	if r.Outcome == runtime.Succeeded { // the guest exited with code 0 during initialisation
		return failed(runtime.Retryable, codeExit, "the module exited before its handler was called")
	}
	return r
}

// commandResult classifies the end of _start.
func (c *call) commandResult(err error) runtime.Result {
	if err == nil {
		return runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	}
	return c.errorResult(err)
}

// statusResult classifies the status that wheelwork_handle returned.
func (c *call) statusResult(status abi.Status) runtime.Result {
	switch status {
	case abi.StatusOK:
		return runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	case abi.StatusCancelled:
		if r, ok := c.gaveUp(); ok {
			return r
		}
	}
	r := runtime.Result{Outcome: runtime.Retryable, Code: codeStatus, Output: c.output}
	if status == abi.StatusPermanent {
		r.Outcome = runtime.Permanent
	}
	r.Error = fmt.Sprintf("the handler returned status %d", status)
	if c.failure != nil {
		c.failure.fill(&r)
	}
	return r
}

// gaveUp is the result of a handler that stopped after a cancel or near its deadline.
func (c *call) gaveUp() (runtime.Result, bool) {
	switch c.cancelled() {
	case abi.CancelRequested:
		return c.ended(errStopped), true
	case abi.CancelDeadlineNear:
		return c.ended(errDeadline), true
	}
	return runtime.Result{}, false
}

func (f *failure) fill(r *runtime.Result) {
	r.Outcome = runtime.Retryable
	if f.permanent {
		r.Outcome = runtime.Permanent
	}
	r.RetryAfter = f.retryAfter
	if f.code != "" {
		r.Code = f.code
	}
	if f.text != "" {
		r.Error = f.text
	}
}

// engineStackOverflow is the engine's error at its own stack limit. It occurs when frames
// are larger than the rewriter estimated.
const engineStackOverflow = "stack overflow"

// errorResult classifies the error of a guest's call: the host ended it, it exited, or it
// trapped.
func (c *call) errorResult(err error) runtime.Result {
	var exit *sys.ExitError
	switch {
	case c.cause != nil:
		r := c.ended(c.cause)
		if r.Code == codeMisuse || r.Code == codeCallDepth {
			r.Trace = c.trace(err)
		}
		return r
	case errors.As(err, &exit):
		return c.exitResult(exit.ExitCode())
	case oneLine(err.Error()) == engineStackOverflow:
		return c.ended(errCallDepth)
	}
	return runtime.Result{
		Outcome: runtime.Retryable, Code: codeTrap, Output: c.output,
		Error: "trap: " + strings.TrimPrefix(oneLine(err.Error()), "wasm error: "),
		Trace: c.trace(err),
	}
}

// ended is the result when the host ended the guest.
func (c *call) ended(cause error) runtime.Result {
	var bad misuse
	switch {
	case errors.Is(cause, errDeadline):
		return failed(runtime.TimedOut, codeDeadline, "%v", cause)
	case errors.Is(cause, errStopped):
		return failed(runtime.Stopped, codeStopped, "%v", cause)
	case errors.Is(cause, errOutputLimit):
		return failed(runtime.Permanent, codeOutputLimit, "the output exceeds its limit of %d bytes: write less or raise the limit", c.outputLimit)
	case errors.Is(cause, errFuel):
		return failed(runtime.Permanent, codeFuel, "%v of %d units: do less in one task, or raise the limit", cause, c.task.Limits.Fuel)
	case errors.Is(cause, errCallDepth):
		return failed(runtime.Retryable, codeCallDepth, "trap: %v", cause)
	case errors.As(cause, &bad):
		return failed(runtime.Retryable, codeMisuse, "trap: %v", cause)
	case errors.As(cause, new(serviceError)):
		return failed(runtime.HostError, codeService, "%v", cause)
	}
	return failed(runtime.HostError, codeTrap, "%v", cause)
}

// exitResult classifies an exit code by the convention of sysexits: 75 is a temporary
// failure; 64-70 and 76-78 mean that the input or the program is wrong.
func (c *call) exitResult(code uint32) runtime.Result {
	r := runtime.Result{Output: c.output, ExitCode: int(int32(code))}
	switch {
	case code == 0:
		r.Outcome = runtime.Succeeded
		return r
	case code >= 64 && code <= 70, code >= 76 && code <= 78:
		r.Outcome = runtime.Permanent
	default:
		r.Outcome = runtime.Retryable
	}
	r.Code = codeExit
	r.Error = fmt.Sprintf("exit code %d", r.ExitCode)
	c.log.Flush(runtime.LevelInfo)
	if said := oneLineOrEmpty(string(c.log.said.line)); said != "" {
		r.Error += ": " + said
	}
	return r
}

// oneLineOrEmpty converts a guest's text to one valid line, or "".
func oneLineOrEmpty(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return ""
	}
	return strings.ToValidUTF8(oneLine(s), "\uFFFD")
}

// trace returns the engine's error text after its first line, with code offsets replaced by
// source lines.
func (c *call) trace(err error) string {
	_, rest, _ := strings.Cut(err.Error(), "\n")
	rest = placeLine.ReplaceAllStringFunc(rest, func(line string) string {
		at, err := strconv.ParseUint(placeLine.FindStringSubmatch(line)[1], 16, 32)
		if err != nil {
			return ""
		}
		var text strings.Builder
		positions := c.lines.At(uint32(at))
		for i, p := range positions {
			text.WriteString("\n\t\t" + p.String())
			if i < len(positions)-1 {
				text.WriteString(" (inlined)")
			}
		}
		return text.String()
	})
	return strings.ToValidUTF8(rest[:min(len(rest), maxTrace)], "")
}

// placeLine matches a line of a trace with a code offset.
var placeLine = regexp.MustCompile(`\n\t\t0x([0-9a-f]+): ` + meter.PlaceName + `\b`)
