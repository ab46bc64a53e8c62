package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const heartbeat = 2 * time.Second

// runSession runs one stream, from the hello to the end of the stream.
func (l *link) runSession(ctx context.Context) error {
	connect := l.w.cfg.Connect
	if l.unit != "" {
		connect = func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error) {
			return l.w.cfg.ConnectUnit(ctx, l.unit)
		}
	}
	conn, closer, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer closer.Close() //nolint:errcheck // nothing is left to say on it
	attendance, attends := closer.(Attendance)
	if attends {
		if err := l.awaitNeed(ctx, attendance); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	stream, err := apiv1.NewWorkerClient(conn).Work(ctx)
	if err != nil {
		return streamError{"open the stream", err}
	}
	if err := stream.Send(l.hello()); err != nil {
		_, err = stream.Recv() // has the reason
		return streamError{"join", err}
	}
	first, err := stream.Recv()
	if err != nil {
		return streamError{"join", err}
	}
	l.begun++
	l.begin(conn, first.GetWelcome().GetServer())
	defer l.endSession()
	if attends {
		var attending sync.WaitGroup
		defer attending.Wait()
		defer cancel()
		attending.Go(func() { l.attend(ctx, attendance, end) })
	}
	sent := make(chan error, 1)
	go func() {
		err := l.send(ctx, stream)
		cancel()
		sent <- err
	}()
	err = l.receive(stream)
	cancel()
	sending := <-sent
	switch {
	case errors.Is(context.Cause(ctx), errBack):
		return errBack
	case l.left():
		return errLeft
	}
	if errors.Is(sending, context.Canceled) { // it only followed
		sending = nil
	}
	return errors.Join(streamError{"the stream ended", err}, sending)
}

// streamError is the reason for the end of a stream, without the code of gRPC in its text.
type streamError struct {
	op  string
	err error
}

func (e streamError) Error() string {
	if errors.Is(e.err, io.EOF) {
		return e.op + ": the server closed it"
	}
	return e.op + ": " + status.Convert(e.err).Message()
}

func (e streamError) Unwrap() error { return e.err }

// hello returns the first message, with the tasks that the host holds. No message arrives
// between hello and begin, because the former stream has ended.
func (l *link) hello() *apiv1.WorkUp {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l.granted = 0
	m := &apiv1.Hello{
		Host: w.cfg.ID, Name: w.cfg.Name, Session: w.session, Labels: w.cfg.Labels, Apps: w.cfg.Apps,
		Abi: w.abi, Version: w.cfg.Version, Slots: uint32(w.cfg.Slots), Recalls: true, Cordoned: w.cordoned,
	}
	for t := range w.held.all() {
		if t.link != l {
			continue
		}
		r := &apiv1.Running{Run: t.key.run[:], App: t.key.app, Attempt: t.key.attempt}
		if r.Epoch = t.msg.GetEpoch(); t.state == finished {
			r.Epoch = t.result.Epoch
		}
		m.Running = append(m.Running, r)
	}
	l.saidABI = w.abi
	return &apiv1.WorkUp{Hello: m}
}

// cordon changes the cordon of the host at the request of a server, and tells all
// servers.
func (w *Worker) cordon(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cordoned == on {
		return
	}
	if w.cfg.Cordon != nil {
		if err := w.cfg.Cordon(on); err != nil {
			w.cfg.Logger.Error("the cordon of this host was not stored: a restart ends it", "cordoned", on, "error", err)
		}
	}
	w.cordoned = on
	w.cfg.Logger.Info("a server changed the cordon of this host", "cordoned", on)
	for _, l := range w.links {
		l.out.cordon(on)
	}
}

// Abilities sets what the host can run from now on, in the format of Hello.abi. It keeps
// abi, which the caller must not change.
func (w *Worker) Abilities(abi []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abi = abi
	for _, l := range w.links {
		l.out.abilities(abi)
	}
}

// begin queues for the new stream all results, all reported task states and all module
// states.
func (l *link) begin(conn grpc.ClientConnInterface, server string) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l.conn, w.joined, l.leaving = conn, true, false
	l.out.restart()
	if !slices.Equal(w.abi, l.saidABI) { // changed since the hello
		l.out.abilities(w.abi)
	}
	holding := 0
	for t := range w.held.all() {
		if t.link != l {
			continue
		}
		holding++
		switch {
		case t.state == finished:
			l.out.result(t)
		case t.told:
			w.tellLocked(t)
		}
	}
	if w.cfg.Modules != nil {
		for _, m := range w.cfg.Modules() {
			l.out.module(m)
		}
	}
	attrs := []any{"server", server}
	if l.unit != "" {
		attrs = append(attrs, "unit", l.unit)
	}
	if holding > 0 {
		attrs = append(attrs, "holding", holding)
	}
	w.cfg.Logger.Info("joined", attrs...)
}

func (l *link) endSession() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.conn = nil
}

func (l *link) receive(stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	w := l.w
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(m.Tasks) > 0 {
			l.accept(m.Tasks)
		}
		for _, c := range m.Cancels {
			w.stop(c)
		}
		if len(m.Recalls) > 0 {
			w.recall(m.Recalls)
		}
		if m.Cordon != nil {
			w.cordon(*m.Cordon)
		}
		if len(m.Unload) > 0 && w.cfg.Unload != nil {
			w.cfg.Unload(m.Unload)
		}
		if len(m.Prefetch) > 0 && w.cfg.Prefetch != nil {
			w.cfg.Prefetch(m.Prefetch)
		}
		if m.Acked > 0 {
			l.ack(m.Acked)
		}
	}
}

// send sends the queued messages, and every 2 s a heartbeat.
func (l *link) send(ctx context.Context, stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	w := l.w
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	meter := newCPUMeter(time.Now())
	for {
		w.mu.Lock()
		credits := l.spareLocked()
		// Grant credits in lumps: a message for each finished task would double the
		// traffic.
		if l.granted > 0 && credits < w.wantedLocked()/8 && !l.out.pending() {
			credits = 0
		}
		l.granted += credits
		m, more := l.out.next(uint32(credits), w.closed || l.leaving)
		if m != nil {
			m.Leaving = l.leaving
		}
		w.mu.Unlock()
		if m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		select {
		case <-l.out.kick:
		case now := <-beat.C:
			load := w.loadNow()
			load.Cpu = meter.share(now)
			if err := stream.Send(&apiv1.WorkUp{Load: load}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// loadNow returns the load for the heartbeat.
func (w *Worker) loadNow() *apiv1.HostLoad {
	// Not runtime.ReadMemStats, which stops every goroutine of the process.
	memory := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(memory)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots.tidy(w.age(time.Now()))
	if w.queue.len() > 0 {
		w.ready.Signal() // a slot may no longer be reserved
	}
	return &apiv1.HostLoad{
		Running: uint32(min(w.slots.used, w.slots.all)), Sleeping: uint32(w.slots.asleep - w.queue.wakers), Queued: uint32(w.queue.len()),
		MemoryBytes: memory[0].Value.Uint64() - memory[1].Value.Uint64(),
	}
}
