package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
)

// TestTelemetryVariables sends a span to a collector over HTTP, as the variables of
// OpenTelemetry say.
func TestTelemetryVariables(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		want []string // texts in what the collector gets; nil: it gets nothing
	}{
		{"names of the operator", map[string]string{"OTEL_SERVICE_NAME": "my-sched", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}, []string{"my-sched", "deployment.environment", "test", "service.version"}},
		{"name in the attributes", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "service.name=attr-sched"}, []string{"attr-sched"}},
		{"no names", nil, []string{"wheelwork-server"}},
		{"exporter otlp", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, []string{"wheelwork-server"}},
		{"exporter none", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, nil},
		{"disabled", map[string]string{"OTEL_SDK_DISABLED": "true"}, nil},
		{"sampler", map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}, nil},
		{"sampler with an argument", map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan string, 10)
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.URL.Path != "/v1/traces" {
					t.Errorf("%s: %v", r.URL.Path, err)
				}
				got <- string(body)
			}))
			defer collector.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			tel, err := newTelemetry(t.Context(), "server")
			if err != nil {
				t.Fatal(err)
			}
			_, span := tel.tracer.Start(t.Context(), "one span")
			span.End()
			if err := tel.Close(); err != nil { // sends it
				t.Fatal(err)
			}
			if tt.want == nil {
				if len(got) > 0 {
					t.Errorf("the collector got %q", <-got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("the collector got %d messages", len(got))
			}
			body := <-got
			for _, want := range append(tt.want, "one span") {
				if !strings.Contains(body, want) {
					t.Errorf("%q is not in %q", want, body)
				}
			}
		})
	}
}

// TestSpanExporter checks when there are traces at all, and that a value that is not
// supported is refused.
func TestSpanExporter(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		on   bool
		want string // of the error
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, want: `OTEL_TRACES_EXPORTER is "zipkin": want otlp or none`},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, want: `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": want grpc`},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, on: true},
	} {
		exporter, err := newSpanExporter(t.Context(), func(name string) string { return tt.env[name] })
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || (exporter != nil) != tt.on {
			t.Errorf("%v: %v, %v", tt.env, exporter, err)
		}
		if exporter != nil {
			if err := exporter.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no equals sign")
	if _, err := newTelemetry(t.Context(), "server"); err == nil || !strings.Contains(err.Error(), "OTEL_RESOURCE_ATTRIBUTES") {
		t.Errorf("broken attributes: %v", err)
	}
}

// TestInternalCallsAreNoSpans checks that a call of a user is a span and an internal one is
// none.
func TestInternalCallsAreNoSpans(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tel := telemetry{provider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
	g, lis := grpc.NewServer(tel.serverOptions()...), memconn.Listen(1<<16)
	apiv1.RegisterClusterServer(g, apiv1.UnimplementedClusterServer{})
	apiv1.RegisterProducerServer(g, apiv1.UnimplementedProducerServer{})
	go g.Serve(lis) //nolint:errcheck // ends with Stop
	conn, err := grpc.NewClient("passthrough:srv", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	cluster := apiv1.NewClusterClient(conn)
	_, version := cluster.GetVersion(t.Context(), &apiv1.GetVersionRequest{})
	_, hosts := cluster.ListHosts(t.Context(), &apiv1.ListHostsRequest{})
	stream, err := apiv1.NewProducerClient(conn).Produce(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if version == nil || hosts == nil || err == nil {
		t.Error("a method that is not implemented succeeded")
	}
	conn.Close() //nolint:errcheck // every answer has come
	g.Stop()
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "wheelwork.v1.Cluster/ListHosts" {
		t.Errorf("spans: %v", got)
	}
}
