package host

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

const (
	heartbeat = 2 * time.Second

	// Bounds of one message to the server.
	maxResults     = 256
	maxResultBytes = 2 << 20
	maxLogBytes    = 512 << 10
	// maxLogHeld bounds the log lines that wait; what comes on top is dropped and
	// counted: a log must not stop a handler.
	maxLogHeld = 8 << 20
)

// runSession is one stream, from hello to its end.
func (h *Host) runSession(ctx context.Context) error {
	conn, closer, err := h.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer closer.Close() //nolint:errcheck // nothing is left to say on it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := apiv1.NewWorkerClient(conn)
	stream, err := client.Work(ctx)
	if err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if err := stream.Send(h.hello()); err != nil {
		_, recv := stream.Recv() // says why
		return errors.Join(recv, err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	h.begin(client, conn, first.GetWelcome().GetServer())
	defer h.endSession()
	sent := make(chan error, 1)
	go func() {
		err := h.send(ctx, stream)
		cancel()
		sent <- err
	}()
	err = h.receive(stream)
	cancel()
	return errors.Join(err, <-sent)
}

// hello tells what the host holds. Between it and begin nothing comes in: the
// stream before it has ended.
func (h *Host) hello() *apiv1.WorkUp {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.granted = 0
	m := &apiv1.Hello{
		Host: h.cfg.ID, Name: h.cfg.Name, Session: h.session, Labels: h.cfg.Labels, Apps: h.cfg.Apps,
		Abi: h.cfg.ABI, Version: h.cfg.Version, Slots: uint32(h.cfg.Slots),
	}
	for k, t := range h.held {
		r := &apiv1.Running{Run: k.run[:], App: k.app, Attempt: k.attempt}
		if t.msg != nil {
			r.Epoch = t.msg.Epoch
		}
		m.Running = append(m.Running, r)
	}
	return &apiv1.WorkUp{Hello: m}
}

// begin makes everything that is finished go out on the new stream.
func (h *Host) begin(client apiv1.WorkerClient, conn grpc.ClientConnInterface, server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client, h.conn = client, conn
	h.out.restart()
	for _, t := range h.held {
		if t.state == finished {
			h.out.result(t)
		}
	}
	h.cfg.Logger.Info("joined", "server", server, "holding", len(h.held))
}

func (h *Host) endSession() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client, h.conn = nil, nil
}

func (h *Host) receive(stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(m.Tasks) > 0 {
			h.accept(m.Tasks)
		}
		for _, c := range m.Cancels {
			h.stop(c)
		}
		if m.Acked > 0 {
			h.ack(m.Acked)
		}
	}
}

// send writes whatever there is to say, and a heartbeat when there is nothing.
func (h *Host) send(ctx context.Context, stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	meter := newCPUMeter(time.Now())
	for {
		h.mu.Lock()
		credits := h.spareLocked()
		// Grant in lumps: a message for each finished task would double the traffic.
		if h.granted > 0 && credits < h.wantedLocked()/8 && !h.out.pending() {
			credits = 0
		}
		h.granted += credits
		m, more := h.out.next(uint32(credits), h.closed)
		h.mu.Unlock()
		if m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		select {
		case <-h.out.kick:
		case now := <-beat.C:
			load := h.loadNow()
			load.Cpu = meter.share(now)
			if err := stream.Send(&apiv1.WorkUp{Load: load}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// loadNow is what the heartbeat tells.
func (h *Host) loadNow() *apiv1.HostLoad {
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &apiv1.HostLoad{Queued: uint32(len(h.queue)), MemoryBytes: m.Sys - m.HeapReleased}
	for _, t := range h.held {
		if t.state == running {
			l.Running++
		}
	}
	return l
}

// outgoing collects what goes up. Anyone may put in; the session's sender takes
// out.
type outgoing struct {
	kick  chan struct{} // capacity 1: there is something
	acked chan struct{} // capacity 1: something was acknowledged

	mu        sync.Mutex
	results   []*task // to be sent
	unacked   []batch // sent, oldest first
	batch     uint64
	drainSaid bool // the server knows that the host is ending
	latest    map[key]*apiv1.TaskProgress
	logs      []*apiv1.TaskLog
	logBytes  int
	dropped   map[key]int // lines that found no room
}

type batch struct {
	n     uint64
	tasks []*task
}

func newOutgoing() *outgoing {
	return &outgoing{
		kick: make(chan struct{}, 1), acked: make(chan struct{}, 1),
		latest: map[key]*apiv1.TaskProgress{}, dropped: map[key]int{},
	}
}

func (o *outgoing) signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// restart forgets what was sent on the stream before.
func (o *outgoing) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.results, o.unacked, o.batch, o.drainSaid = nil, nil, 0, false
}

func (o *outgoing) result(t *task) {
	o.mu.Lock()
	o.results = append(o.results, t)
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) progress(m *apiv1.Task, done, total int64, message string) {
	o.mu.Lock()
	o.latest[key{m.App, [16]byte(m.Run), m.Attempt}] = &apiv1.TaskProgress{
		Run: m.Run, App: m.App, Attempt: m.Attempt, Done: done, Total: total, Message: message,
	}
	o.mu.Unlock()
	o.signal(o.kick)
}

func (o *outgoing) log(m *apiv1.Task, level runtime.Level, text []byte) {
	k := key{m.App, [16]byte(m.Run), m.Attempt}
	o.mu.Lock()
	if o.logBytes+len(text) > maxLogHeld {
		o.dropped[k]++
		o.mu.Unlock()
		return
	}
	o.lineLocked(k, &apiv1.TaskLogLine{TimeMs: time.Now().UnixMilli(), Level: int32(level), Text: slices.Clone(text)})
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
	return len(o.results) > 0 || len(o.logs) > 0 || len(o.latest) > 0
}

// next builds a message; nil when there is nothing to say. more says that not
// everything fitted.
func (o *outgoing) next(credits uint32, draining bool) (m *apiv1.WorkUp, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if credits == 0 && draining == o.drainSaid && len(o.results) == 0 && len(o.logs) == 0 && len(o.latest) == 0 {
		return nil, false
	}
	m = &apiv1.WorkUp{Credits: credits, Draining: draining}
	o.drainSaid = draining
	o.takeLogsLocked(m)
	for _, p := range o.latest {
		m.Progress = append(m.Progress, p)
	}
	clear(o.latest)
	if len(o.logs) > 0 {
		return m, true // lines before results: an ended run's log is whole
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
			TimeMs: time.Now().UnixMilli(), Level: int32(runtime.LevelWarn),
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

// take returns the tasks whose results are acknowledged with a batch.
func (o *outgoing) take(upTo uint64) []*task {
	o.mu.Lock()
	defer o.mu.Unlock()
	var done []*task
	for len(o.unacked) > 0 && o.unacked[0].n <= upTo {
		done = append(done, o.unacked[0].tasks...)
		o.unacked = o.unacked[1:]
	}
	o.signal(o.acked)
	return done
}
