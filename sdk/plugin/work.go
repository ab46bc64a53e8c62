package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
)

// service is the gRPC service that the host calls.
type service struct {
	pluginv1.UnimplementedPluginServer
	cfg Config
}

func (s *service) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{
		Version: s.cfg.Version, Handlers: slices.Sorted(maps.Keys(s.cfg.Handlers)), Concurrency: uint32(s.cfg.Concurrency),
	}, nil
}

// Work runs tasks until the host closes its side of the stream, and then waits for their
// ends.
func (s *service) Work(stream grpc.BidiStreamingServer[pluginv1.ToPlugin, pluginv1.FromPlugin]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	w := &worker{cfg: &s.cfg, out: newOutbox(), cancels: map[uint64]context.CancelFunc{}}
	sent := make(chan error, 1)
	go func() { sent <- w.out.send(stream) }()
	for {
		m, err := stream.Recv()
		if err != nil {
			break
		}
		for _, t := range m.Tasks {
			w.start(ctx, t)
		}
		for _, c := range m.Cancels {
			w.stop(c.Id)
		}
	}
	w.running.Wait()
	cancel()
	w.out.close()
	return <-sent
}

// worker runs the tasks of one stream.
type worker struct {
	cfg     *Config
	out     *outbox
	running sync.WaitGroup

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
}

func (w *worker) start(ctx context.Context, m *pluginv1.Task) {
	fn := w.cfg.Handlers[m.Handler]
	if fn == nil {
		w.out.result(&pluginv1.Result{
			Id: m.Id, Outcome: pluginv1.Outcome_OUTCOME_PERMANENT, Code: "no_handler",
			Error: fmt.Sprintf("there is no handler %q", m.Handler),
		})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	if m.TimeoutMs > 0 {
		ctx = until{ctx, time.Now().Add(time.Duration(m.TimeoutMs) * time.Millisecond)}
	}
	w.mu.Lock()
	w.cancels[m.Id] = cancel
	w.mu.Unlock()
	t := &Task{
		Run: m.Run, App: m.App, Job: m.Job, Attempt: int(m.Attempt), MaxAttempts: int(m.MaxAttempts), PlannedAt: time.UnixMilli(m.PlannedMs),
		Covers: m.Covers, Part: int(m.Part), Parts: int(m.Parts), Handler: m.Handler, Input: m.Input, Args: m.Args, Env: m.Env,
		TraceParent: m.TraceParent, OutputLimit: m.OutputLimit, id: m.Id, out: w.out,
	}
	w.running.Go(func() {
		r := call(ctx, fn, t)
		w.stop(t.id)
		w.out.result(r)
	})
}

// stop cancels the context of a task.
func (w *worker) stop(id uint64) {
	w.mu.Lock()
	cancel := w.cancels[id]
	delete(w.cancels, id)
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

const (
	// Bounds one message to the host, whose limit is 16 MiB.
	maxMessageBytes = 4 << 20
	maxResults      = 256
	// maxHeld bounds the log lines that wait to be sent. Further lines are dropped and
	// counted, because a log must not block a handler.
	maxHeld = 8 << 20
	// maxLine is the length at which the host cuts a line too.
	maxLine = 16 << 10
)

// outbox collects messages for the host. While one message is being sent, new data goes
// into the next.
type outbox struct {
	kick chan struct{} // capacity 1

	mu      sync.Mutex
	results []*pluginv1.Result
	logs    []*pluginv1.Log
	held    int // bytes of log lines
	dropped int // number of lines without room
	latest  map[uint64]*pluginv1.Progress
	closed  bool
}

func newOutbox() *outbox {
	return &outbox{kick: make(chan struct{}, 1), latest: map[uint64]*pluginv1.Progress{}}
}

func (o *outbox) signal() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *outbox) result(r *pluginv1.Result) {
	o.mu.Lock()
	o.results = append(o.results, r)
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) progress(p *pluginv1.Progress) {
	p.Message = strings.ToValidUTF8(p.Message[:min(len(p.Message), 1<<10)], "\uFFFD")
	o.mu.Lock()
	o.latest[p.Id] = p
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) log(id uint64, level slog.Level, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		line = strings.ToValidUTF8(line[:min(len(line), maxLine)], "\uFFFD")
		if o.held+len(line) > maxHeld {
			o.dropped++
			continue
		}
		o.held += len(line)
		o.logs = append(o.logs, &pluginv1.Log{Id: id, Level: levelOf(level), Text: line})
	}
	o.signal()
}

func levelOf(l slog.Level) int32 {
	switch {
	case l < slog.LevelInfo:
		return 0
	case l < slog.LevelWarn:
		return 1
	case l < slog.LevelError:
		return 2
	}
	return 3
}

// close lets send return when everything is sent.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

// next builds a message; nil when there is none. Lines go before results, so that the log
// of a finished run is complete.
func (o *outbox) next() (m *pluginv1.FromPlugin, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m = &pluginv1.FromPlugin{}
	n, size := 0, 0
	for n < len(o.logs) && size < maxMessageBytes {
		size += len(o.logs[n].Text) + 16
		o.held -= len(o.logs[n].Text)
		n++
	}
	m.Logs = o.logs[:n:n]
	if o.logs = o.logs[n:]; len(o.logs) == 0 {
		o.logs = nil
	}
	if o.dropped > 0 && o.logs == nil {
		m.Logs = append(m.Logs, &pluginv1.Log{Level: 2, Text: fmt.Sprintf("%d log lines of tasks were dropped: they came faster than the host took them", o.dropped)})
		o.dropped = 0
	}
	for _, p := range o.latest {
		m.Progress = append(m.Progress, p)
	}
	clear(o.latest)
	if n = 0; o.logs == nil {
		for n < len(o.results) && n < maxResults && (n == 0 || size+len(o.results[n].Output) < maxMessageBytes) {
			size += len(o.results[n].Output) + len(o.results[n].Trace) + 64
			n++
		}
		m.Results = o.results[:n:n]
		if o.results = o.results[n:]; len(o.results) == 0 {
			o.results = nil
		}
	}
	if len(m.Logs) == 0 && len(m.Progress) == 0 && len(m.Results) == 0 {
		return nil, o.closed
	}
	return m, false
}

// send sends messages until the outbox is closed and empty.
func (o *outbox) send(stream grpc.ServerStreamingServer[pluginv1.FromPlugin]) error {
	for range o.kick {
		runtime.Gosched() // lets handlers finish that are about to: one message is cheaper than two
		for {
			m, closed := o.next()
			if closed {
				return nil
			}
			if m == nil {
				break
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
	return nil
}
