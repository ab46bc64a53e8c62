package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// execute runs one task to its result.
func (h *Host) execute(ctx context.Context, a *session.Attempt) *apiv1.TaskResult {
	ctx, span := h.span(ctx, a.Task)
	res := h.runTask(ctx, a)
	if res.Outcome != runtime.Succeeded {
		span.SetStatus(codes.Error, res.Error)
	}
	span.End()
	return &apiv1.TaskResult{
		Outcome: apiv1.Outcome(res.Outcome), Output: res.Output, Error: res.Error, Code: res.Code, Trace: res.Trace,
		DurationUs: res.Duration.Microseconds(), RetryAfterMs: res.RetryAfter.Milliseconds(),
	}
}

// span begins the span of an attempt in the trace that the run came with, and
// makes it the one that the handler is told of.
func (h *Host) span(ctx context.Context, m *apiv1.Task) (context.Context, trace.Span) {
	if m.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": m.TraceParent})
	}
	ctx, span := h.cfg.Tracer.Start(ctx, "run "+m.Job, trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("wheelwork.run.id", job.RunID(m.Run).String()), attribute.String("wheelwork.app", m.App),
			attribute.String("wheelwork.job", m.Job), attribute.Int("wheelwork.run.attempt", int(m.Attempt)),
			attribute.String("wheelwork.module", m.Module))
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		m.TraceParent = carrier["traceparent"]
	}
	return ctx, span
}

func (h *Host) runTask(ctx context.Context, a *session.Attempt) runtime.Result {
	m := a.Task
	// An engine that has the code of no module loaded runs such handlers itself.
	if m.Module == "" && job.IsExecutor(m.Handler) && !h.cfg.Engine.Loaded("") {
		return h.runOther(ctx, a)
	}
	if err := h.load(ctx, want{m.App, m.Digest, m.Trust}); err != nil {
		if ctx.Err() != nil {
			return runtime.Result{Outcome: runtime.Stopped, Error: "cancelled while its module was loaded", Code: "cancelled"}
		}
		code := "module"
		if errors.Is(err, errNotSigned) {
			code = "not_signed"
		}
		return runtime.Result{Outcome: runtime.HostError, Error: fmt.Sprintf("module %s: %v", cmp.Or(m.Module, "of "+m.Handler), err), Code: code}
	}
	t := taskOf(m)
	if name, _, err := job.ParseModule(m.Module); err == nil {
		t.Module = name
	}
	t.Grants = h.grants.of(m.Grants)
	res := h.cfg.Engine.Run(ctx, t, sink{a, h.cfg.Guests, &t})
	if g := h.cfg.Guests; g != nil {
		res.Error, res.Trace = string(g.Redact(&t, []byte(res.Error))), string(g.Redact(&t, []byte(res.Trace)))
		g.Done(&t)
	}
	return res
}

// taskOf is a task in the words of executors.
func taskOf(m *apiv1.Task) runtime.Task {
	t := runtime.Task{
		RunID: job.RunID(m.Run).String(), App: m.App, Job: m.Job, Attempt: int(m.Attempt), MaxAttempt: int(m.MaxAttempts),
		PlannedAt: time.UnixMilli(m.PlannedMs), Covers: m.Covers, Part: int(m.Part), Parts: int(m.Parts), Module: m.Module, Digest: m.Digest, Handler: m.Handler,
		Input: m.Input, Args: m.Args, Env: withRole(m.Env, m.Role), TraceParent: m.TraceParent, Role: m.Role,
	}
	if m.TimeoutMs > 0 {
		t.Deadline = time.Now().Add(time.Duration(m.TimeoutMs) * time.Millisecond)
	}
	return t
}

// sink takes what a handler says.
type sink struct {
	a      *session.Attempt
	guests Guests // nil: none
	of     *runtime.Task
}

func (s sink) Log(level runtime.Level, line []byte) {
	if s.guests != nil {
		line = s.guests.Redact(s.of, line)
	}
	s.a.Log(int32(level), line)
}

func (s sink) Progress(done, total int64, message string) {
	if s.guests != nil {
		message = string(s.guests.Redact(s.of, []byte(message)))
	}
	s.a.Progress(done, total, message)
}

// singleflight lets one caller do what several want. A caller whose context
// ends stops waiting; the work goes on for the others.
type singleflight struct {
	mu    sync.Mutex
	calls map[string]*call
}

type call struct {
	done chan struct{}
	err  error
}

func (s *singleflight) do(ctx context.Context, name string, f func(context.Context) error) error {
	s.mu.Lock()
	c := s.calls[name]
	if c == nil {
		c = &call{done: make(chan struct{})}
		if s.calls == nil {
			s.calls = map[string]*call{}
		}
		s.calls[name] = c
		go func() {
			c.err = f(context.WithoutCancel(ctx))
			s.mu.Lock()
			delete(s.calls, name)
			s.mu.Unlock()
			close(c.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
