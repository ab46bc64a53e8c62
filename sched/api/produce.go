package api

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type producerAPI struct {
	apiv1.UnimplementedProducerServer
	s *Services
}

func (a *producerAPI) Produce(stream apiv1.Producer_ProduceServer) error {
	answers := make(chan *core.Message, core.MaxPipelined)
	sent := make(chan error, 1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() { // answers in the order of the messages
		var err error
		for m := range answers {
			select {
			case answer := <-m.Ready:
				if err == nil {
					err = stream.Send(answer)
				}
				m.Recycle()
			case <-a.s.loop.Mail.Done:
				err = core.ErrEnded
			}
			if err != nil {
				cancel()
			}
		}
		sent <- err
	}()
	err := a.receive(ctx, stream, answers)
	close(answers)
	return errors.Join(err, <-sent)
}

func (a *producerAPI) receive(ctx context.Context, stream apiv1.Producer_ProduceServer, answers chan<- *core.Message) error {
	trace, by := TraceParent(ctx), core.AttributionOf(ctx)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(req.Commands) > core.MaxCommands {
			return status.Errorf(codes.InvalidArgument, "a message has %d commands, the limit is %d", len(req.Commands), core.MaxCommands)
		}
		m := core.Messages.Get()
		switch req.Ack {
		case "", "applied":
			m.Read(req, trace, by)
			if !a.s.loop.Mail.Do(func(l *core.Loop) { l.Commands.Produce(m) }) {
				return core.ErrEnded
			}
		case "accepted":
			if err := a.accept(ctx, req, m.Ready); err != nil {
				return err
			}
		default:
			return status.Errorf(codes.InvalidArgument, "ack: %q is neither applied nor accepted", req.Ack)
		}
		select {
		case answers <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// accept puts commands into the ingress. It refuses invalid commands at once, because no
// later try could succeed.
func (a *producerAPI) accept(ctx context.Context, req *apiv1.ProduceRequest, ready chan<- *apiv1.ProduceResponse) error {
	if a.s.cfg.Ingress == nil {
		return status.Error(codes.Unimplemented, `this server has no ingress: use ack "applied"`)
	}
	resp := &apiv1.ProduceResponse{Number: req.Number, Sync: a.s.cfg.Sync, Results: make([]*apiv1.CommandResult, len(req.Commands))}
	var sound []*apiv1.Command
	var of []int
	for i, c := range req.Commands {
		if cmd := core.NewCommand(c, &core.Trigger{}, "", core.AttributionOf(ctx)); cmd.Err != nil {
			resp.Results[i] = core.Failed(cmd.Err)
			continue
		}
		if c.GetTrigger() == nil {
			c.Attribution = core.Attribute(c, core.AttributionOf(ctx))
		}
		sound, of = append(sound, c), append(of, i)
	}
	answer := func(results []*apiv1.CommandResult, err error) {
		for k, i := range of {
			if err != nil {
				resp.Results[i] = core.Failed(err)
			} else {
				resp.Results[i] = results[k]
			}
		}
		ready <- resp
	}
	origin := "producer"
	if p, ok := peer.FromContext(ctx); ok {
		origin += " " + p.Addr.String()
	}
	if err := a.s.cfg.Ingress.Accept(sound, origin, answer); err != nil {
		answer(nil, err)
	}
	return nil
}

// Apply executes commands that a server accepted into its ingress, and returns their results
// in the same order when they are durable. A command may be executed several times: only the
// first time changes anything. again says that some may have been executed before. The caller
// owns the results.
func (s *Services) Apply(ctx context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
	req := &apiv1.ProduceRequest{Commands: make([]*apiv1.Command, len(accepted))}
	for i, a := range accepted {
		req.Commands[i] = a.Command
	}
	m := core.Messages.Get() // not recycled: the caller owns its results
	m.Read(req, "", core.ByQueue)
	for i := range m.Commands {
		t := m.Commands[i].Trigger
		if t == nil || m.Commands[i].Err != nil {
			continue
		}
		if t.TraceParent == "" { // the command has none of its own
			t.TraceParent = accepted[i].TraceParent
		}
		if id := accepted[i].Run; len(id) == len(t.Run) && !t.HasKey() {
			t.Run, t.Again = job.RunID(id), again
			if !again {
				continue
			}
		} else if t.At = time.UnixMilli(accepted[i].AtMs); time.Since(t.At) < job.KeyWindow/2 {
			continue
		}
		// A key may have been forgotten, and the job may have moved to this partition
		// since. The run, if there is one, is in the history.
		ended, err := s.ended(ctx, t.App, t.RunID())
		if err != nil {
			return nil, err
		}
		m.Commands[i].Done = ended
	}
	if !s.loop.Mail.Do(func(l *core.Loop) { l.Commands.Produce(m) }) {
		return nil, core.ErrEnded
	}
	select {
	case resp := <-m.Ready:
		return resp.Results, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.loop.Mail.Done:
		return nil, core.ErrEnded
	}
}
