package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

const (
	defaultOutputBytes = 1 << 20
	defaultLogBytes    = 1 << 20

	// Bounds of one message to the plugin: the number of tasks, and the bytes of input
	// after which no further task is added.
	maxTasks     = 128
	maxTaskBytes = 64 << 10

	maxTrace = 4 << 10
)

// stream carries the tasks of one instance. While one message is being sent, new tasks
// and cancellations collect for the next one. This makes a busy stream cheap, and an idle
// stream sends at once.
type stream struct {
	i      *instance
	rpc    grpc.BidiStreamingClient[pluginv1.ToPlugin, pluginv1.FromPlugin]
	cancel context.CancelFunc
	kick   chan struct{} // capacity 1: wakes the sender
	done   chan struct{} // closed when nothing more will be received
	err    error         // reason for the end; set before done is closed
	wg     sync.WaitGroup

	mu      sync.Mutex
	last    uint64 // last task id
	calls   map[uint64]*call
	tasks   []*pluginv1.Task
	cancels []*pluginv1.Cancel
	closed  bool // true: no call may begin
}

func openStream(service pluginv1.PluginClient, i *instance) (*stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	rpc, err := service.Work(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{i: i, rpc: rpc, cancel: cancel, kick: make(chan struct{}, 1), done: make(chan struct{}), calls: map[uint64]*call{}}
	s.wg.Go(s.send)
	s.wg.Go(s.receive)
	return s, nil
}

// stop refuses further calls, and closes the sending direction of the stream.
func (s *stream) stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
}

// join waits for the end of the stream.
func (s *stream) join() {
	s.cancel()
	s.wg.Wait()
}

func (s *stream) signal() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// errGone reports that the process ended before the task was sent.
var errGone = errors.New("it has just ended")

// begin adds a task to the next message.
func (s *stream) begin(c *call, t *pluginv1.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errGone
	}
	s.last++
	t.Id, c.id = s.last, s.last
	s.calls[c.id] = c
	s.tasks = append(s.tasks, t)
	s.signal()
	return nil
}

// ask adds a cancellation of a task to the next message.
func (s *stream) ask(id uint64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels = append(s.cancels, &pluginv1.Cancel{Id: id, Reason: reason})
	s.signal()
}

// next builds the next message, or returns nil if there is nothing to send.
func (s *stream) next() *pluginv1.ToPlugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for n < len(s.tasks) && n < maxTasks && size < maxTaskBytes {
		size += len(s.tasks[n].Input)
		n++
	}
	// A cancellation must not overtake its task, so cancellations wait until no task is
	// left.
	m := &pluginv1.ToPlugin{Tasks: s.tasks[:n:n]}
	if s.tasks = s.tasks[n:]; len(s.tasks) == 0 {
		s.tasks = nil
		m.Cancels, s.cancels = s.cancels, nil
	}
	if len(m.Tasks) == 0 && len(m.Cancels) == 0 {
		return nil
	}
	return m
}

func (s *stream) send() {
	for {
		select {
		case <-s.kick:
		case <-s.done:
			return
		}
		goruntime.Gosched() // let other goroutines add their tasks first: one message is cheaper than two
		for m := s.next(); m != nil; m = s.next() {
			if s.rpc.Send(m) != nil { // receive learns the reason
				return
			}
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			_ = s.rpc.CloseSend()
			return
		}
	}
}

// receive handles the messages of the plugin until the stream ends. Then it fails the
// calls that are left.
func (s *stream) receive() {
	var err error
	for {
		var m *pluginv1.FromPlugin
		if m, err = s.rpc.Recv(); err != nil {
			break
		}
		s.take(m)
	}
	// The error of the calls is how the program ended. The program must have ended
	// before, because the server may retry the tasks, and their handlers must not run
	// twice.
	s.mu.Lock()
	asked := s.closed
	s.closed = true
	s.mu.Unlock()
	if asked {
		err = errClosing
	} else {
		err = s.i.autopsy(err)
	}
	s.err = err
	s.i.p.leave(s.i, err)
	s.mu.Lock()
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	for _, c := range calls {
		c.fail(err)
	}
	close(s.done)
}

// autopsy returns the reason for the end of an instance whose stream broke. It kills the
// program if it still runs.
func (i *instance) autopsy(broken error) error {
	// A broken connection usually means that the program is ending. Waiting gives its
	// exit status.
	var exits time.Duration
	if status.Code(broken) == codes.Unavailable {
		exits = time.Second
	}
	if !i.exitsWithin(exits) {
		i.kill(fmt.Errorf("it ended its stream: %s", process.OneLine(broken.Error())))
		<-i.child.Done()
	}
	i.stdout.drain()
	i.stderr.drain()
	return i.ended()
}

