package router

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Interceptor passes a call on to the server that has to answer it, and the answer back to
// the caller. It sends this server's own token and the principal that the caller proved here.
// It never sends the caller's token: an address from a nameserver or from etcd must not
// learn it.
type Interceptor struct {
	Guard     *access.Guard
	Forwarder *Forwarder
	// Accepts reports whether the server of an assignment knows [ActingHeader]. If it
	// does not, the caller gets the address of that server.
	Accepts func(*apiv1.Assignment) bool
}

// forwardHops bounds how often a call follows a partition that moves meanwhile.
const forwardHops = 3

// applies reports whether calls of a method are passed on. Those of hosts and workers are
// not: they hold sessions with the owner itself, whose address they get from a
// nameserver. A server that joins a nameserver means that one. No call is passed on
// twice.
func (i *Interceptor) applies(ctx context.Context, method string) bool {
	need := i.Guard.Permission(method)
	passed := len(metadata.ValueFromIncomingContext(ctx, access.ActingHeader)) > 0
	return need != "work" && need != access.Execute && need != "serve" && !passed
}

// to returns the server to which a call is passed on; nil: err is the answer.
func (i *Interceptor) to(err error) *apiv1.Assignment {
	if a := OwnerIn(err); a != nil && i.Accepts(a) {
		return a
	}
	return nil
}

// outgoing returns the context of the call to the other server, with the caller, its
// trace and attribution.
func (i *Interceptor) outgoing(ctx context.Context, method string) (context.Context, error) {
	md := metadata.MD{}
	if p := access.Caller(ctx); p != nil {
		var err error
		if md, err = p.Passed(ctx); err != nil {
			return nil, err
		}
	} else if i.Guard.Permission(method) != access.Public { // a sign-in has no caller yet
		return nil, status.Errorf(codes.Internal, "the server answers %s itself, and was to pass it on", method)
	}
	for _, header := range []string{"traceparent", "tracestate", sched.NoteHeader, sched.CauseHeader, sched.RollbackHeader} {
		md.Append(header, metadata.ValueFromIncomingContext(ctx, header)...)
	}
	return metadata.NewOutgoingContext(ctx, md), nil
}

// Unary implements [grpc.UnaryServerInterceptor]. It follows a partition that moves
// meanwhile for a few times.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	if err == nil || !i.applies(ctx, info.FullMethod) {
		return resp, err
	}
	for range forwardHops {
		to := i.to(err)
		if to == nil {
			return resp, err
		}
		out, refused := i.outgoing(ctx, info.FullMethod)
		if refused != nil {
			return nil, refused
		}
		resp, err = i.Forwarder.Invoke(out, to, info.FullMethod, req)
	}
	return resp, settled(err)
}

// Stream implements [grpc.StreamServerInterceptor]. A stream is passed on only if it was
// refused because of its first message.
func (i *Interceptor) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !i.applies(s.Context(), info.FullMethod) {
		return next(srv, s)
	}
	b := &beginning{ServerStream: s}
	err := next(srv, b)
	to := i.to(err)
	if to == nil {
		return err
	}
	if b.received.Load() != 1 || b.answered.Load() {
		return later(to.Unit, "what the stream is about went to another server: connect again")
	}
	out, err := i.outgoing(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return settled(i.Forwarder.Stream(out, to, info, b.first, s))
}

// beginning is a stream that keeps its first message: if the stream is refused because of
// that message, it begins again at another server.
type beginning struct {
	grpc.ServerStream
	first    proto.Message // set before received becomes 1
	received atomic.Int64
	answered atomic.Bool
}

// RecvMsg implements [grpc.ServerStream].
func (b *beginning) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if p, ok := m.(proto.Message); ok && b.received.Load() == 0 {
		b.first = proto.Clone(p)
	}
	b.received.Add(1)
	return nil
}

// SendMsg implements [grpc.ServerStream].
func (b *beginning) SendMsg(m any) error {
	if !b.answered.Load() {
		b.answered.Store(true)
	}
	return b.ServerStream.SendMsg(m)
}
