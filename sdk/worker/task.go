package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/host/session"
)

// Task is one attempt of one run. Its fields are read-only. Its methods may be called
// from any goroutine and have no effect once the function has returned.
//
// A test may make a task by hand, &worker.Task{Input: …}, and call a function with it.
// What the function reports is then dropped, unless [Record] keeps it.
type Task struct {
	Run         string // the id, the same in all attempts
	App         string
	Job         string
	Handler     string // without "native:"
	Attempt     int    // 1 for the first attempt
	MaxAttempts int    // number of the last attempt that the retry policy allows
	PlannedAt   time.Time
	Covers      int64     // number of missed planned times that this run covers in addition to its own
	Part        int       // number of this part of a fan-out, from 0
	Parts       int       // number of parts of the fan-out; 0: the run is not a part
	Deadline    time.Time // of the context; zero: none
	TraceParent string    // W3C trace context, "" when the run is not traced; the context has it too
	TraceState  string    // the tracestate that goes with it

	Input []byte
	Args  []string
	Env   map[string]string

	to     reporter // nil: reports are dropped
	mu     sync.Mutex
	ended  bool
	logged int // bytes
	full   bool
}

// reporter receives the reports of one attempt, one at a time. Log must not keep line.
type reporter interface {
	Log(level int32, line []byte) // 0 debug, 1 info, 2 warn, 3 error
	Progress(done, total int64, message string)
}

// Bounds of the reports of one attempt, the same as for modules.
const (
	maxOutput = 1 << 20
	maxLog    = 1 << 20
	maxLine   = 16 << 10
	maxError  = 16 << 10
	maxTrace  = 16 << 10
)

func newTask(a *session.Attempt, name string) *Task {
	m := a.Task
	t := &Task{
		Run: session.RunText(m.Run), App: m.App, Job: m.Job, Handler: name,
		Attempt: int(m.Attempt), MaxAttempts: int(m.MaxAttempts), PlannedAt: time.UnixMilli(m.PlannedMs), Covers: m.Covers,
		Part: int(m.Part), Parts: int(m.Parts), TraceParent: m.TraceParent, TraceState: m.GetTraceState(),
		Input: m.Input, Args: m.Args, Env: m.Env, to: a,
	}
	if m.TimeoutMs > 0 {
		t.Deadline = time.Now().Add(time.Duration(m.TimeoutMs) * time.Millisecond)
	}
	return t
}

// Progress reports the progress of the function; the run shows the latest report. total 0
// means unknown.
func (t *Task) Progress(done, total int64, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.to != nil {
		t.to.Progress(done, total, message[:min(len(message), maxLine)])
	}
}

// Logf writes to the run's log.
func (t *Task) Logf(format string, args ...any) {
	t.write(slog.LevelInfo, fmt.Appendf(nil, format, args...))
}

// Log returns a logger that writes to the run's log.
func (t *Task) Log() *slog.Logger { return slog.New(t.LogHandler()) }

// LogHandler returns a handler for the run's log, for a logger of the program or for a
// wrapper.
func (t *Task) LogHandler() slog.Handler { return logHandler{task: t} }

// write splits a text into lines and sends as much as the limit allows. Each line counts
// with its bytes and one for the line break.
func (t *Task) write(level slog.Level, text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.SplitSeq(bytes.TrimRight(text, "\r\n"), []byte{'\n'}) {
		for len(line) > maxLine {
			t.emit(level, line[:maxLine])
			line = line[maxLine:]
		}
		t.emit(level, bytes.TrimSuffix(line, []byte{'\r'}))
	}
}

// emit sends one line; the caller holds t.mu.
func (t *Task) emit(level slog.Level, line []byte) {
	switch {
	case t.ended || t.full || t.to == nil:
	case t.logged+len(line)+1 > maxLog:
		t.full = true
		t.to.Log(levelOf(slog.LevelWarn), fmt.Appendf(nil, "log limit of %d bytes reached: the rest is dropped", maxLog))
	default:
		t.logged += len(line) + 1
		t.to.Log(levelOf(level), line)
	}
}

// end makes later calls of the methods have no effect: the function has returned, or its
// run was given up.
func (t *Task) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// levelOf maps slog's levels to those of a run's log: 0 debug, 1 info, 2 warn, 3 error.
func levelOf(level slog.Level) int32 {
	switch {
	case level < slog.LevelInfo:
		return 0
	case level < slog.LevelWarn:
		return 1
	case level < slog.LevelError:
		return 2
	}
	return 3
}

// logHandler writes records as text without time and level, which the message carries
// separately.
type logHandler struct {
	task   *Task
	groups []string
	attrs  []slog.Attr // qualified by their groups
}

func (logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var line bytes.Buffer
	line.WriteString(r.Message)
	rest := slog.NewRecord(time.Time{}, r.Level, "", 0)
	r.Attrs(func(a slog.Attr) bool {
		rest.AddAttrs(a)
		return true
	})
	if len(h.attrs) > 0 || rest.NumAttrs() > 0 {
		line.WriteByte(' ')
		if err := h.text(&line).Handle(context.Background(), rest); err != nil {
			return err
		}
	}
	h.task.write(r.Level, line.Bytes())
	return nil
}

// text formats attributes only: the message carries time, level and text separately.
func (h logHandler) text(w *bytes.Buffer) slog.Handler {
	var text slog.Handler = slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.Level(-1 << 10),
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			// An attribute of the program may have the name of one of slog's own.
			_, level := a.Value.Any().(slog.Level)
			if len(groups) == 0 && (a.Key == slog.LevelKey && level || a.Key == slog.MessageKey && a.Value.String() == "") {
				return slog.Attr{}
			}
			return a
		},
	}).WithAttrs(h.attrs)
	for _, g := range h.groups {
		text = text.WithGroup(g)
	}
	return text
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	qualified := attrs
	for i := len(h.groups) - 1; i >= 0; i-- {
		args := make([]any, len(qualified))
		for j, a := range qualified {
			args[j] = a
		}
		qualified = []slog.Attr{slog.Group(h.groups[i], args...)}
	}
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], qualified...)
	return h
}

func (h logHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.groups = append(h.groups[:len(h.groups):len(h.groups)], name)
	}
	return h
}
