package guest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
)

const (
	// maxLine is the length in bytes at which a longer line is split.
	maxLine = 16 << 10
	// maxErrorLine bounds the part of a log line that goes into an error text, in bytes.
	maxErrorLine = 300
)

// logWriter splits the output of a guest into lines and passes them to the sink up to the
// limits. Each line counts its bytes and one for its line break.
type logWriter struct {
	sink    runtime.Sink
	limits  runtime.Limits  // of the task
	of      *runtime.Limits // the source of limits in this call, immutable during the call; nil: none
	touched bool            // it has written something
	limit   int64
	used    int64     // bytes passed to the sink
	lines   int64     // number of lines that may still be passed on
	most    int64     // limit of lines in total
	rate    int64     // lines per second
	burst   int64     // lines that may be passed on at once; below 0: the guest must wait
	filled  time.Time // time of the last refill of burst
	full    bool      // a limit was reached and reported; all further lines are dropped
	partial []byte
	exit    exitLine
}

// begin resets l for a task.
func (l *logWriter) begin(sink runtime.Sink, limits *runtime.Limits) {
	if l.sink = sink; l.limit > 0 && !l.touched && (l.of == limits || l.limits == *limits) {
		l.of = limits
		return // nothing has changed since the last begin
	}
	rate, most := orDefault(limits.LogRate, defaultLogRate), orDefault(limits.LogLines, defaultLogLines)
	*l = logWriter{
		sink: sink, limits: *limits, of: limits, limit: orDefault(limits.LogBytes, defaultLogBytes),
		lines: most, most: most, rate: rate, burst: rate,
	}
}

// wait returns how long a guest has to wait before it continues. It reads the clock only
// when the burst is used up.
func (l *logWriter) wait() time.Duration {
	if l.burst >= 0 {
		return 0
	}
	now := time.Now()
	if !l.filled.IsZero() {
		l.burst += int64(min(now.Sub(l.filled), time.Second)) * l.rate / int64(time.Second)
	}
	l.filled = now
	return time.Duration(max(-l.burst, 0)) * time.Second / time.Duration(l.rate)
}

// Write adds a part of a stream. A line without a line break is buffered.
func (l *logWriter) Write(level runtime.Level, p []byte) {
	l.touched = true
	for len(p) > 0 && !l.full {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.hold(level, p)
			return
		}
		if len(l.partial) == 0 {
			l.line(level, p[:end])
		} else {
			l.hold(level, p[:end])
			l.Flush(level)
		}
		p = p[end+1:]
	}
}

// hold buffers the beginning of a line, and passes on lines that reach maxLine.
func (l *logWriter) hold(level runtime.Level, p []byte) {
	for len(p) > 0 {
		n := min(len(p), maxLine-len(l.partial))
		l.partial = append(l.partial, p[:n]...)
		p = p[n:]
		if len(l.partial) == maxLine {
			l.Flush(level)
		}
	}
}

// Flush passes on a buffered line that has no line break.
func (l *logWriter) Flush(level runtime.Level) {
	if len(l.partial) > 0 {
		l.line(level, l.partial)
		l.partial = l.partial[:0]
	}
}

func (l *logWriter) line(level runtime.Level, p []byte) {
	for len(p) > maxLine {
		l.emit(level, p[:maxLine])
		p = p[maxLine:]
	}
	l.emit(level, bytes.TrimSuffix(p, []byte("\r")))
}

func (l *logWriter) emit(level runtime.Level, p []byte) {
	l.touched = true
	if l.full {
		return
	}
	if l.used+int64(len(p))+1 > l.limit {
		l.drop("log limit of %d bytes reached: the rest is dropped", l.limit)
		return
	}
	if l.lines == 0 {
		l.drop("log limit of %d lines reached: the rest is dropped", l.most)
		return
	}
	l.lines--
	l.burst--
	l.used += int64(len(p)) + 1
	l.exit.add(p)
	l.sink.Log(level, p)
}

// drop reports in one line that all further lines are dropped.
func (l *logWriter) drop(format string, args ...any) {
	l.full = true
	l.partial = nil
	l.sink.Log(runtime.LevelWarn, fmt.Appendf(nil, format, args...))
}

// exitLine remembers the log line that most likely states why a guest exits: the first
// line that reports a panic, or else the last line that is not blank.
type exitLine struct {
	line  []byte
	final bool
}

func (w *exitLine) add(p []byte) {
	if w.final || len(bytes.TrimSpace(p)) == 0 {
		return
	}
	w.line = append(w.line[:0], p[:min(len(p), maxErrorLine)]...)
	w.final = bytes.HasPrefix(p, []byte("panic: ")) || bytes.HasPrefix(p, []byte("fatal error: "))
}

// progress passes on the latest progress, at most once per progressEvery.
type progress struct {
	sink        runtime.Sink
	pending     bool
	done, total int64
	message     string
	sent        Moment
	started     bool // something was sent
}

// begin resets p for a task.
func (p *progress) begin(sink runtime.Sink) {
	if p.sink = sink; p.started || p.pending || p.message != "" {
		*p = progress{sink: sink}
	}
}

func (p *progress) set(done, total int64, message []byte) {
	p.done, p.total, p.pending = done, total, true
	if p.message != string(message) {
		p.message = string(message)
	}
	p.flush(Now(), false)
}

// flush passes on a pending progress when progressEvery has passed, or when must is set.
func (p *progress) flush(at Moment, must bool) {
	if !p.pending || (!must && p.started && time.Duration(at-p.sent) < progressEvery) {
		return
	}
	p.pending = false
	p.sent, p.started = at, true
	p.sink.Progress(p.done, p.total, p.message)
}

// Discard is a sink that drops everything.
type Discard struct{}

// Log implements runtime.Sink.
func (Discard) Log(runtime.Level, []byte) {}

// Progress implements runtime.Sink.
func (Discard) Progress(int64, int64, string) {}
