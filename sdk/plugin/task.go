package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
)

// Func is a handler. It returns the output of the run. An error fails the attempt, which
// the job's policy may retry unless the error is [Permanent].
type Func func(ctx context.Context, t *Task) ([]byte, error)

// Task is one attempt of one run.
type Task struct {
	Run         string
	App         string
	Job         string
	Attempt     int // 1 for the first attempt
	MaxAttempts int
	PlannedAt   time.Time
	Covers      int64 // number of missed planned times that this run covers in addition to its own
	Part        int   // number of this part of a fan-out, from 0
	Parts       int   // number of parts of the fan-out; 0: the run is not a part

	Handler     string
	Input       []byte
	Args        []string          // handler.args of the job
	Env         map[string]string // handler.env of the job
	TraceParent string            // W3C trace context, "" when the run is not traced
	OutputLimit int64             // maximum length of the output; a longer output fails the run permanently

	id  uint64
	out *outbox
}

// Log returns a logger that writes to the log of the run.
func (t *Task) Log() *slog.Logger { return slog.New(&logHandler{out: t.out, id: t.id}) }

// Printf writes a line to the log of the run.
func (t *Task) Printf(format string, args ...any) {
	t.out.log(t.id, slog.LevelInfo, fmt.Sprintf(format, args...))
}

// Progress reports the progress of the handler; total is 0 when unknown. A handler may
// call it as often as it likes: only the latest report is shown.
func (t *Task) Progress(done, total int64, message string) {
	t.out.progress(&pluginv1.Progress{Id: t.id, Done: done, Total: total, Message: message})
}

// failure is an error with a code, permanence or a delay.
type failure struct {
	error
	permanent bool
	code      string
	after     time.Duration
}

func (f *failure) Unwrap() error { return f.error }

// Permanent marks an error that another attempt would meet again. A nil error stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, permanent: true}
}

// RetryAfter sets the minimum delay before the next attempt. A nil error stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, after: d}
}

// Coded gives an error a code for machines, which the run stores. A nil error stays nil.
func Coded(err error, code string) error {
	if err == nil {
		return nil
	}
	return &failure{error: err, code: code}
}

// result converts the return values of a handler.
func result(ctx context.Context, id uint64, output []byte, err error) *pluginv1.Result {
	r := &pluginv1.Result{Id: id, Outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED, Output: output}
	if err == nil {
		return r
	}
	r.Outcome, r.Error = pluginv1.Outcome_OUTCOME_RETRYABLE, strings.ToValidUTF8(err.Error(), "\uFFFD")
	if r.Error == "" {
		r.Error = fmt.Sprintf("an error of type %T without a text", err)
	}
	if ctx.Err() != nil {
		r.Outcome = pluginv1.Outcome_OUTCOME_STOPPED
	}
	for f := (*failure)(nil); errors.As(err, &f); err = f.error {
		if f.permanent && ctx.Err() == nil {
			r.Outcome = pluginv1.Outcome_OUTCOME_PERMANENT
		}
		if r.Code == "" {
			r.Code = strings.ToValidUTF8(f.code, "\uFFFD")
		}
		if r.RetryAfterMs == 0 {
			r.RetryAfterMs = f.after.Milliseconds()
		}
	}
	return r
}

// call runs a handler. It converts a panic to a failed attempt, because the other tasks
// of the program must continue.
func call(ctx context.Context, fn Func, t *Task) (r *pluginv1.Result) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			r = result(ctx, t.id, nil, Coded(fmt.Errorf("panic: %v", p), "panic"))
			r.Outcome = pluginv1.Outcome_OUTCOME_RETRYABLE
			r.Trace = strings.ToValidUTF8(string(debug.Stack()), "\uFFFD")
		}
		r.DurationUs = max(time.Since(start).Microseconds(), 1)
	}()
	output, err := fn(ctx, t)
	return result(ctx, t.id, output, err)
}

// until is a context that the host ends, with a deadline that is the latest time for it.
type until struct {
	context.Context
	at time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.at, !u.at.IsZero() }

// logHandler converts slog's records to lines.
type logHandler struct {
	out    *outbox
	id     uint64
	attrs  string // " key=value…" from WithAttrs
	prefix string // "group." from WithGroup
}

func (*logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, h.prefix, a)
		return true
	})
	h.out.log(h.id, r.Level, b.String())
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	var b strings.Builder
	for _, a := range attrs {
		appendAttr(&b, h.prefix, a)
	}
	c.attrs += b.String()
	return &c
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.prefix += name + "."
	}
	return &c
}

func appendAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			appendAttr(b, prefix, m)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \t\r\n\"=") {
		text = fmt.Sprintf("%q", text)
	}
	fmt.Fprintf(b, " %s%s=%s", prefix, a.Key, text)
}
