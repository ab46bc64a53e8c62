package guest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// MaxTrace bounds the stack trace of a trap in a result, in bytes.
const MaxTrace = 4 << 10

// Codes of the results that the host reports. If the handler reported a code of its own,
// the result has that one instead of CodeStatus.
const (
	CodeTrap        = "trap"
	CodeExit        = "exit"
	CodeStatus      = "status"
	CodeDeadline    = "deadline"
	CodeStopped     = "stopped"
	CodeCallDepth   = "call_depth"
	CodeFuel        = "fuel"
	CodeOutputLimit = "output_limit"
	CodeMisuse      = "host_call"
	CodeNotLoaded   = "not_loaded"
	CodeNoHandler   = "no_handler"
	CodeMemory      = "memory_limit"
	CodeInstantiate = "instantiate"
	CodeBadTask     = "bad_task"
	CodeService     = "service"
	CodeFiles       = "files"
	CodeNotGranted  = "not_granted"
)

// ErrInstantiate means that the host, not the guest, caused the failure to create an
// instance.
var ErrInstantiate = errors.New("the host could not create an instance")

// Failed returns a result with a code and an error of one line.
func Failed(o runtime.Outcome, code, format string, args ...any) runtime.Result {
	return runtime.Result{Outcome: o, Code: code, Error: oneline.First(fmt.Sprintf(format, args...))}
}

// NotStarted is the result when no instance could be created or initialised.
func (c *Call) NotStarted(err error) runtime.Result {
	if c.cause == nil && errors.Is(err, ErrInstantiate) {
		return Failed(runtime.HostError, CodeInstantiate, "%v", err)
	}
	r := c.ErrorResult(err)
	if r.Outcome == runtime.Succeeded { // the guest exited with code 0 during initialisation
		return Failed(runtime.Retryable, CodeExit, "the module exited before its handler was called")
	}
	return r
}

// CommandResult classifies the end of _start.
func (c *Call) CommandResult(err error) runtime.Result {
	if err == nil {
		return runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	}
	return c.ErrorResult(err)
}

// StatusResult classifies the status that wheelwork_handle returned.
func (c *Call) StatusResult(status abi.Status) runtime.Result {
	switch status {
	case abi.StatusOK:
		return runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	case abi.StatusCancelled:
		if r, ok := c.gaveUp(); ok {
			return r
		}
	}
	r := runtime.Result{Outcome: runtime.Retryable, Code: CodeStatus, Output: c.output}
	if status == abi.StatusPermanent {
		r.Outcome = runtime.Permanent
	}
	r.Error = fmt.Sprintf("the handler returned status %d", status)
	if c.failure != nil {
		c.failure.fill(&r)
	}
	return c.withGrant(r)
}

// withGrant makes the failure of a handler permanent if its last refused call lacked a
// grant and the handler failed because of that: the text of its error is that of the
// refusal, or it gave none. Another attempt would be refused as well.
func (c *Call) withGrant(r runtime.Result) runtime.Result {
	if c.ungranted == "" || r.Outcome != runtime.Retryable || r.Code != CodeStatus {
		return r
	}
	if c.failure != nil && c.failure.Text != "" && !strings.Contains(strings.ToLower(c.failure.Text), "granted") {
		return r
	}
	r.Outcome, r.Code, r.Error = runtime.Permanent, CodeNotGranted, oneline.First(c.ungranted)
	if !strings.Contains(c.ungranted, "`wheelwork module grant ") { // a server names the command itself
		r.Error += c.grantHint()
	}
	return r
}

// grantHint names the command that grants what the manifest of the module asks for; "":
// the module is not a version of a server.
func (c *Call) grantHint() string {
	t := c.Task
	if t.Module == "" || t.Version == "" {
		return ""
	}
	app := ""
	if t.App != "" && t.App != "default" {
		app = " --app " + t.App
	}
	return fmt.Sprintf(": if its manifest asks for it, the owner of the app grants it with `wheelwork module grant %s --requested %s%s`", t.Module, t.Version, app)
}

