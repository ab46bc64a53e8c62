package transport

import (
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// maxParts bounds the messages within one message: an empty one has two bytes on the
	// wire and a hundred or more in memory.
	maxParts = 50_000
	// maxSetParts is maxParts for a change set: 50 000 jobs with ten parts each.
	maxSetParts = 500_000
	maxDepth    = 100
	// uncounted is the size in bytes up to which a message is too small to have many
	// parts.
	uncounted = 64 << 10
)

// sizes is a codec that does not decode messages larger than their senders may send.
// Hosts, servers and producers send many commands or results in one message, and a change set
// has many definitions; all other messages have one thing.
type sizes struct {
	encoding.CodecV2
	limit atomic.Int64                   // bytes; see Limits.Inflated
	large map[protoreflect.FullName]bool // message types that only maxMessage bounds
	set   protoreflect.FullName          // the message type of change sets: maxMessage and maxSetParts bound it

	// A codec cannot set the status of its error, so a refusal waits here for the
	// interceptor, which is called right after.
	pending atomic.Int64
	refused sync.Map // from the message, which stays empty, to its error
}

func newSizes(c encoding.CodecV2, limit int64, permissions iter.Seq2[string, string]) *sizes {
	s := &sizes{CodecV2: c, large: map[protoreflect.FullName]bool{}, set: (&apiv1.ApplyChangeSetRequest{}).ProtoReflect().Descriptor().FullName()}
	s.limit.Store(limit)
	for method, permission := range permissions {
		switch permission {
		case "work", "execute", "serve", "state": // for the processes of the installation
		default:
			if method != apiv1.Producer_Produce_FullMethodName {
				continue
			}
		}
		if m := methodOf(method); m != nil {
			s.large[m.Input().FullName()] = true
		}
	}
	return s
}

// methodOf returns the method with the name that gRPC gives it; nil: there is none.
func methodOf(name string) protoreflect.MethodDescriptor {
	full := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}

// Unmarshal implements [encoding.CodecV2].
func (s *sizes) Unmarshal(data mem.BufferSlice, v any) error {
	if n := data.Len(); n > uncounted {
		if err := s.check(data, n, v); err != nil {
			s.refused.Store(v, err)
			s.pending.Add(1)
			return nil
		}
	}
	return s.CodecV2.Unmarshal(data, v)
}

func (s *sizes) check(data mem.BufferSlice, n int, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return nil
	}
	d := m.ProtoReflect().Descriptor()
	if s.large[d.FullName()] {
		return nil
	}
	most := maxParts
	if d.FullName() == s.set {
		most = maxSetParts
	} else if limit := s.limit.Load(); int64(n) > limit {
		return status.Errorf(codes.ResourceExhausted, "the message has %d bytes, more than %d, the limit of the server: send less at a time, or raise --max-inflated", n, limit)
	}
	flat := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer flat.Free()
	left := most
	if !countParts(flat.ReadOnlyData(), d, &left, maxDepth) {
		return status.Errorf(codes.ResourceExhausted, "the message has more than %d parts, or parts within parts deeper than %d: send less at a time", most, maxDepth)
	}
	return nil
}

// countParts subtracts the messages within a message from left, and reports whether that
// was enough. Bytes that are no valid message are left to the decoder.
func countParts(b []byte, d protoreflect.MessageDescriptor, left *int, depth int) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return true
		}
		if f := d.Fields().ByNumber(number); f != nil && f.Message() != nil && kind == protowire.BytesType {
			part, _ := protowire.ConsumeBytes(b)
			if *left--; *left < 0 || depth == 0 || !countParts(part, f.Message(), left, depth-1) {
				return false
			}
		}
		b = b[size:]
	}
	return true
}

// refusal returns why a message was not decoded; nil: it was.
func (s *sizes) refusal(m any) error {
	if s.pending.Load() == 0 {
		return nil
	}
	err, ok := s.refused.LoadAndDelete(m)
	if !ok {
		return nil
	}
	s.pending.Add(-1)
	return err.(error)
}

func (s *sizes) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.refusal(req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s *sizes) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, sizedStream{stream, s})
}

// sizedStream returns an error in place of a message that was refused.
type sizedStream struct {
	grpc.ServerStream
	sizes *sizes
}

// RecvMsg implements [grpc.ServerStream].
func (s sizedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.sizes.refusal(m)
}
