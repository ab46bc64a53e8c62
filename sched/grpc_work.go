package sched

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/modules"
)

type workerAPI struct {
	apiv1.UnimplementedWorkerServer
	s *Server
}

// Work is one host's stream. The goroutine of the call sends, a second one
// receives; it ends with the stream.
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
	out := newOutbox()
	type session struct {
		h          *host
		generation uint64
	}
	me, err := ask(ctx, a.s.loop, func(l *loop) (session, error) {
		h, err := l.attach(hello, out)
		if err != nil {
			return session{}, err
		}
		return session{h, h.generation}, nil
	})
	if err != nil {
		return err
	}
	a.s.cfg.Logger.Info("host joined", "host", hello.Host, "name", hello.Name)
	received := make(chan error, 1)
	go func() { received <- a.receive(stream, me.h, me.generation, first) }()
	err = send(stream, out, received)
	a.s.loop.do(func(l *loop) { l.detach(me.h, me.generation) })
	a.s.cfg.Logger.Info("host left", "host", hello.Host, "name", hello.Name, "reason", err)
	return err
}

func (a *workerAPI) receive(stream apiv1.Worker_WorkServer, h *host, generation uint64, first *apiv1.WorkUp) error {
	for up := first; ; {
		// Lines before results: when a run has ended, its log is whole.
		if len(up.Logs) > 0 {
			if err := a.s.logs.add(up.Logs); err != nil {
				a.s.cfg.Logger.Warn("log lines were lost", "error", err)
			}
		}
		heard := up
		if !a.s.loop.doFirst(func(l *loop) { l.hear(h, generation, heard) }) {
			return errEnded
		}
		next, err := stream.Recv()
		if err != nil {
			return err
		}
		up = next
	}
}

// send empties the outbox into the stream until either ends.
func send(stream apiv1.Worker_WorkServer, out *outbox, received <-chan error) error {
	for {
		m, closed := out.take()
		if m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
			continue
		}
		if closed {
			return status.Error(codes.Unavailable, "the server closed the stream: connect again")
		}
		select {
		case <-out.kick:
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// chunkBytes is the size of a piece of a module on the wire.
const chunkBytes = 1 << 20

func (a *workerAPI) FetchModule(req *apiv1.FetchModuleRequest, stream apiv1.Worker_FetchModuleServer) error {
	code, err := a.s.cfg.Modules.Get(req.Digest)
	if errors.Is(err, modules.ErrNotFound) {
		return status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return err
	}
	for len(code) > 0 {
		n := min(len(code), chunkBytes)
		if err := stream.Send(&apiv1.ModuleChunk{Data: code[:n]}); err != nil {
			return err
		}
		code = code[n:]
	}
	return nil
}

type modulesAPI struct {
	apiv1.UnimplementedModulesServer
	s *Server
}

func (a *modulesAPI) PushModule(stream apiv1.Modules_PushModuleServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return status.Error(codes.InvalidArgument, "the first message of an upload must hold the head")
	}
	m, err := newModule(head)
	if err != nil {
		return err
	}
	code, err := receiveModule(stream)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	info, err := a.s.cfg.Inspect(ctx, code, head.Manifest)
	if err != nil {
		return invalid(err)
	}
	m.Kind, m.Handlers, m.Imports, m.Size, m.Requests = info.Kind, info.Handlers, info.Imports, int64(len(info.Code)), info.Requests
	if err := job.CheckGrants(m.Requests); err != nil {
		return invalid(fmt.Errorf("the manifest asks for what cannot be granted: %w", err))
	}
	if m.Digest, err = a.s.cfg.Modules.Put(info.Code); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	resp, err := askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.PushModuleResponse, error)) {
		m, result, err := l.putModule(m)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.PushModuleResponse{Module: m, Result: result}, err) })
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

func receiveModule(stream apiv1.Modules_PushModuleServer) ([]byte, error) {
	var code []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return code, nil
		}
		if err != nil {
			return nil, err
		}
		if code = append(code, part.GetChunk()...); len(code) > modules.MaxBytes {
			return nil, status.Errorf(codes.InvalidArgument, "the module is larger than %d MiB, which is the limit", modules.MaxBytes>>20)
		}
	}
}

func (a *modulesAPI) GetModule(ctx context.Context, req *apiv1.GetModuleRequest) (*apiv1.Module, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Module, error) {
		return l.module(appOf(req.App), req.Name+"@"+req.Version)
	})
}

func (a *modulesAPI) ListModules(ctx context.Context, req *apiv1.ListModulesRequest) (*apiv1.ListModulesResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListModulesResponse, error) {
		return &apiv1.ListModulesResponse{Modules: l.modules(appOf(req.App))}, nil
	})
}
