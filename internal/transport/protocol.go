package transport

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// protocol is the range of protocols that a process of an installation speaks with the
// others. A change that the other side would misunderstand is a new protocol: newest
// rises in the release that speaks it, and oldest in a later one. So processes of
// neighbouring versions understand each other, in whatever order they are updated. Fields
// that the other side may ignore need no new protocol.
type protocol struct{ oldest, newest int }

// Spoken is the range of this program.
var Spoken = protocol{1, 1}

// protocolHeader carries the range of the caller, as OLDEST-NEWEST, and in the answer the
// protocol that was chosen. A caller without the header speaks protocol 1: SDKs, and
// versions before the header existed.
const protocolHeader = "wheelwork-protocol"

func (p protocol) String() string {
	if p.oldest == p.newest {
		return strconv.Itoa(p.newest)
	}
	return fmt.Sprintf("%d to %d", p.oldest, p.newest)
}

func (p protocol) header() string { return fmt.Sprintf("%d-%d", p.oldest, p.newest) }

func parseProtocol(s string) (p protocol, ok bool) {
	oldest, newest, found := strings.Cut(s, "-")
	var err, err2 error
	p.oldest, err = strconv.Atoi(oldest)
	p.newest, err2 = strconv.Atoi(newest)
	return p, found && err == nil && err2 == nil && p.oldest >= 1 && p.oldest <= p.newest
}

// choose returns the newest protocol that both speak.
func (p protocol) choose(caller protocol) (int, error) {
	n := min(p.newest, caller.newest)
	switch {
	case n < p.oldest:
		return 0, status.Errorf(codes.FailedPrecondition, "the caller speaks protocol %v of the installation, and this server %v: bring the caller's program to the version of this server", caller, p)
	case n < caller.oldest:
		return 0, status.Errorf(codes.FailedPrecondition, "the caller speaks protocol %v of the installation, and this server %v: bring this server's program to the version of the caller", caller, p)
	}
	return n, nil
}

// answer checks the range of a caller. It returns the chosen protocol, or "" if the
// caller sent no header.
func (p protocol) answer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, protocolHeader)
	caller := protocol{1, 1}
	if len(values) > 0 {
		var ok bool
		if caller, ok = parseProtocol(values[0]); !ok || len(values) > 1 {
			return "", status.Errorf(codes.InvalidArgument, "the header %s is %.40q: want OLDEST-NEWEST", protocolHeader, values[0])
		}
	}
	n, err := p.choose(caller)
	if err != nil || len(values) == 0 {
		return "", err
	}
	return strconv.Itoa(n), nil
}

func (p protocol) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	chosen, err := p.answer(ctx)
	if err == nil && chosen != "" {
		err = grpc.SetHeader(ctx, metadata.Pairs(protocolHeader, chosen))
	}
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (p protocol) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	chosen, err := p.answer(s.Context())
	if err == nil && chosen != "" {
		err = s.SetHeader(metadata.Pairs(protocolHeader, chosen))
	}
	if err != nil {
		return err
	}
	return next(srv, s)
}

// chosen checks the answer of a server: without the header it speaks protocol 1.
func (p protocol) chosen(md metadata.MD) error {
	n := 1
	if v := md.Get(protocolHeader); len(v) > 0 {
		var err error
		if n, err = strconv.Atoi(v[0]); err != nil {
			return status.Errorf(codes.FailedPrecondition, "the server chose the protocol %.40q, which is none", v[0])
		}
	}
	if n < p.oldest || n > p.newest {
		return status.Errorf(codes.FailedPrecondition, "the server speaks protocol %d of the installation, and this process %v: bring the server's program to the version of this one", n, p)
	}
	return nil
}

// DialOptions send the range of this process to the server, and check its answer.
func (p protocol) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			var md metadata.MD
			ctx = metadata.AppendToOutgoingContext(ctx, protocolHeader, p.header())
			if err := call(ctx, method, req, reply, cc, append(opts, grpc.Header(&md))...); err != nil {
				return err
			}
			return p.chosen(md)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(metadata.AppendToOutgoingContext(ctx, protocolHeader, p.header()), d, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			return &agreedStream{ClientStream: s, p: p}, nil
		}),
	}
}

// agreedStream checks which protocol the server chose before it returns the first
// message.
type agreedStream struct {
	grpc.ClientStream
	p    protocol
	once sync.Once
	err  error
}

func (s *agreedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	s.once.Do(func() {
		var md metadata.MD
		if md, s.err = s.Header(); s.err == nil {
			s.err = s.p.chosen(md)
		}
	})
	return s.err
}