// gaveUp is the result of a handler that stopped after a cancel or near its deadline.
func (c *Call) gaveUp() (runtime.Result, bool) {
	switch c.Cancelled() {
	case abi.CancelRequested:
		return c.Result(errStopped), true
	case abi.CancelDeadlineNear:
		return c.Result(errDeadline), true
	}
	return runtime.Result{}, false
}

func (f *Failure) fill(r *runtime.Result) {
	r.Outcome = runtime.Retryable
	if f.Permanent {
		r.Outcome = runtime.Permanent
	}
	r.RetryAfter = f.RetryAfter
	if f.Code != "" {
		r.Code = f.Code
	}
	if f.Text != "" {
		r.Error = f.Text
	}
}

// engineStackOverflow is the engine's error at its own stack limit. It occurs when frames
// are larger than the rewriter estimated.
const engineStackOverflow = "stack overflow"

// ErrorResult classifies the error of a guest's call: the host ended it, it exited, or it
// trapped.
func (c *Call) ErrorResult(err error) runtime.Result {
	var exit *sys.ExitError
	switch {
	case c.cause != nil:
		r := c.Result(c.cause)
		if r.Code == CodeMisuse || r.Code == CodeCallDepth {
			r.Trace = c.trace(err)
		}
		return r
	case errors.As(err, &exit):
		return c.exitResult(exit.ExitCode())
	case oneline.First(err.Error()) == engineStackOverflow:
		return c.Result(errCallDepth)
	}
	return runtime.Result{
		Outcome: runtime.Retryable, Code: CodeTrap, Output: c.output,
		Error: "trap: " + strings.TrimPrefix(oneline.First(err.Error()), "wasm error: "),
		Trace: c.trace(err),
	}
}

// Result is the result when the host ended the guest.
func (c *Call) Result(cause error) runtime.Result {
	var bad misuse
	switch {
	case errors.Is(cause, errDeadline):
		return Failed(runtime.TimedOut, CodeDeadline, "%v", cause)
	case errors.Is(cause, errStopped):
		return Failed(runtime.Stopped, CodeStopped, "%v", cause)
	case errors.Is(cause, errOutputLimit):
		return Failed(runtime.Permanent, CodeOutputLimit, "the output exceeds its limit of %d bytes: write less or raise the limit", c.outputLimit)
	case errors.Is(cause, errFuel):
		return Failed(runtime.Permanent, CodeFuel, "%v of %d units: do less in one task, or raise the limit", cause, c.Task.Limits.Fuel)
	case errors.Is(cause, errCallDepth):
		return Failed(runtime.Retryable, CodeCallDepth, "trap: %v", cause)
	case errors.As(cause, &bad):
		return Failed(runtime.Retryable, CodeMisuse, "trap: %v", cause)
	case errors.As(cause, new(serviceError)):
		return Failed(runtime.HostError, CodeService, "%v", cause)
	}
	return Failed(runtime.HostError, CodeTrap, "%v", cause)
}

// exitResult classifies an exit code by the convention of sysexits: 75 is a temporary
// failure; 64-70 and 76-78 mean that the input or the program is wrong.
func (c *Call) exitResult(code uint32) runtime.Result {
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
	r.Code = CodeExit
	r.Error = fmt.Sprintf("exit code %d", r.ExitCode)
	c.log.Flush(runtime.LevelInfo)
	if said := oneline.Valid(string(c.log.exit.line)); said != "" {
		r.Error += ": " + said
	}
	return r
}

// trace returns the engine's error text after its first line, with code offsets replaced by
// source lines.
func (c *Call) trace(err error) string {
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
	return strings.ToValidUTF8(rest[:min(len(rest), MaxTrace)], "")
}

// placeLine matches a line of a trace with a code offset.
var placeLine = regexp.MustCompile(`\n\t\t0x([0-9a-f]+): ` + meter.PlaceName + `\b`)
