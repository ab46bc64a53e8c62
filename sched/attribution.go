package sched

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// The headers with which a client says why it changes definitions, and what program it is.
const (
	NoteHeader     = "wheelwork-note"
	CauseHeader    = "wheelwork-cause"
	RollbackHeader = "wheelwork-rollback" // the number of the revision that the change brings back
)

// attributed reports whether the changes of a method have an attribution: all but triggers, because a
// run says what triggered it, and the methods of hosts and servers.
func attributed(method string) bool {
	switch need := methods.Of(method).Permission; need {
	case "", access.Public, access.Self, access.Execute, "jobs.trigger", "work", "serve", "state":
		return false
	default:
		return !strings.HasSuffix(need, ".read")
	}
}

// AttributeUnary is a [grpc.UnaryServerInterceptor]. It puts the attribution of a call that changes
// something into the context: the caller, and what the headers say. It must follow the guard.
func AttributeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := withAttribution(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// AttributeStream is a [grpc.StreamServerInterceptor] that does for streams what AttributeUnary does.
func AttributeStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := withAttribution(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if ctx != s.Context() {
		s = attributedStream{s, ctx}
	}
	return next(srv, s)
}

// attributedStream is a stream with an attribution in its context.
type attributedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s attributedStream) Context() context.Context { return s.ctx }

// withAttribution returns the context of a call of the method with its attribution, if it has one.
func withAttribution(ctx context.Context, method string) (context.Context, error) {
	if !attributed(method) {
		return ctx, nil
	}
	by := &apiv1.Attribution{}
	if p := access.Caller(ctx); p != nil {
		by.Author, by.Kind, by.Token, by.Address = p.Author(), p.Kind, p.Token, p.AddressOf(ctx)
	}
	rollback := ""
	for name, to := range map[string]*string{NoteHeader: &by.Note, CauseHeader: &by.Cause, RollbackHeader: &rollback} {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 {
			return nil, status.Errorf(codes.InvalidArgument, "the header %s is there %d times", name, len(values))
		}
		text, err := url.PathUnescape(values[0])
		if err != nil || !utf8.ValidString(text) {
			return nil, status.Errorf(codes.InvalidArgument, "the header %s is not UTF-8, escaped as in the path of a URL", name)
		}
		*to = text
	}
	if rollback != "" {
		n, err := strconv.ParseInt(rollback, 10, 64)
		if err != nil || n < 1 {
			return nil, status.Errorf(codes.InvalidArgument, "the header %s is %q, want the number of a revision", RollbackHeader, rollback)
		}
		by.Rollback = n
	}
	if err := core.CheckAttribution(by); err != nil {
		return nil, err
	}
	return core.WithAttribution(ctx, by), nil
}
