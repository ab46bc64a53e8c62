package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// maxReason bounds a service's error in the log, in bytes.
const maxReason = 300

// serviceContext returns the context of all service calls of a task. Response bodies are
// read in it long after the call that sent the request.
func (c *Call) serviceContext() context.Context {
	if c.Uses.ctx == nil {
		if c.deadline == never {
			c.Uses.ctx, c.Uses.cancel = context.WithCancel(c.ctx)
		} else {
			c.Uses.ctx, c.Uses.cancel = context.WithDeadline(c.ctx, c.deadline.time())
		}
	}
	return c.Uses.ctx
}

// Ask calls a service for the guest, which waits without a slot, and converts the service's
// error to an error number. The arguments of a service are never views of the guest's
// memory.
func (c *Call) Ask(name string, f func(ctx context.Context, s runtime.Services) error) abi.Errno {
	if c.host.Services == nil {
		return c.Refused(name, runtime.ErrNoService)
	}
	if c.Uses.calls++; c.Uses.calls > orDefault(c.Task.Limits.Calls, defaultCalls) {
		return abi.ErrnoQuota
	}
	c.progress.flush(c.Look(), false)
	ctx := c.serviceContext()
	c.ReleaseSlot()
	err := guarded(func() error { return f(ctx, c.host.Services) })
	if err := c.acquireSlot(); err != nil {
		c.end(err)
	}
	c.sliceStart = c.Look()
	c.check(c.seen)
	var broken serviceError
	if errors.As(err, &broken) {
		c.end(broken)
	}
	return c.Refused(name, err)
}

// serviceError is a panic in the host's code, for which the guest is not responsible.
type serviceError struct{ text string }

func (e serviceError) Error() string { return e.text }

func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = serviceError{fmt.Sprintf("a service of the host failed: %v", r)}
		}
	}()
	return f()
}

// Refused returns the number of an error, and logs errors whose number says too little to
// the run's log.
func (c *Call) Refused(name string, err error) abi.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, runtime.ErrNoEntry):
		return abi.ErrnoNoEntry
	case errors.Is(err, runtime.ErrConflict):
		return abi.ErrnoConflict
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.ErrnoCancelled
	}
	text := oneline.Valid(err.Error())
	c.ungranted = ""
	if errors.Is(err, runtime.ErrNotGranted) {
		c.ungranted = name + ": " + text
	}
	c.log.emit(runtime.LevelWarn, []byte(name+": "+strings.ToValidUTF8(text[:min(len(text), maxReason)], "")))
	c.pace()
	switch {
	case errors.Is(err, runtime.ErrNotGranted):
		return abi.ErrnoNotGranted
	case errors.Is(err, runtime.ErrInvalid):
		return abi.ErrnoInvalid
	case errors.Is(err, runtime.ErrTooLarge):
		return abi.ErrnoOverflow
	case errors.Is(err, runtime.ErrUnavailable):
		return abi.ErrnoAgain
	case errors.Is(err, runtime.ErrNoService):
		return abi.ErrnoNoSys
	}
	return abi.ErrnoIO
}
