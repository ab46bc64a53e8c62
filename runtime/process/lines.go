package process

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// MaxLine is the length, in bytes, at which a longer line is divided.
const MaxLine = 16 << 10

// Lines divides the output of a program into lines without line breaks. The argument of
// Emit is valid until Emit returns.
type Lines struct {
	Emit    func(line []byte)
	partial []byte
}

// Write receives a part of the output. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		rest := p[min(max(end+1, 0), len(p)):]
		if end < 0 {
			end, rest = len(p), nil
		}
		l.take(p[:end])
		if end < len(p) {
			l.Flush()
		}
		p = rest
	}
	return n, nil
}

func (l *Lines) take(p []byte) {
	for len(p) > 0 {
		n := min(len(p), MaxLine-len(l.partial))
		l.partial = append(l.partial, p[:n]...)
		if p = p[n:]; len(l.partial) == MaxLine {
			l.Flush()
		}
	}
}

// Flush emits the last line if it has no line break.
func (l *Lines) Flush() {
	if line := bytes.TrimSuffix(l.partial, []byte("\r")); len(line) > 0 {
		l.Emit(line)
	}
	l.partial = l.partial[:0]
}

// Budget bounds the log of one attempt, in bytes. A line costs its length plus one. The
// zero value has the default limit of [runtime.Limits].
type Budget struct {
	limit, used int64
	full        bool
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) Budget { return Budget{limit: limit} }

const defaultLogBytes = 1 << 20

// Log passes a line to sink as long as the budget lasts. The first line beyond it is
// replaced by a message about the limit; Log drops all further lines.
func (b *Budget) Log(sink runtime.Sink, level runtime.Level, line []byte) {
	if b.full {
		return
	}
	if b.limit <= 0 {
		b.limit = defaultLogBytes
	}
	if b.used += int64(len(line)) + 1; b.used > b.limit {
		b.full = true
		sink.Log(runtime.LevelWarn, fmt.Appendf(nil, "log limit of %d bytes reached: the rest is dropped", b.limit))
		return
	}
	sink.Log(level, line)
}

// Full reports whether the budget is used up, so that Log drops every line.
func (b *Budget) Full() bool { return b.full }

// LastWords holds the line that most likely explains why a program ended: the first line
// that reports a panic, or the last line that is not blank.
type LastWords struct {
	line  string
	final bool
}

// maxWords is the number of bytes that LastWords retains.
const maxWords = 300

// Note considers one line of the output.
func (w *LastWords) Note(line []byte) {
	if w.final || len(bytes.TrimSpace(line)) == 0 {
		return
	}
	w.line = OneLine(string(line[:min(len(line), maxWords)]))
	w.final = bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))
}

func (w *LastWords) String() string { return w.line }

// OneLine returns the first line of a program's text as valid UTF-8 for an error, at most
// twice maxWords bytes of it.
func OneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return strings.ToValidUTF8(strings.TrimSpace(s[:min(len(s), 2*maxWords)]), "\uFFFD")
}
