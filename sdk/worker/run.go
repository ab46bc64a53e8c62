package worker

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
)

// outcome is the result of a function call.
type outcome struct {
	output []byte
	err    error
	code   string // reason when err is not the function's own; "" otherwise
	stack  []byte
	took   time.Duration
}

// call calls a function and passes its outcome to tell, even if the function panics or
// ends its goroutine.
func call(ctx context.Context, fn Func, t *Task, tell func(outcome)) {
	var o outcome
	start, returned := time.Now(), false
	defer func() { // runs also when the function ends the goroutine
		if v := recover(); v != nil {
			o = outcome{err: fmt.Errorf("panic: %v", v), code: "panic", stack: debug.Stack()}
			if e, ok := v.(error); ok {
				o.err = fmt.Errorf("panic: %w", e)
			}
		} else if !returned {
			o = outcome{err: errors.New("the function ended its goroutine with runtime.Goexit"), code: "goexit"}
		}
		o.took = time.Since(start)
		tell(o)
	}()
	o.output, o.err = fn(ctx, t)
	returned = true
}

// result converts an outcome. cause is the reason for which the context had ended by
// then; nil: it had not.
func (o outcome) result(cause error) *apiv1.TaskResult {
	r := &apiv1.TaskResult{Outcome: apiv1.Outcome_OUTCOME_RETRYABLE, Code: o.code, DurationUs: o.took.Microseconds()}
	if o.err == nil {
		if len(o.output) > maxOutput {
			r.Outcome, r.Code = apiv1.Outcome_OUTCOME_PERMANENT, "output_limit"
			r.Error = fmt.Sprintf("the output is %d bytes, the limit is %d: keep it elsewhere and return where", len(o.output), maxOutput)
			return r
		}
		r.Outcome, r.Output = apiv1.Outcome_OUTCOME_SUCCEEDED, o.output
		return r
	}
	r.Error, r.Trace = cut(o.err.Error(), maxError), cut(string(o.stack), maxTrace)
	if o.code != "" {
		return r
	}
	var e *Error
	if errors.As(o.err, &e) {
		r.Code = cut(e.Code, maxError)
		r.RetryAfterMs = max(e.RetryAfter.Milliseconds(), 0)
		if e.RetryAfter > 0 && r.RetryAfterMs == 0 {
			r.RetryAfterMs = 1
		}
	}
	switch {
	case e != nil && e.Permanent:
		r.Outcome = apiv1.Outcome_OUTCOME_PERMANENT
	case cause != nil:
		ended(r, cause)
	}
	return r
}

// ended sets the result of an attempt that failed because its context had ended.
func ended(r *apiv1.TaskResult, cause error) {
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		r.Outcome, r.Code = apiv1.Outcome_OUTCOME_TIMED_OUT, "deadline"
	case errors.Is(cause, session.ErrDrained):
		r.Outcome, r.Code = apiv1.Outcome_OUTCOME_STOPPED, "drained"
	default:
		r.Outcome, r.Code = apiv1.Outcome_OUTCOME_STOPPED, "cancelled"
	}
}

func cut(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "\uFFFD") }

// run executes an attempt.
func (w *worker) run(ctx context.Context, a *session.Attempt) *apiv1.TaskResult {
	m := a.Task
	name, native := strings.CutPrefix(m.Handler, prefix)
	fn := w.funcs[name]
	if !native || m.Module != "" || fn == nil {
		return &apiv1.TaskResult{
			Outcome: apiv1.Outcome_OUTCOME_HOST_ERROR, Code: "handler",
			Error: fmt.Sprintf("this worker has no function for the handler %q of module %q: it has %s", m.Handler, m.Module, strings.Join(w.names, ", ")),
		}
	}
	if w.tracer == nil {
		return w.execute(session.ContextOf(ctx, m), a, fn, name)
	}
	ctx, span := session.StartSpan(ctx, w.tracer, m)
	r := w.execute(ctx, a, fn, name)
	if r == nil {
		session.EndSpan(span, apiv1.Outcome_OUTCOME_STOPPED, "", "the function was given up")
	} else {
		session.EndSpan(span, r.Outcome, r.Code, r.Error)
	}
	return r
}

// execute calls the function of an attempt. It returns nil if it has given the function
// up: the attempt has its result then.
func (w *worker) execute(ctx context.Context, a *session.Attempt, fn Func, name string) *apiv1.TaskResult {
	m := a.Task
	t := newTask(a, name)
	if !t.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, t.Deadline)
		defer cancel()
	}
	start := time.Now()
	done := make(chan *apiv1.TaskResult, 1)
	go call(ctx, fn, t, func(o outcome) { done <- o.result(context.Cause(ctx)) })
	defer t.end()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	late := time.NewTimer(w.opt.Patience)
	defer late.Stop()
	select {
	case r := <-done:
		return r
	case <-late.C:
	}
	t.end()
	r := &apiv1.TaskResult{
		Error:      fmt.Sprintf("the function was given up: it did not return for %s after its context had ended (%v), and may still be running", w.opt.Patience, context.Cause(ctx)),
		DurationUs: time.Since(start).Microseconds(),
	}
	ended(r, context.Cause(ctx))
	w.opt.Logger.Error("a function ignores its context: it occupies its execution slot until it returns", "handler", m.Handler, "job", m.Job, "run", t.Run)
	a.Settle(r)
	select {
	case <-done:
		w.opt.Logger.Info("an abandoned function has returned", "handler", m.Handler, "job", m.Job, "run", t.Run, "after", time.Since(start))
	case <-a.Left():
	}
	return nil
}

// concurrency returns the default of Options.Concurrency.
func concurrency() int { return max(goruntime.GOMAXPROCS(0), 4) }

// sorted returns the names of functions for messages.
func sorted(funcs map[string]Func) []string {
	var names []string
	for name := range funcs {
		names = append(names, prefix+name)
	}
	slices.Sort(names)
	return names
}
