package sdk

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// traced adds the W3C trace context in ctx to the metadata of a call, so that the server's
// span is a part of the caller's trace. Without a trace it returns ctx itself.
func traced(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	propagation.TraceContext{}.Inject(ctx, headers(md))
	return metadata.NewOutgoingContext(ctx, md)
}

// traceCommand stores the W3C trace context in ctx in a trigger. The commands of many
// callers share one stream, so its metadata cannot carry the traces.
func traceCommand(ctx context.Context, c *apiv1.Command) {
	if c.GetTrigger() == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	c.Trace = &apiv1.TraceContext{Parent: carrier["traceparent"], State: carrier["tracestate"]}
}

// headers is the metadata of a call as the carrier of a propagator.
type headers metadata.MD

// Get implements [propagation.TextMapCarrier].
func (h headers) Get(key string) string {
	if v := metadata.MD(h).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (h headers) Set(key, value string) { metadata.MD(h).Set(key, value) }

// Keys implements [propagation.TextMapCarrier].
func (h headers) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}
