package session

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"slices"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const heartbeat = 2 * time.Second

// runSession is one stream, from hello to its end.
func (w *Worker) runSession(ctx context.Context) error {
	conn, closer, err := w.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer closer.Close() //nolint:errcheck // nothing is left to say on it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := apiv1.NewWorkerClient(conn).Work(ctx)
	if err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if err := stream.Send(w.hello()); err != nil {
		_, recv := stream.Recv() // says why
		return errors.Join(recv, err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	w.begin(conn, first.GetWelcome().GetServer())
	defer w.endSession()
	sent := make(chan error, 1)
	go func() {
		err := w.send(ctx, stream)
		cancel()
		sent <- err
	}()
	err = w.receive(stream)
	cancel()
	return errors.Join(err, <-sent)
}

// hello tells what the host holds. Between it and begin nothing comes in: the
// stream before it has ended.
func (w *Worker) hello() *apiv1.WorkUp {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = 0
	m := &apiv1.Hello{
		Host: w.cfg.ID, Name: w.cfg.Name, Session: w.session, Labels: w.cfg.Labels, Apps: w.cfg.Apps,
		Abi: w.abi, Version: w.cfg.Version, Slots: uint32(w.cfg.Slots),
	}
	for k, t := range w.held {
		r := &apiv1.Running{Run: k.run[:], App: k.app, Attempt: k.attempt}
		if r.Epoch = t.msg.GetEpoch(); t.state == finished {
			r.Epoch = t.result.Epoch
		}
		m.Running = append(m.Running, r)
	}
	w.saidABI = w.abi
	return &apiv1.WorkUp{Hello: m}
}

// Abilities says what the worker runs from now on, in the words of Hello.abi. It
// keeps abi.
func (w *Worker) Abilities(abi []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abi = abi
	w.out.abilities(abi)
}

// begin makes everything that is finished go out on the new stream.
func (w *Worker) begin(conn grpc.ClientConnInterface, server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.joined = conn, true
	w.out.restart()
	if !slices.Equal(w.abi, w.saidABI) { // it changed on the way
		w.out.abilities(w.abi)
	}
	for _, t := range w.held {
		if t.state == finished {
			w.out.result(t)
		}
	}
	if w.cfg.Modules != nil {
		for _, m := range w.cfg.Modules() {
			w.out.module(m)
		}
	}
	w.cfg.Logger.Info("joined", "server", server, "holding", len(w.held))
}

func (w *Worker) endSession() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

func (w *Worker) receive(stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(m.Tasks) > 0 {
			w.accept(m.Tasks)
		}
		for _, c := range m.Cancels {
			w.stop(c)
		}
		if len(m.Unload) > 0 && w.cfg.Unload != nil {
			w.cfg.Unload(m.Unload)
		}
		if len(m.Prefetch) > 0 && w.cfg.Prefetch != nil {
			w.cfg.Prefetch(m.Prefetch)
		}
		if m.Acked > 0 {
			w.ack(m.Acked)
		}
	}
}

// send writes whatever there is to say, and a heartbeat when there is nothing.
func (w *Worker) send(ctx context.Context, stream grpc.BidiStreamingClient[apiv1.WorkUp, apiv1.WorkDown]) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	meter := newCPUMeter(time.Now())
	for {
		w.mu.Lock()
		credits := w.spareLocked()
		// Grant in lumps: a message for each finished task would double the traffic.
		if w.granted > 0 && credits < w.wantedLocked()/8 && !w.out.pending() {
			credits = 0
		}
		w.granted += credits
		m, more := w.out.next(uint32(credits), w.closed)
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
		case <-w.out.kick:
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

// loadNow is what the heartbeat tells.
func (w *Worker) loadNow() *apiv1.HostLoad {
	// Not runtime.ReadMemStats, which stops every goroutine of the process.
	memory := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(memory)
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &apiv1.HostLoad{Queued: uint32(len(w.queue)), MemoryBytes: memory[0].Value.Uint64() - memory[1].Value.Uint64()}
	for _, t := range w.held {
		if t.state == running {
			l.Running++
		}
	}
	return l
}
