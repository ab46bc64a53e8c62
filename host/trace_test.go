package host

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// An attempt is a span in the trace of the call that triggered its run, and the handler
// gets the ID of that span.
func TestAttemptIsASpanOfTheRunsTrace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		spans := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		told := make(chan string, 1)
		b.engine.run = func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			told <- task.TraceParent
			return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
		}
		stop := b.start(func(c *Config) { c.Tracer = provider.Tracer("test") })
		<-b.server.hello
		const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		task := aTask(1)
		task.TraceParent = "00-" + trace + "-" + parent + "-01"
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{task}}
		b.server.results()
		stop()
		got := spans.GetSpans()
		if len(got) != 1 {
			t.Fatalf("%d spans", len(got))
		}
		s := got[0]
		if s.SpanContext.TraceID().String() != trace || s.Parent.SpanID().String() != parent || s.Name != "run j" || s.Status.Code != codes.Error {
			t.Fatalf("span: %+v", s)
		}
		if want := s.SpanContext.SpanID().String(); !strings.Contains(<-told, trace+"-"+want) {
			t.Error("the handler was told of another span")
		}
	})
}