func (i *instance) exitsWithin(d time.Duration) bool {
	if i.child.State() != nil {
		return true
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-i.child.Done():
		return true
	case <-late.C:
		return false
	}
}

// take handles one message. It ignores progress and results for tasks that have ended or
// never existed, and writes their log lines to the log of the host. The ids of another
// plugin's tasks have no meaning here.
func (s *stream) take(m *pluginv1.FromPlugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range m.Logs {
		if c := s.calls[l.Id]; c != nil {
			c.logText(runtime.Level(min(max(l.Level, 0), int32(runtime.LevelError))), l.Text)
		} else {
			s.i.p.receive(s.i.child.PID(), slogLevels[min(max(l.Level, 0), int32(runtime.LevelError))], process.OneLine(l.Text))
		}
	}
	for _, p := range m.Progress {
		if c := s.calls[p.Id]; c != nil {
			c.progressed(p)
		}
	}
	for _, r := range m.Results {
		if c := s.calls[r.Id]; c != nil {
			delete(s.calls, r.Id)
			c.end(r)
		}
	}
}

var slogLevels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// call is a task that was sent. It buffers the log and the progress until the goroutine
// that called Run takes them, because only that goroutine may call the sink.
type call struct {
	id     uint64
	notify chan struct{} // capacity 1

	mu       sync.Mutex
	lines    []line
	room     int64 // bytes of log lines that are still accepted: one more than the budget
	progress *pluginv1.Progress
	result   *pluginv1.Result
	err      error // reason why there will be no result
}

type line struct {
	level runtime.Level
	text  []byte
}

func newCall(logBytes int64) *call {
	return &call{notify: make(chan struct{}, 1), room: cmp.Or(logBytes, defaultLogBytes) + 1}
}

func (c *call) signal() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// log receives a line. It accepts one line beyond the budget, which makes the budget
// report the limit.
func (c *call) log(level runtime.Level, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room <= 0 {
		return
	}
	c.room -= int64(len(text)) + 1
	c.lines = append(c.lines, line{level, append([]byte(nil), text...)})
	c.signal()
}

func (c *call) logText(level runtime.Level, text string) {
	lines := process.Lines{Emit: func(b []byte) { c.log(level, b) }}
	_, _ = lines.Write([]byte(text))
	lines.Flush()
}

func (c *call) progressed(p *pluginv1.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = p
	c.signal()
}

func (c *call) end(r *pluginv1.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result = r
	c.signal()
}

func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.signal()
}

// flush passes the buffered lines and progress to the sink. It reports whether the task
// has ended.
func (c *call) flush(sink runtime.Sink, budget *process.Budget) (ended bool) {
	c.mu.Lock()
	lines, progress := c.lines, c.progress
	c.lines, c.progress = nil, nil
	ended = c.result != nil || c.err != nil
	c.mu.Unlock()
	for _, l := range lines {
		budget.Log(sink, l.level, l.text)
	}
	if progress != nil {
		sink.Progress(progress.Done, progress.Total, oneLine(progress.Message))
	}
	return ended
}

// run sends a task and waits for its end. Its only error is errGone, which means that the
// task was not sent.
func (i *instance) run(ctx context.Context, t *runtime.Task, handler string, sink runtime.Sink) (runtime.Result, error) {
	c := newCall(t.Limits.LogBytes)
	if i.limit == 1 {
		i.owner.Store(c)
	}
	limit := cmp.Or(t.Limits.OutputBytes, defaultOutputBytes)
	if err := i.stream.begin(c, message(t, handler, limit)); err != nil {
		i.owner.Store(nil)
		return runtime.Result{}, err
	}
	budget := process.NewBudget(t.Limits.LogBytes)
	asked := i.await(ctx, t, c, sink, &budget)
	if i.limit == 1 {
		if c.err == nil {
			i.catchUp()
		}
		i.owner.Store(nil)
		c.flush(sink, &budget)
	}
	if c.err != nil {
		return crashed(t.Module, c.err, asked), nil
	}
	return verdict(c.result, limit, asked), nil
}

