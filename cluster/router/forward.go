package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Forwarder passes a call on to the server that has to answer it, and the answer back to
// the caller. It sends this server's own token and the role that the caller proved here.
// It never sends the caller's token: an address from a nameserver or from etcd must not
// learn it.
type Forwarder struct {
	Guard *access.Guard
	Peers *Peers
	// Accepts reports whether the server of an assignment knows [ActingHeader]. If it
	// does not, the caller gets the address of that server.
	Accepts func(*apiv1.Assignment) bool
}

// forwardHops bounds how often a call follows a partition that moves meanwhile.
const forwardHops = 3

// OwnerIn returns the other server that an error names; nil: it names none.
func OwnerIn(err error) *apiv1.Assignment {
	if status.Code(err) != codes.FailedPrecondition {
		return nil
	}
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok && a.GetAddress() != "" {
			return a
		}
	}
	return nil
}

// AddressIn returns the address that an error names; "": it names none.
func AddressIn(err error) string { return OwnerIn(err).GetAddress() }

// applies reports whether calls of a method are passed on. Those of hosts and workers are
// not: they hold sessions with the owner itself, whose address they get from a
// nameserver. A server that joins a nameserver means that one. No call is passed on
// twice.
func (f *Forwarder) applies(ctx context.Context, method string) bool {
	need := f.Guard.Permission(method)
	passed := len(metadata.ValueFromIncomingContext(ctx, access.ActingHeader)) > 0
	return need != "work" && need != access.Execute && need != "serve" && !passed
}

// to returns the server to which a call is passed on; nil: err is the answer.
func (f *Forwarder) to(err error) *apiv1.Assignment {
	if a := OwnerIn(err); a != nil && f.Accepts(a) {
		return a
	}
	return nil
}

// outgoing returns the context of the call to the other server, with the caller's role
// and trace.
func (f *Forwarder) outgoing(ctx context.Context, method string) (context.Context, error) {
	r, err := f.Guard.Caller(ctx, method)
	if err != nil {
		return nil, err
	}
	md := metadata.Pairs(access.ActingHeader, r.Name)
	for _, trace := range []string{"traceparent", "tracestate"} {
		md.Append(trace, metadata.ValueFromIncomingContext(ctx, trace)...)
	}
	return metadata.NewOutgoingContext(ctx, md), nil
}

func (f *Forwarder) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	if err == nil || !f.applies(ctx, info.FullMethod) {
		return resp, err
	}
	for range forwardHops {
		to := f.to(err)
		if to == nil {
			return resp, err
		}
		resp, err = f.call(ctx, to, info.FullMethod, req)
	}
	return resp, settled(err)
}

// call makes one call to another server. Its error names a third one if the partition has
// moved on meanwhile.
func (f *Forwarder) call(ctx context.Context, to *apiv1.Assignment, method string, req any) (any, error) {
	reply, err := replyOf(method)
	if err != nil {
		return nil, err
	}
	conn, err := f.Peers.Conn(to.Address)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out, err := f.outgoing(ctx, method)
	if err != nil {
		return nil, err
	}
	answer := reply.New().Interface()
	if err := conn.Invoke(out, method, req, answer); err != nil {
		return nil, passedOn(to, err)
	}
	return answer, nil
}

// passedOn turns an error of the server to which a call was passed on into the error for
// the caller. The partition in it lets clients wait until another server owns that.
func passedOn(to *apiv1.Assignment, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		return later(to.Unit, "the server at %s, which this server passed the call on to: %s", to.Address, s.Message())
	case codes.Unauthenticated: // the caller's own token was accepted here
		return later(to.Unit, "the server at %s refused the key of this cluster: a server of another installation listens there", to.Address)
	}
	return err
}

// settled turns the error of a call that must not be passed on further into the answer.
func settled(err error) error {
	if a := OwnerIn(err); a != nil {
		return later(a.Unit, "what the call is about moves between servers now: try again in a moment")
	}
	return err
}

// later returns an error that goes away by itself. It names the partition that will have
// another owner then, and no address.
func later(partition, format string, args ...any) error {
	s := status.New(codes.Unavailable, fmt.Sprintf(format, args...))
	if partition == "" {
		return s.Err()
	}
	if with, err := s.WithDetails(&apiv1.Assignment{Unit: partition}); err == nil {
		s = with
	}
	return s.Err()
}

func (f *Forwarder) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !f.applies(s.Context(), info.FullMethod) {
		return next(srv, s)
	}
	b := &beginning{ServerStream: s}
	err := next(srv, b)
	to := f.to(err)
	if to == nil {
		return err
	}
	if b.received.Load() != 1 || b.answered.Load() {
		return later(to.Unit, "what the stream is about went to another server: connect again")
	}
	return settled(f.pass(s, to, info, b.first))
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

// pass relays a stream to another server until either end of it has ended.
func (f *Forwarder) pass(s grpc.ServerStream, to *apiv1.Assignment, info *grpc.StreamServerInfo, first proto.Message) error {
	reply, err := replyOf(info.FullMethod)
	if err != nil {
		return err
	}
	conn, err := f.Peers.Conn(to.Address)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	out, err := f.outgoing(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	out, cancel := context.WithCancel(out)
	defer cancel()
	desc := &grpc.StreamDesc{ServerStreams: info.IsServerStream, ClientStreams: info.IsClientStream}
	up, err := conn.NewStream(out, desc, info.FullMethod)
	if err != nil {
		return passedOn(to, err)
	}
	// An error of SendMsg says only that the stream has ended; RecvMsg says why.
	if err := up.SendMsg(first); err == nil && info.IsClientStream {
		go sendUp(s, up, first.ProtoReflect().Type(), cancel) // returns when the caller's stream ends, at the latest
	} else if err == nil {
		_ = up.CloseSend()
	}
	for {
		answer := reply.New().Interface()
		switch err := up.RecvMsg(answer); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return passedOn(to, err)
		}
		if err := s.SendMsg(answer); err != nil {
			return err
		}
	}
}

// sendUp relays the caller's messages, and the end of its stream, to the other server.
func sendUp(from grpc.ServerStream, up grpc.ClientStream, request protoreflect.MessageType, cancel func()) {
	for {
		m := request.New().Interface()
		switch err := from.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			_ = up.CloseSend() // RecvMsg returns the reason of a failure
			return
		case err != nil:
			cancel()
			return
		}
		if up.SendMsg(m) != nil {
			return
		}
	}
}

// replyOf returns the response type of "/package.Service/Method".
func replyOf(method string) (protoreflect.MessageType, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("pass on a call of %s: %w", method, err)
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("pass on a call of %s: it is not a method", method)
	}
	return protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
}
