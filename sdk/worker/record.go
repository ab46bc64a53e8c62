package worker

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Recording is what a function has reported on a task that a test made by hand. It is
// safe for concurrent use.
type Recording struct {
	mu          sync.Mutex
	lines       []Line
	done, total int64
	message     string
}

// Line is one line of the log of a run.
type Line struct {
	Level slog.Level
	Text  string
}

// Reporter receives what a function reports on a task, one report at a time.
type Reporter interface {
	Log(level slog.Level, line string)
	Progress(done, total int64, message string) // total 0: unknown
}

// ReportTo makes a task that a program made by hand pass its reports on, instead of
// dropping them. It replaces an earlier reporter.
func (t *Task) ReportTo(r Reporter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to = adapted{r}
}

// adapted is a Reporter as the reporter of a task.
type adapted struct{ Reporter }

func (a adapted) Log(level int32, line []byte) {
	a.Reporter.Log(slog.LevelDebug+slog.Level(4*level), string(line))
}

// Record makes a task keep what its function reports, for tests:
//
//	t := &worker.Task{Input: []byte("a.csv")}
//	said := worker.Record(t)
//	out, err := handler.Call(ctx, t)
//	// said.Lines() is the log of the run
//
// The limits of the log hold as in a worker.
func Record(t *Task) *Recording {
	r := &Recording{}
	t.ReportTo(r)
	return r
}

// Lines returns the lines of the log so far.
func (r *Recording) Lines() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// String returns the log as text: each line with its level, as "INFO copied a.txt".
func (r *Recording) String() string {
	var b strings.Builder
	for _, l := range r.Lines() {
		b.WriteString(l.Level.String() + " " + l.Text + "\n")
	}
	return b.String()
}

// LastProgress returns the latest progress report; zero values: none.
func (r *Recording) LastProgress() (done, total int64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.total, r.message
}

// Log implements [Reporter].
func (r *Recording) Log(level slog.Level, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, Line{level, line})
}

// Progress implements [Reporter].
func (r *Recording) Progress(done, total int64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done, r.total, r.message = done, total, message
}
