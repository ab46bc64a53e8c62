package session

import (
	"fmt"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The bounds of one message to the server.
const (
	maxResults     = 256
	maxResultBytes = 2 << 20
	maxLogBytes    = 512 << 10
	// maxLogHeld bounds the log lines that wait, in bytes. Further lines are dropped and
	// counted, because logging must not block a handler.
	maxLogHeld = 8 << 20
)

// levelWarn is the level of the log line about dropped lines.
const levelWarn = 2

// outgoing collects the messages to the server. Any goroutine may add to it; only the
// sender of the session removes from it.
type outgoing struct {
	kick chan struct{} // capacity 1: there is something to send

	mu        sync.Mutex
	results   []*task // with results to be sent
	unacked   []batch // sent, oldest first
	batch     uint64
	drainSaid bool // the server knows that the host is draining or leaving
	latest    map[key]*apiv1.TaskProgress
	states    map[key]*apiv1.TaskState
	modules   map[string]*apiv1.ModuleState // by digest
	abi       *apiv1.Abilities              // nil: unchanged since the hello or the last message
	cordoned  *bool                         // likewise
	logs      []*apiv1.TaskLog
	logBytes  int
	dropped   map[key]int // lines that were dropped
}

type batch struct {
	n     uint64
	tasks []*task
}

func newOutgoing() *outgoing {
	return &outgoing{
		kick:   make(chan struct{}, 1),
		latest: map[key]*apiv1.TaskProgress{}, states: map[key]*apiv1.TaskState{}, modules: map[string]*apiv1.ModuleState{}, dropped: map[key]int{},
	}
}

func (o *outgoing) signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// restart drops the state of the former stream.
func (o *outgoing) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.results, o.unacked, o.batch, o.drainSaid, o.abi, o.cordoned = nil, nil, 0, false, nil, nil
	clear(o.states)
}

func (o *outgoing) result(t *task) {
	o.mu.Lock()
	o.results = append(o.results, t)
	if len(o.states) > 0 {
		delete(o.states, t.key)
	}
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) cordon(on bool) {
	o.mu.Lock()
	o.cordoned = &on
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) progress(k key, done, total int64, message string) {
	o.mu.Lock()
	o.latest[k] = &apiv1.TaskProgress{
		Run: k.run[:], App: k.app, Attempt: k.attempt, Done: done, Total: total, Message: message,
	}
	o.mu.Unlock()
	o.signal(o.kick)
}

// state queues the state of a task that has no result.
func (o *outgoing) state(k key, state *apiv1.TaskState) {
	o.mu.Lock()
	o.states[k] = state
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) log(k key, level int32, text []byte) {
	o.mu.Lock()
	if o.logBytes+len(text) > maxLogHeld {
		o.dropped[k]++
		o.mu.Unlock()
		return
	}
	o.lineLocked(k, &apiv1.TaskLogLine{TimeMs: time.Now().UnixMilli(), Level: level, Text: slices.Clone(text)})
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) lineLocked(k key, line *apiv1.TaskLogLine) {
	o.logBytes += len(line.Text)
	if n := len(o.logs); n > 0 {
		last := o.logs[n-1]
		if [16]byte(last.Run) == k.run && last.Attempt == k.attempt && last.App == k.app && len(last.Lines) < 1000 {
			last.Lines = append(last.Lines, line)
			return
		}
	}
	o.logs = append(o.logs, &apiv1.TaskLog{Run: k.run[:], App: k.app, Attempt: k.attempt, Lines: []*apiv1.TaskLogLine{line}})
}

func (o *outgoing) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.results) > 0 || len(o.logs) > 0 || len(o.latest)+len(o.modules)+len(o.states) > 0 || o.abi != nil || o.cordoned != nil
}

// next returns the next message; nil: there is nothing to send. more reports that not
// everything fitted.
func (o *outgoing) next(credits uint32, draining bool) (m *apiv1.WorkUp, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if credits == 0 && draining == o.drainSaid && len(o.results) == 0 && len(o.logs) == 0 && len(o.latest)+len(o.modules)+len(o.states) == 0 && o.abi == nil && o.cordoned == nil {
		return nil, false
	}
	m = &apiv1.WorkUp{Credits: credits, Draining: draining, Abilities: o.abi, Cordoned: o.cordoned}
	o.drainSaid, o.abi, o.cordoned = draining, nil, nil
	o.takeLogsLocked(m)
	for _, p := range o.latest {
		m.Progress = append(m.Progress, p)
	}
	clear(o.latest)
	for _, state := range o.states {
		m.States = append(m.States, state)
	}
	clear(o.states)
	for _, state := range o.modules {
		m.Modules = append(m.Modules, state)
	}
	clear(o.modules)
	if len(o.logs) > 0 {
		return m, true // log lines before results, so that the log of an ended run is complete
	}
	n, size := 0, 0
	for n < len(o.results) && n < maxResults && size < maxResultBytes {
		size += len(o.results[n].result.Output) + len(o.results[n].result.Trace)
		m.Results = append(m.Results, o.results[n].result)
		n++
	}
	if n > 0 {
		o.batch++
		m.Batch = o.batch
		o.unacked = append(o.unacked, batch{o.batch, slices.Clone(o.results[:n])})
		o.results = slices.Delete(o.results, 0, n)
	}
	return m, len(o.results) > 0
}

func (o *outgoing) takeLogsLocked(m *apiv1.WorkUp) {
	for k, n := range o.dropped {
		if o.logBytes > maxLogHeld/2 {
			break
		}
		o.lineLocked(k, &apiv1.TaskLogLine{
			TimeMs: time.Now().UnixMilli(), Level: levelWarn,
			Text: fmt.Appendf(nil, "[%d log lines were dropped: they came faster than the server took them]", n),
		})
		delete(o.dropped, k)
	}
	n, size := 0, 0
	for n < len(o.logs) && size < maxLogBytes {
		for _, line := range o.logs[n].Lines {
			size += len(line.Text)
		}
		n++
	}
	m.Logs = slices.Clone(o.logs[:n])
	o.logs = slices.Delete(o.logs, 0, n)
	o.logBytes -= size
}

// take returns the tasks whose results are acknowledged by the acknowledgement of a
// batch.
func (o *outgoing) take(upTo uint64) []*task {
	o.mu.Lock()
	defer o.mu.Unlock()
	var done []*task
	for len(o.unacked) > 0 && o.unacked[0].n <= upTo {
		done = append(done, o.unacked[0].tasks...)
		o.unacked = o.unacked[1:]
	}
	return done
}

// Module reports the state of a module to all servers. Config.Modules reports it again on
// each new stream.
func (w *Worker) Module(m *apiv1.ModuleState) {
	w.mu.Lock()
	links := w.links
	w.mu.Unlock()
	for _, l := range links {
		l.out.module(m)
	}
}

func (o *outgoing) module(m *apiv1.ModuleState) {
	o.mu.Lock()
	o.modules[m.Digest] = m
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) abilities(abi []string) {
	o.mu.Lock()
	o.abi = &apiv1.Abilities{Abi: abi}
	o.mu.Unlock()
	o.signal(o.kick)
}
