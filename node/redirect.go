package node

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// redirector makes the calls of the console and of HTTP/JSON go to where their app
// is: a browser talks to one server, whichever that is. The caller's token goes
// with the call, and the owner looks at it again.
type redirector struct {
	dial func(address string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

const (
	redirectHops = 3 // two servers that each name the other would keep a call for ever
	// redirectConns bounds the connections that are kept.
	redirectConns = 64
	// redirectBytes bounds what of a stream is kept to be sent again.
	redirectBytes = 128 << 20
)

func newRedirector(caCert string) *redirector {
	return &redirector{conns: map[string]*grpc.ClientConn{}, dial: func(address string) (*grpc.ClientConn, error) {
		if err := checkPeer(address, caCert); err != nil {
			return nil, err
		}
		creds, err := transport(caCert)
		if err != nil {
			return nil, err
		}
		return grpc.NewClient(address, append(dialOptions(), grpc.WithTransportCredentials(creds))...)
	}}
}

func (f *redirector) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream)}
}

// Close closes the connections.
func (f *redirector) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, c := range f.conns {
		errs = append(errs, c.Close())
	}
	f.conns = map[string]*grpc.ClientConn{}
	return errors.Join(errs...)
}

func (f *redirector) to(address string) (*grpc.ClientConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.conns[address]; c != nil {
		return c, nil
	}
	if len(f.conns) >= redirectConns {
		return nil, status.Errorf(codes.ResourceExhausted, "the server follows to %d others already", redirectConns)
	}
	c, err := f.dial(address)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	f.conns[address] = c
	return c, nil
}

// named returns the address that a refusal names; "" when it is no such refusal.
func named(err error) string {
	if status.Code(err) != codes.FailedPrecondition {
		return ""
	}
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok {
			return a.GetAddress()
		}
	}
	return ""
}

func (f *redirector) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	for range redirectHops {
		address := named(err)
		if address == "" {
			return err
		}
		c, cerr := f.to(address)
		if cerr != nil {
			return cerr
		}
		err = c.Invoke(ctx, method, req, reply, opts...)
	}
	return err
}

func (f *redirector) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	again := func(c *grpc.ClientConn) (grpc.ClientStream, error) { return c.NewStream(ctx, desc, method, opts...) }
	return &redirected{ClientStream: s, f: f, again: again}, nil
}

// redirected is a stream that begins again elsewhere, as long as nothing has come
// on it. It is used by one goroutine, as the console's are.
type redirected struct {
	grpc.ClientStream
	f     *redirector
	again func(*grpc.ClientConn) (grpc.ClientStream, error)

	sent  []proto.Message
	bytes int
	ended bool // the caller has sent all
	heard bool
	hops  int
}

// SendMsg implements [grpc.ClientStream].
func (s *redirected) SendMsg(m any) error {
	if p, ok := m.(proto.Message); ok && !s.heard {
		s.sent = append(s.sent, proto.Clone(p))
		if s.bytes += proto.Size(p); s.bytes > redirectBytes {
			s.sent, s.heard = nil, true // it cannot be sent again
		}
	}
	err := s.ClientStream.SendMsg(m)
	if errors.Is(err, io.EOF) && !s.heard {
		return nil // the server has ended the stream: RecvMsg learns why, and all that was sent goes to who is named
	}
	return err
}

// CloseSend implements [grpc.ClientStream].
func (s *redirected) CloseSend() error {
	s.ended = true
	return s.ClientStream.CloseSend()
}

// RecvMsg implements [grpc.ClientStream].
func (s *redirected) RecvMsg(m any) error {
	for {
		err := s.ClientStream.RecvMsg(m)
		if err == nil {
			s.heard, s.sent = true, nil
			return nil
		}
		if s.heard || named(err) == "" {
			return err
		}
		if err := s.follow(err); err != nil {
			return err
		}
	}
}

// follow begins the stream again where a refusal says; an error that names
// nobody is returned.
func (s *redirected) follow(why error) error {
	address := named(why)
	if address == "" || s.hops == redirectHops {
		return why
	}
	s.hops++
	c, err := s.f.to(address)
	if err != nil {
		return err
	}
	next, err := s.again(c)
	if err != nil {
		return err
	}
	s.ClientStream = next
	for _, m := range s.sent {
		if err := next.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if s.ended {
		return next.CloseSend()
	}
	return nil
}
