package sdk_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

const (
	traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceState  = "rojo=1,congo=2"
)

// inTrace returns a context with the span of a caller.
func inTrace(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	traceID, err := trace.TraceIDFromHex(traceParent[3:35])
	if err != nil {
		t.Fatal(err)
	}
	spanID, err := trace.SpanIDFromHex(traceParent[36:52])
	if err != nil {
		t.Fatal(err)
	}
	state, err := trace.ParseTraceState(traceState)
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

// TestTraceContext checks that calls carry the trace of their caller in their metadata, and
// that each command carries that of its own caller.
func TestTraceContext(t *testing.T) {
	commands := make(chan *apiv1.Command, 10)
	f := start(t, sdktest.Config{Before: func(r *apiv1.ProduceRequest) error {
		for _, c := range r.GetCommands() {
			commands <- c
		}
		return nil
	}})
	headers := make(chan metadata.MD, 10)
	c := f.dial(t, sdk.Options{DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			headers <- md
			return next(ctx, method, req, reply, cc, opts...)
		})}})
	<-headers // of Dial
	for _, ctx := range []context.Context{t.Context(), inTrace(t, t.Context())} {
		parent, state := "", ""
		if trace.SpanContextFromContext(ctx).IsValid() {
			parent, state = traceParent, traceState
		}
		if _, err := c.Hosts(ctx); err != nil {
			t.Fatal(err)
		}
		md := <-headers
		if got := headerOf(md.Get("traceparent")) + " " + headerOf(md.Get("tracestate")); got != parent+" "+state {
			t.Errorf("a call has the trace %q, want %q %q", got, parent, state)
		}
		if _, err := c.Apply(ctx, &sdk.Job{Name: "j", Handler: &sdk.Handler{Module: "m@1"}}); err != nil {
			t.Fatal(err)
		}
		if got := <-commands; got.Trace != nil {
			t.Errorf("an apply has the trace %v", got.Trace)
		}
		if _, err := c.Trigger(ctx, sdk.Trigger{Job: "j"}); err != nil {
			t.Fatal(err)
		}
		if got := <-commands; got.Trace.GetParent() != parent || got.Trace.GetState() != state {
			t.Errorf("a trigger has the trace %q %q, want %q %q", got.Trace.GetParent(), got.Trace.GetState(), parent, state)
		}
	}
}

func headerOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
