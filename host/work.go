package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
)

const (
	// A worker takes several tasks at once while handlers are this quick: waking
	// it for each costs more than the handler.
	quick     = 100 * time.Microsecond
	quickTake = 16
)

// work runs tasks until the host is drained.
func (h *Host) work(ctx context.Context) {
	var batch []*task
	for {
		if batch = h.next(batch[:0]); len(batch) == 0 {
			return
		}
		for _, t := range batch {
			h.execute(ctx, t)
		}
	}
}

// next waits for tasks and marks them running.
func (h *Host) next(batch []*task) []*task {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) == 0 && !h.closed {
		h.ready.Wait()
	}
	n := 1
	if h.mean > 0 && h.mean < quick {
		// Leave a share to the workers that are idle.
		n = min(quickTake, max(len(h.queue)/h.cfg.Slots, 1))
	}
	n = min(n, len(h.queue))
	batch = append(batch, h.queue[:n]...)
	if h.queue = h.queue[n:]; len(h.queue) == 0 {
		h.queue = nil
	}
	for _, t := range batch {
		t.state = running
	}
	return batch
}

// execute runs one task to its result.
func (h *Host) execute(ctx context.Context, t *task) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	if t.state != running { // stopped while it stood in a worker's batch
		h.mu.Unlock()
		return
	}
	m := t.msg
	t.cancel = cancel
	h.mu.Unlock()

	start := time.Now()
	ctx, span := h.span(ctx, m)
	res := h.runTask(ctx, m)
	if res.Outcome != runtime.Succeeded {
		span.SetStatus(codes.Error, res.Error)
	}
	span.End()
	h.mu.Lock()
	defer h.mu.Unlock()
	took := min(res.Duration, time.Second) // one long task says little of the others
	if h.mean == 0 {
		h.mean = took
	}
	h.mean += (took - h.mean) / 16
	h.settleLocked(t, &apiv1.TaskResult{
		Outcome: apiv1.Outcome(res.Outcome), Output: res.Output, Error: res.Error, Code: res.Code, Trace: res.Trace,
		StartedMs: start.UnixMilli(), DurationUs: res.Duration.Microseconds(), RetryAfterMs: res.RetryAfter.Milliseconds(),
	})
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

func (h *Host) runTask(ctx context.Context, m *apiv1.Task) runtime.Result {
	if err := h.load(ctx, m.Digest); err != nil {
		if ctx.Err() != nil {
			return runtime.Result{Outcome: runtime.Stopped, Error: "cancelled while its module was loaded", Code: "cancelled"}
		}
		return runtime.Result{Outcome: runtime.HostError, Error: fmt.Sprintf("module %s: %v", m.Module, err), Code: "module"}
	}
	t := runtime.Task{
		RunID: job.RunID(m.Run).String(), App: m.App, Job: m.Job, Attempt: int(m.Attempt), MaxAttempt: int(m.MaxAttempts),
		PlannedAt: time.UnixMilli(m.PlannedMs), Covers: m.Covers, Part: int(m.Part), Parts: int(m.Parts), Module: m.Module, Digest: m.Digest, Handler: m.Handler,
		Input: m.Input, Args: m.Args, Env: m.Env, TraceParent: m.TraceParent,
	}
	if name, _, err := job.ParseModule(m.Module); err == nil {
		t.Module = name
	}
	if m.TimeoutMs > 0 {
		t.Deadline = time.Now().Add(time.Duration(m.TimeoutMs) * time.Millisecond)
	}
	return h.cfg.Engine.Run(ctx, t, &sink{h: h, task: m})
}

// load makes a module ready: from the cache, or from the server.
func (h *Host) load(ctx context.Context, digest string) error {
	if h.cfg.Engine.Loaded(digest) {
		return nil
	}
	return h.fetch.do(ctx, digest, func(ctx context.Context) error {
		code, err := h.cfg.Modules.Get(digest)
		if err != nil {
			if code, err = h.download(ctx, digest); err != nil {
				return err
			}
			if _, err := h.cfg.Modules.Put(code); err != nil {
				h.cfg.Logger.Warn("a module could not be kept", "digest", digest, "error", err)
			}
		}
		err = h.cfg.Engine.Load(ctx, digest, code)
		var needs *runtime.NeedsError
		if !errors.As(err, &needs) || needs.Digest == digest {
			return err
		}
		// A script: its interpreter is a module like any other, which needs none.
		if err := h.load(ctx, needs.Digest); err != nil {
			return fmt.Errorf("its interpreter: %w", err)
		}
		return h.cfg.Engine.Load(ctx, digest, code)
	})
}

func (h *Host) download(ctx context.Context, digest string) ([]byte, error) {
	h.mu.Lock()
	client := h.client
	h.mu.Unlock()
	if client == nil {
		return nil, errors.New("no server is connected to fetch it from")
	}
	stream, err := client.FetchModule(ctx, &apiv1.FetchModuleRequest{Digest: digest})
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	var code []byte
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
		if code = append(code, chunk.Data...); len(code) > modules.MaxBytes {
			return nil, fmt.Errorf("fetch: more than %d bytes came", modules.MaxBytes)
		}
	}
	if got := modules.Digest(code); got != digest {
		return nil, fmt.Errorf("fetch: the server sent %s", got)
	}
	return code, nil
}

// sink takes what a handler says.
type sink struct {
	h    *Host
	task *apiv1.Task
}

func (s *sink) Log(level runtime.Level, line []byte) { s.h.out.log(s.task, level, line) }

func (s *sink) Progress(done, total int64, message string) {
	s.h.out.progress(s.task, done, total, message)
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
