package host

import (
	"testing"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// BenchmarkGrants reads the grants of a task from the cache, and decodes them.
func BenchmarkGrants(b *testing.B) {
	encoded, err := proto.Marshal(&apiv1.Grants{
		Http:    []*apiv1.HttpGrant{{Host: "api.example.com", Methods: []string{"GET"}, Paths: []string{"/v1"}}},
		Kv:      []*apiv1.BucketGrant{{Name: "state", Write: true}},
		Secrets: []string{"api-token"},
	})
	if err != nil {
		b.Fatal(err)
	}
	var cache grantCache
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			if cache.of(encoded) == nil {
				b.Fatal("there are grants")
			}
		}
	})
	b.Run("decoded", func(b *testing.B) {
		for b.Loop() {
			if new(grantCache).of(encoded) == nil {
				b.Fatal("there are grants")
			}
		}
	})
}

// BenchmarkSpan starts and ends the span of a task without a trace, in a host that records
// nothing, with and without the check for it.
func BenchmarkSpan(b *testing.B) {
	m := &apiv1.Task{Run: make([]byte, 16), App: "a", Job: "j", Module: "m@1"}
	for _, untraced := range []bool{true, false} {
		name := map[bool]string{true: "untraced", false: "traced"}[untraced]
		b.Run(name, func(b *testing.B) {
			h := &Host{untraced: untraced, cfg: Config{Tracer: noop.NewTracerProvider().Tracer("")}}
			b.ReportAllocs()
			for b.Loop() {
				_, span := h.span(b.Context(), m)
				span.End()
			}
		})
	}
}
