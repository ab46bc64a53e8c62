package worker_test

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// TestTrace follows a trace from the caller of a command through the server to the context
// of a function, with and without a span of the worker.
func TestTrace(t *testing.T) {
	for name, recorded := range map[string]bool{"without a provider": false, "with a provider": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				spans := tracetest.NewInMemoryExporter()
				provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
				var opt worker.Options
				if recorded {
					opt.TracerProvider = provider
				}
				seen := make(chan trace.SpanContext, 10)
				defer w.work(opt, worker.Handle("f", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
					seen <- trace.SpanContextFromContext(ctx)
					return nil, worker.Permanent(worker.WithCode(errors.New("no"), "refused"))
				}))()
				client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{Dialer: w.dial})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close() //nolint:errcheck // every answer has come
				w.apply(&apiv1.Job{Name: "j", Handler: native("f")})

				state, err := trace.ParseTraceState("rojo=1")
				if err != nil {
					t.Fatal(err)
				}
				caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled, TraceState: state})
				calls := map[string]func(context.Context) error{
					"command": func(ctx context.Context) error {
						_, err := client.Trigger(ctx, sdk.Trigger{Job: "j"})
						return err
					},
					"call": func(ctx context.Context) error {
						_, err := client.TriggerRun(ctx, sdk.Trigger{Job: "j"})
						return err
					},
				}
				for kind, call := range calls {
					if err := call(trace.ContextWithSpanContext(t.Context(), caller)); err != nil {
						t.Fatal(err)
					}
					got := <-seen
					if got.TraceID() != caller.TraceID() || got.TraceState().String() != "rojo=1" || (got.SpanID() == caller.SpanID()) == recorded {
						t.Errorf("%s: the context of the function has %+v", kind, got)
					}
				}
				if err := calls["command"](t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := <-seen; got.IsValid() != recorded || got.TraceID() == caller.TraceID() {
					t.Errorf("without a trace of the caller: %+v", got)
				}
				if !recorded {
					return
				}
				w.wait(w.trigger("j")) // the spans of the others have ended by then
				s := spans.GetSpans()[0]
				if s.Name != "run j" || s.SpanKind != trace.SpanKindConsumer || s.Parent.SpanID() != caller.SpanID() || s.Status.Code != codes.Error {
					t.Errorf("the span of the attempt: %+v", s)
				}
			})
		})
	}
}
