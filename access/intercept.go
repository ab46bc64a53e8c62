package access

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job"
)

// Unary implements [grpc.UnaryServerInterceptor]. The call of next has the principal in its
// context, see [Caller].
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	p, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	g.use(p)
	if p == nil {
		resp, err := next(ctx, req)
		return g.learned(ctx, resp, err)
	}
	m := g.methods[info.FullMethod]
	if err := may(p, info.FullMethod, m, req, true); err != nil {
		return nil, g.refused(ctx, p, info.FullMethod, appOf(m, req), err)
	}
	resp, err := next(With(ctx, p), req)
	if resp, err = g.learned(ctx, resp, err); err != nil {
		return resp, err
	}
	if list, ok := resp.(*apiv1.ListPrincipalsResponse); ok {
		return g.listed(p, list), nil
	}
	if msg, ok := resp.(proto.Message); ok {
		return shown(p, appOf(m, req), msg), nil
	}
	return resp, nil
}

// learned returns the answer to a call, that to a sign-in when the guard knows the token of the session.
func (g *Guard) learned(ctx context.Context, resp any, err error) (any, error) {
	if s, ok := resp.(*apiv1.SignInResponse); ok && err == nil {
		g.learn(ctx, s.Token)
	}
	return resp, err
}

// usedEvery is how often the use of a token is noted: each note is a record.
const usedEvery = time.Hour

// use reports the use of a session whose end should move, or of a token whose last use is too long
// ago.
func (g *Guard) use(p *Principal) {
	if p == nil || g.Used == nil {
		return
	}
	if p.session != nil {
		if now := time.Now(); now.Add(sessionIdle-sessionMoves).After(p.session.ends) && p.session.told.CompareAndSwap(false, true) {
			g.Used(p.Token)
		}
		return
	}
	if p.usedMs == nil {
		return
	}
	if now, last := time.Now().UnixMilli(), p.usedMs.Load(); now-last >= usedEvery.Milliseconds() && p.usedMs.CompareAndSwap(last, now) {
		g.Used(p.Token)
	}
}

// appOf returns the app of a request; "": it is about none.
func appOf(m methods.Method, req any) string {
	msg, ok := req.(proto.Message)
	if m.Apps != methods.One || !ok {
		return ""
	}
	if app := m.App(msg); app != "" {
		return app
	}
	return defaultApp
}

// Stream implements [grpc.StreamServerInterceptor]. Each message that the server reads was
// checked, and none is sent with what the caller may not see.
func (g *Guard) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	p, err := g.admit(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	g.use(p)
	if p == nil {
		return settled(s, next(srv, s))
	}
	if info.FullMethod == apiv1.Worker_Work_FullMethodName && !p.Process.may(Execute) {
		s = nativeOnly{s, p}
	}
	if info.FullMethod == apiv1.Worker_Work_FullMethodName && p.Machine != nil {
		s = claimed{s, p}
	}
	end, err := g.opens(p)
	if err != nil {
		return err
	}
	defer end()
	of := &guarded{ServerStream: s, g: g, ctx: With(s.Context(), p), p: p, name: info.FullMethod, method: g.methods[info.FullMethod]}
	defer of.end()
	return settled(s, next(srv, of))
}

// settled returns the error of a stream: the reason why the guard has ended it, or err.
func settled(s grpc.ServerStream, err error) error {
	for _, reason := range []error{errRemoved, errExpired} {
		if errors.Is(context.Cause(s.Context()), reason) {
			return reason
		}
	}
	return err
}

// guarded is a stream whose messages are checked.
type guarded struct {
	grpc.ServerStream
	g      *Guard
	ctx    context.Context
	p      *Principal
	name   string
	method methods.Method
	began  bool   // the first message was received
	app    string // of the first message
	closed func() // counts the stream of the app off; nil: it is not counted
	refusals
}

// end counts the stream off. The handler has returned.
func (s *guarded) end() {
	if s.closed != nil {
		s.closed()
	}
}

// Context implements [grpc.ServerStream].
func (s *guarded) Context() context.Context { return s.ctx }

// RecvMsg implements [grpc.ServerStream].
func (s *guarded) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if q, ok := m.(*apiv1.ProduceRequest); ok {
		if err := s.check(s.p, q); err != nil {
			s.g.refused(s.ctx, s.p, s.name, "", err) //nolint:errcheck // the client gets it with the result of its command
		}
		return nil
	}
	first := !s.began
	if first {
		s.began, s.app = true, appOf(s.method, m)
	}
	if err := may(s.p, s.name, s.method, m, first); err != nil {
		return s.g.refused(s.ctx, s.p, s.name, s.app, err)
	}
	if first {
		var err error
		if s.closed, err = s.g.opensFor(s.p, s.app); err != nil {
			return err
		}
	}
	return nil
}

// SendMsg implements [grpc.ServerStream].
func (s *guarded) SendMsg(m any) error {
	if resp, ok := m.(*apiv1.ProduceResponse); ok {
		s.answer(resp)
	} else if msg, ok := m.(proto.Message); ok {
		m = shown(s.p, s.app, msg)
	}
	return s.ServerStream.SendMsg(m)
}

// nativeOnly is the stream of a worker that may execute only functions of its own. It
// refuses a worker that claims to run anything else, so the server sends it nothing else.
type nativeOnly struct {
	grpc.ServerStream
	p *Principal
}

func (s nativeOnly) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	up, ok := m.(*apiv1.WorkUp)
	if !ok {
		return status.Errorf(codes.Internal, "a worker sent a %T", m)
	}
	claims := append(slices.Clone(up.GetHello().GetAbi()), up.GetAbilities().GetAbi()...)
	if up.Hello != nil && len(up.Hello.Abi) == 0 {
		claims = []string{"modules"} // a hello without an ABI claims modules
	}
	for _, abi := range claims {
		if e, err := job.ParseExecutor(abi); err != nil || e.Kind != job.Native {
			return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s: it is for workers that run functions of their own (native:NAME), and this host offers %.60s; a host joins with the token that the processes of the installation share (--token-file)", s.p.title(), Execute, abi)
		}
	}
	return nil
}
