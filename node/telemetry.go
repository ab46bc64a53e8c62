package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	promexport "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/version"
)

// telemetry is what a process reports about itself: metrics for readers of /metrics, and
// traces for a collector, see [newSpanExporter]. Without a collector there are no traces
// and they cost nothing.
type telemetry struct {
	meter    metric.Meter
	tracer   trace.Tracer
	provider trace.TracerProvider
	registry *prometheus.Registry
	stop     []func(context.Context) error
}

var propagator = propagation.TraceContext{}

func newTelemetry(ctx context.Context, role string) (*telemetry, error) {
	t := &telemetry{registry: prometheus.NewRegistry(), provider: noop.NewTracerProvider()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := promexport.New(promexport.WithRegisterer(t.registry), promexport.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	res, err := resource.New(
		ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "wheelwork-"+role), attribute.String("service.version", version.String())),
		resource.WithFromEnv(), // last: the operator's names take precedence
	)
	if err != nil {
		return nil, fmt.Errorf("set up telemetry: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	t.meter = meters.Meter("github.com/wheelworkhq/wheelwork")
	t.stop = append(t.stop, meters.Shutdown)
	exporter, err := newSpanExporter(ctx, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	if exporter != nil {
		traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
		t.provider = traces
		t.stop = append(t.stop, traces.Shutdown)
	}
	t.tracer = t.provider.Tracer("github.com/wheelworkhq/wheelwork")
	return t, nil
}

// newSpanExporter returns the exporter of traces that the variables of OpenTelemetry ask
// for; nil: none. Traces are on when an endpoint is set, or OTEL_TRACES_EXPORTER is otlp.
// The exporters read the endpoint, headers, certificates and the rest from the environment,
// and the tracer provider reads the sampler.
func newSpanExporter(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	switch kind := getenv("OTEL_TRACES_EXPORTER"); kind {
	case "none":
		return nil, nil
	case "":
		if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return nil, nil
		}
	case "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", kind)
	}
	name := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if getenv(name) == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	switch protocol := getenv(name); protocol {
	case "", "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s is %q: want grpc, which is the default, or http/protobuf", name, protocol)
	}
}

// partitionMeter returns a meter for one partition of a cluster: its metrics have the
// partition as the label unit, and end with unregister.
func (t *telemetry) partitionMeter(partition string) (_ metric.Meter, unregister func(), err error) {
	labelled := &revocable{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"unit": partition}, t.registry)}
	reader, err := promexport.New(promexport.WithRegisterer(labelled), promexport.WithoutScopeInfo(), promexport.WithoutTargetInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("set up the metrics of the partition %s: %w", partition, err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return meters.Meter("github.com/wheelworkhq/wheelwork"), func() {
		labelled.revoke()
		_ = meters.Shutdown(context.Background()) // this reader only answers scrapes, and has nothing to send
	}, nil
}

// revocable records the registered collectors, so that revoke can unregister them.
type revocable struct {
	prometheus.Registerer
	taken []prometheus.Collector
}

func (r *revocable) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.taken = append(r.taken, c)
	}
	return err
}

func (r *revocable) revoke() {
	for _, c := range r.taken {
		r.Unregister(c)
	}
}

// Close sends all that is not sent yet, for quitPatience at most.
func (t *telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), quitPatience)
	defer cancel()
	var err error
	for _, stop := range t.stop {
		err = errors.Join(err, stop(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // the collector is out of reach: that must not fail the process
	}
	return err
}

// untraced are methods that are no work of a caller, or whose streams last as long as a
// connection: a span of one would say nothing. The commands on a stream of producers carry
// the traces of their callers themselves.
var untraced = []string{
	apiv1.Cluster_GetVersion_FullMethodName, apiv1.Nameserver_Watch_FullMethodName, apiv1.Nameserver_Join_FullMethodName,
	apiv1.Nameserver_Route_FullMethodName, apiv1.Worker_Work_FullMethodName, apiv1.Producer_Produce_FullMethodName,
	healthpb.Health_Check_FullMethodName, healthpb.Health_Watch_FullMethodName,
}

// serverOptions makes each call a span, when traces are on, except those of untraced.
func (t *telemetry) serverOptions() []grpc.ServerOption {
	if _, off := t.provider.(noop.TracerProvider); off {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagator),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return !slices.Contains(untraced, info.FullMethodName) })))}
}

// scrapes bounds how many answers to /metrics the process makes at a time.
const scrapes = 4

// scrape answers with all metrics of the process.
func (t *telemetry) scrape() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
}

// metrics serves /metrics to callers with the permission metrics.read.
func (t *telemetry) metrics(g *access.Guard, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	scrape := t.scrape()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		err := g.Allows(r.Context(), []string{strings.TrimSpace(r.Header.Get("Authorization"))}, "metrics.read")
		switch status.Code(err) {
		case codes.OK:
		case codes.PermissionDenied:
			http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
			return
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		scrape.ServeHTTP(w, r)
	})
	mux.Handle("/", next)
	return mux
}
