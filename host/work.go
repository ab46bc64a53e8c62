package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/internal/pool"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// execute runs one task and returns its result.
func (h *Host) execute(ctx context.Context, a *session.Attempt) *apiv1.TaskResult {
	ctx, span := h.span(ctx, a.Task)
	res := h.runTask(ctx, a)
	session.EndSpan(span, apiv1.Outcome(res.Outcome), res.Code, res.Error)
	return message(res)
}

func message(res runtime.Result) *apiv1.TaskResult {
	r := codec.NewResult()
	r.Outcome, r.Output, r.Error, r.Code, r.Trace = apiv1.Outcome(res.Outcome), res.Output, res.Error, res.Code, res.Trace
	r.DurationUs, r.RetryAfterMs = res.Duration.Microseconds(), res.RetryAfter.Milliseconds()
	return r
}

// together reports whether two tasks may go to the engine in one call. The engine itself
// checks that their grants and limits are equal.
func (h *Host) together(a, b *apiv1.Task) bool {
	return a.Digest != "" && a.Digest == b.Digest && a.App == b.App && a.Handler == b.Handler && a.Trust == b.Trust &&
		h.batches.Batches(a.Digest, a.Handler)
}

// executeBatch runs several tasks in one call of the engine.
func (h *Host) executeBatch(batch []*session.Batched) {
	items := make([]*runtime.Item, 0, len(batch))
	spans := make([]trace.Span, len(batch))
	of := make([]int, 0, len(batch)) // the index in batch of each item
	for i, b := range batch {
		var ctx context.Context
		ctx, spans[i] = h.span(b.Ctx, b.Attempt.Task)
		item := &runtime.Item{Ctx: ctx, Timeout: timeoutOf(b.Attempt.Task)}
		if refused := h.prepare(ctx, b.Attempt, &item.Task); refused != nil {
			b.Result = message(*refused)
			continue
		}
		item.Sink = sink{b.Attempt, h.cfg.Guests, &item.Task}
		items, of = append(items, item), append(of, i)
	}
	h.batches.RunBatch(items)
	for k, item := range items {
		res := h.redacted(&item.Task, item.Result)
		if unloaded(res) {
			res = h.runTask(item.Ctx, batch[of[k]].Attempt)
		}
		batch[of[k]].Result = message(res)
	}
	for i, span := range spans {
		r := batch[i].Result
		session.EndSpan(span, r.Outcome, r.Code, r.Error)
	}
}

// span starts the span of an attempt in the trace of its run, and gives the handler that
// span as its parent.
func (h *Host) span(ctx context.Context, m *apiv1.Task) (context.Context, trace.Span) {
	if m.TraceParent == "" && h.untraced {
		return ctx, noop.Span{}
	}
	return session.StartSpan(ctx, h.cfg.Tracer, m)
}

func (h *Host) runTask(ctx context.Context, a *session.Attempt) runtime.Result {
	m := a.Task
	// An engine for which Loaded("") is true executes handlers outside modules itself.
	if m.Module == "" && job.IsExecutor(m.Handler) && !h.cfg.Engine.Loaded("") {
		return h.runOther(ctx, a)
	}
	x := executions.Get()
	res := h.runLoaded(ctx, a, x)
	*x = execution{}
	executions.Release(x)
	return res
}

// execution holds the arguments of one call of the engine. The engine keeps no reference
// to them, so they are pooled: an allocation for each run would be garbage
// (BenchmarkPool in internal/pool).
type execution struct {
	task runtime.Task
	sink sink
}

var executions pool.Pool[execution]

// runLoaded loads the module of a task and runs the task in the engine.
func (h *Host) runLoaded(ctx context.Context, a *session.Attempt, x *execution) runtime.Result {
	for tries := 0; ; tries++ {
		if refused := h.prepare(ctx, a, &x.task); refused != nil {
			return *refused
		}
		x.sink = sink{a, h.cfg.Guests, &x.task}
		res := h.cfg.Engine.Run(ctx, x.task, &x.sink)
		if unloaded(res) && tries < maxReloads {
			continue
		}
		return h.redacted(&x.task, res)
	}
}

// prepare loads the module of a task and converts the task for the engine. It returns a
// result if the handler cannot run.
func (h *Host) prepare(ctx context.Context, a *session.Attempt, t *runtime.Task) (refused *runtime.Result) {
	m := a.Task
	waits := m.Digest != "" && !h.cfg.Engine.Loaded(m.Digest)
	if waits {
		a.Prepare()
	}
	if err := h.load(ctx, want{m.App, m.Digest, m.Trust}); err != nil {
		if ctx.Err() != nil {
			return &runtime.Result{Outcome: runtime.Stopped, Error: "cancelled while its module was loaded", Code: "cancelled"}
		}
		code := "module"
		if errors.Is(err, errNotSigned) {
			code = "not_signed"
		}
		return &runtime.Result{Outcome: runtime.HostError, Error: fmt.Sprintf("module %s: %v", cmp.Or(m.Module, "of "+m.Handler), err), Code: code}
	}
	if waits {
		if r := a.Start(); r != nil {
			return &runtime.Result{Outcome: runtime.Stopped, Error: r.Error, Code: r.Code}
		}
	}
	*t = taskOf(m)
	if name, version, err := job.ParseModule(m.Module); err == nil {
		t.Module, t.Version = name, version
	}
	t.Grants = h.grants.of(m.Grants)
	return nil
}

// redacted removes the secrets that the task has received from the texts of its result,
// and ends the task's state in the services. It does not redact the output.
func (h *Host) redacted(t *runtime.Task, res runtime.Result) runtime.Result {
	if g := h.cfg.Guests; g != nil {
		for _, said := range []*string{&res.Error, &res.Trace, &res.Code} {
			*said = string(g.Redact(t, []byte(*said)))
		}
		g.Done(t)
	}
	return res
}

// taskOf converts a task for executors.
func taskOf(m *apiv1.Task) runtime.Task {
	t := runtime.Task{
		RunID: job.RunID(m.Run).String(), App: m.App, Job: m.Job, Attempt: int(m.Attempt), MaxAttempt: int(m.MaxAttempts),
		PlannedAt: time.UnixMilli(m.PlannedMs), Covers: m.Covers, Part: int(m.Part), Parts: int(m.Parts), Module: m.Module, Digest: m.Digest, Handler: m.Handler,
		Input: m.Input, Args: m.Args, Env: withRole(m.Env, m.Role), TraceParent: m.TraceParent, TraceState: m.GetTraceState(), Role: m.Role,
		Limits: runtime.Limits{MemoryBytes: max(m.MemoryBytes, 0), Fuel: max(m.Fuel, 0)},
	}
	if d := timeoutOf(m); d > 0 {
		t.Deadline = time.Now().Add(d)
	}
	return t
}

// timeoutOf returns how long a task may take from its start; 0: without a limit.
func timeoutOf(m *apiv1.Task) time.Duration { return time.Duration(m.TimeoutMs) * time.Millisecond }

// sink receives the log lines and the progress of a handler.
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

// Sleep implements [runtime.Sleeper].
func (s sink) Sleep() bool { return s.a.Sleep() }

// Wake implements [runtime.Sleeper].
func (s sink) Wake(ctx context.Context) { s.a.Wake(ctx) }

// singleflight merges concurrent calls with the same name into one. A caller whose
// context ends stops waiting, and the call continues for the others.
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
