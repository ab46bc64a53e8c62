package api

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

type workerAPI struct {
	apiv1.UnimplementedWorkerServer
	s *Services
}

// Work serves the session of one host. The goroutine of the call sends. A second goroutine
// receives, and ends with the stream.
func (a *workerAPI) Work(stream apiv1.Worker_WorkServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello.GetHost() == "" || hello.GetSession() == "" {
		return status.Error(codes.InvalidArgument, "the first message of a host must say hello, with host and session")
	}
	ctx := stream.Context()
	if err := stream.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: a.s.cfg.ID, Epoch: a.s.cfg.Epoch}}); err != nil {
		return err
	}
	out := hosts.NewOutbox()
	me, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (core.Session, error) { return l.Sessions.Attach(hello, out) })
	if err != nil {
		return err
	}
	a.s.cfg.Logger.Info("host joined", "host", hello.Host, "name", hello.Name)
	received := make(chan error, 1)
	go func() { received <- a.receive(stream, me, first) }()
	err = send(stream, out, received)
	a.s.loop.Mail.Do(func(l *core.Loop) { l.Sessions.Detach(me) })
	a.s.cfg.Logger.Info("host left", "host", hello.Host, "name", hello.Name, "reason", err)
	return err
}

func (a *workerAPI) receive(stream apiv1.Worker_WorkServer, me core.Session, first *apiv1.WorkUp) error {
	for up := first; ; {
		// Store log lines before results, so that the log of a run that has ended is complete.
		if len(up.Logs) > 0 {
			if err := a.s.logs.add(up.Logs); err != nil {
				a.s.cfg.Logger.Warn("log lines were lost", "error", err)
			}
		}
		message := up
		if !a.s.loop.Mail.DoForHost(func(l *core.Loop) { l.Sessions.HandleHostMessage(me, message) }) {
			return core.ErrEnded
		}
		next, err := stream.Recv()
		if err != nil {
			return err
		}
		up = next
	}
}

// send sends the messages of the outbox until the outbox is closed, the stream fails, or the
// receiver ends.
func send(stream apiv1.Worker_WorkServer, out *hosts.Outbox, received <-chan error) error {
	for {
		m, closed := out.Take()
		if m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
			codec.FreeTasks(m.Tasks)
			continue
		}
		if closed {
			return status.Error(codes.Unavailable, "the server closed the stream: connect again")
		}
		select {
		case <-out.Kick:
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (a *workerAPI) FetchModule(req *apiv1.FetchModuleRequest, stream apiv1.Worker_FetchModuleServer) error {
	code, err := a.s.cfg.Modules.Get(req.Digest)
	if errors.Is(err, modules.ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return err
	}
	return transfer.Send(code, func(chunk []byte) error { return stream.Send(&apiv1.ModuleChunk{Data: chunk}) })
}
