package session

import (
	"context"
	"encoding/base32"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// crockford is the alphabet of run ids.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// RunText returns the id of a run as people see it.
func RunText(id []byte) string { return crockford.EncodeToString(id) }

// ContextOf returns ctx with the trace of a task's run.
func ContextOf(ctx context.Context, t *apiv1.Task) context.Context {
	if t.TraceParent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.TraceParent, "tracestate": t.GetTraceState()})
}

// StartSpan starts the span of an attempt in the trace of its run, and makes it the parent
// in the task. The caller ends it with EndSpan.
func StartSpan(ctx context.Context, tracer trace.Tracer, t *apiv1.Task) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ContextOf(ctx, t), "run "+t.Job, trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("wheelwork.run.id", RunText(t.Run)), attribute.String("wheelwork.app", t.App),
			attribute.String("wheelwork.job", t.Job), attribute.Int("wheelwork.run.attempt", int(t.Attempt)))
		if t.Module != "" {
			span.SetAttributes(attribute.String("wheelwork.module", t.Module))
		} else {
			span.SetAttributes(attribute.String("wheelwork.handler", t.Handler))
		}
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		t.TraceParent, t.TraceState = carrier["traceparent"], nil
		if state := carrier["tracestate"]; state != "" {
			t.TraceState = &state
		}
	}
	return ctx, span
}

// EndSpan ends the span of an attempt with its outcome.
func EndSpan(span trace.Span, outcome apiv1.Outcome, code, message string) {
	if outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
		span.SetStatus(codes.Error, message)
		if code != "" && span.IsRecording() {
			span.SetAttributes(attribute.String("wheelwork.run.code", code))
		}
	}
	span.End()
}