// await waits for the end of a task. When the deadline passes or ctx is done, it asks the
// plugin to end the task, and kills the plugin after Grace. It returns the reason for the
// request: 0 for none, Stopped or TimedOut.
func (i *instance) await(ctx context.Context, t *runtime.Task, c *call, sink runtime.Sink, budget *process.Budget) (asked runtime.Outcome) {
	stop := ctx.Done()
	var overdue, patience <-chan time.Time
	if !t.Deadline.IsZero() {
		deadline := time.NewTimer(time.Until(t.Deadline))
		defer deadline.Stop()
		overdue = deadline.C
	}
	ask := func(o runtime.Outcome, reason string) {
		asked, stop, overdue = o, nil, nil
		i.stream.ask(c.id, reason)
		patience = time.After(i.p.spec.Grace)
	}
	for {
		select {
		case <-c.notify:
			if c.flush(sink, budget) {
				return asked
			}
		case <-stop:
			ask(runtime.Stopped, "cancelled")
		case <-overdue:
			ask(runtime.TimedOut, "deadline")
		case <-patience:
			// The end of the process fails this call and the others of the instance.
			i.kill(fmt.Errorf("it was killed: run %s of job %s did not end within %s after it was asked to", t.RunID, t.Job, i.p.spec.Grace))
		}
	}
}

// message converts a task to a message for the plugin.
func message(t *runtime.Task, handler string, outputLimit int64) *pluginv1.Task {
	m := &pluginv1.Task{
		Run: t.RunID, App: t.App, Job: t.Job, Attempt: int32(t.Attempt), MaxAttempts: int32(t.MaxAttempt), PlannedMs: t.PlannedAt.UnixMilli(),
		Handler: handler, Input: t.Input, Args: t.Args, Env: t.Env, TraceParent: t.TraceParent,
		Part: int32(t.Part), Parts: int32(t.Parts), Covers: t.Covers, OutputLimit: outputLimit,
	}
	if !t.Deadline.IsZero() {
		m.TimeoutMs = max(time.Until(t.Deadline).Milliseconds(), 1)
	}
	return m
}

// crashed returns the result of a task whose process ended first.
func crashed(name string, why error, asked runtime.Outcome) runtime.Result {
	switch asked {
	case runtime.Stopped, runtime.TimedOut:
		return failed(asked, codeKilled, "plugin %s: %v", name, why)
	}
	return failed(runtime.Retryable, codeCrash, "plugin %s ended while it ran this: %v", name, why)
}

// verdict returns the result of a task for the answer of the plugin.
func verdict(m *pluginv1.Result, limit int64, asked runtime.Outcome) runtime.Result {
	r := runtime.Result{
		Output: m.Output, Error: oneLine(m.Error), Code: oneLine(m.Code), Trace: strings.ToValidUTF8(m.Trace[:min(len(m.Trace), maxTrace)], ""),
		RetryAfter: time.Duration(max(min(m.RetryAfterMs, maxRetryAfterMs), 0)) * time.Millisecond,
		Duration:   time.Duration(max(min(m.DurationUs, maxDurationUs), 0)) * time.Microsecond,
	}
	switch {
	case m.Outcome == pluginv1.Outcome_OUTCOME_SUCCEEDED && int64(len(m.Output)) > limit:
		d := r.Duration
		r = failed(runtime.Permanent, codeOutputLimit, "the output has %d bytes, its limit is %d: return less or raise the limit", len(m.Output), limit)
		r.Duration = d
		return r
	case m.Outcome == pluginv1.Outcome_OUTCOME_SUCCEEDED:
		// Also after a request to end: the work was already complete.
		return runtime.Result{Outcome: runtime.Succeeded, Output: m.Output, Duration: r.Duration}
	case asked == runtime.TimedOut:
		r.Outcome, r.Code, r.Error = asked, codeDeadline, "the timeout passed"
	case asked == runtime.Stopped:
		r.Outcome, r.Code, r.Error = asked, codeStopped, "cancelled"
	case m.Outcome == pluginv1.Outcome_OUTCOME_PERMANENT:
		r.Outcome = runtime.Permanent
	default:
		r.Outcome = runtime.Retryable
	}
	if int64(len(r.Output)) > limit {
		r.Output = nil
	}
	r.Code = cmp.Or(r.Code, codeStatus)
	r.Error = cmp.Or(r.Error, "the handler failed and did not say why")
	return r
}

// Upper bounds of numbers from a plugin, which prevent overflow in sums.
const (
	maxRetryAfterMs = int64(30 * 24 * time.Hour / time.Millisecond)
	maxDurationUs   = int64(365 * 24 * time.Hour / time.Microsecond)
)

// oneLine converts a text from a plugin to one line of valid UTF-8.
func oneLine(s string) string {
	const longest = 1 << 10
	s = strings.ToValidUTF8(s[:min(len(s), longest)], "\uFFFD")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, s))
}
