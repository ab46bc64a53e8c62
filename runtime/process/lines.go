package process

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// MaxLine is where a line without an end is broken.
const MaxLine = 16 << 10

// Lines cuts what a program writes into lines without their ends. What it hands
// to Emit is valid until Emit returns.
type Lines struct {
	Emit    func(line []byte)
	partial []byte
}

// Write takes a part of the stream; it never fails.
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

// Flush hands on a line without its end.
func (l *Lines) Flush() {
	if line := bytes.TrimSuffix(l.partial, []byte("\r")); len(line) > 0 {
		l.Emit(line)
	}
	l.partial = l.partial[:0]
}

// Budget bounds the log of one attempt in bytes: each line costs its own and one
// for its end. The zero value is the default of [runtime.Limits].
type Budget struct {
	limit, used int64
	full        bool
}

// NewBudget returns a budget of so many bytes.
func NewBudget(limit int64) Budget { return Budget{limit: limit} }

const defaultLogBytes = 1 << 20

// Log hands a line to sink as long as there is room, and once the line that
// says that there is none.
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

// Full reports whether all that comes is dropped.
func (b *Budget) Full() bool { return b.full }

// LastWords keeps the line that most likely tells why a program ended: the first
// that reports a panic, or else the last that is not blank.
type LastWords struct {
	line    string
	settled bool
}

// maxWords bounds what is kept of a line.
const maxWords = 300

// Note looks at a line.
func (w *LastWords) Note(line []byte) {
	if w.settled || len(bytes.TrimSpace(line)) == 0 {
		return
	}
	w.line = OneLine(string(line[:min(len(line), maxWords)]))
	w.settled = bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))
}

func (w *LastWords) String() string { return w.line }

// OneLine makes a program's text fit for an error: one line, valid, and no
// longer than a few hundred bytes.
func OneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return strings.ToValidUTF8(strings.TrimSpace(s[:min(len(s), 2*maxWords)]), "\uFFFD")
}
