package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// jsonForm is how messages look in HTTP/JSON: the names of the .proto files,
// and every field present, so that a client never has to guess a default.
func jsonForm() protojson.MarshalOptions {
	return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
}

func newGateway(server *grpc.ClientConn) (http.Handler, error) {
	conn := conditional{server}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &oneValue{runtime.JSONPb{
			MarshalOptions:   jsonForm(),
			UnmarshalOptions: protojson.UnmarshalOptions{},
		}}),
		runtime.WithIncomingHeaderMatcher(forwarded),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithErrorHandler(gatewayError),
		runtime.WithForwardResponseOption(setETag),
		runtime.WithDisableHTTPMethodOverride(),
	)
	ctx := context.Background() // the registrations with a client neither keep nor wait on it
	for _, register := range []func() error{
		func() error { return apiv1.RegisterJobsHandlerClient(ctx, mux, keyedJobs{apiv1.NewJobsClient(conn)}) },
		func() error { return apiv1.RegisterRunsHandlerClient(ctx, mux, apiv1.NewRunsClient(conn)) },
		func() error { return apiv1.RegisterAppsHandlerClient(ctx, mux, apiv1.NewAppsClient(conn)) },
		func() error { return apiv1.RegisterCalendarsHandlerClient(ctx, mux, apiv1.NewCalendarsClient(conn)) },
		func() error { return apiv1.RegisterQueuesHandlerClient(ctx, mux, apiv1.NewQueuesClient(conn)) },
		func() error { return apiv1.RegisterModulesHandlerClient(ctx, mux, apiv1.NewModulesClient(conn)) },
		func() error { return apiv1.RegisterValuesHandlerClient(ctx, mux, apiv1.NewValuesClient(conn)) },
		func() error { return apiv1.RegisterSecretsHandlerClient(ctx, mux, apiv1.NewSecretsClient(conn)) },
		func() error {
			return apiv1.RegisterModuleAccessHandlerClient(ctx, mux, apiv1.NewModuleAccessClient(conn))
		},
		func() error { return apiv1.RegisterClusterHandlerClient(ctx, mux, apiv1.NewClusterClient(conn)) },
		func() error { return apiv1.RegisterMembershipHandlerClient(ctx, mux, apiv1.NewMembershipClient(conn)) },
		func() error { return apiv1.RegisterNameserverHandlerClient(ctx, mux, apiv1.NewNameserverClient(conn)) },
	} {
		if err := register(); err != nil {
			return nil, err
		}
	}
	return mux, nil
}

// keyHeader is the header of HTTP, in gRPC's spelling, that holds an idempotency key.
const keyHeader = "idempotency-key"

// keyedJobs takes the idempotency key of a trigger from its header.
type keyedJobs struct{ apiv1.JobsClient }

// TriggerJob implements [apiv1.JobsClient].
func (k keyedJobs) TriggerJob(ctx context.Context, req *apiv1.TriggerJobRequest, opts ...grpc.CallOption) (*apiv1.Run, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	switch keys := sent.Get(keyHeader); {
	case len(keys) == 0:
	case len(keys) > 1 || req.IdempotencyKey != "" && req.IdempotencyKey != keys[0]:
		return nil, status.Error(codes.InvalidArgument, "the request has several idempotency keys: send one, as the header Idempotency-Key or as idempotency_key")
	default:
		req.IdempotencyKey = keys[0]
	}
	return k.JobsClient.TriggerJob(ctx, req, opts...)
}

// oneValue reads bodies of one JSON value. What follows it is refused: a client that
// sends two would believe that both were read.
type oneValue struct{ runtime.JSONPb }

func (m *oneValue) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		d := json.NewDecoder(r)
		if err := (runtime.DecoderWrapper{Decoder: d, UnmarshalOptions: m.UnmarshalOptions}).Decode(v); err != nil {
			return err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("the body goes on after its JSON value: send one value")
		}
		return nil
	})
}

// forwarded lets the trace context, an idempotency key and the condition of a change
// through to the API and nothing else: a client cannot make up metadata, and a cookie
// stays here. The gateway forwards Authorization by itself.
func forwarded(key string) (string, bool) {
	switch key {
	case "Traceparent":
		return "traceparent", true
	case "Tracestate":
		return "tracestate", true
	case "Idempotency-Key":
		return keyHeader, true
	case "If-Match":
		return ifMatchKey, true
	}
	return "", false
}

// apiError is the body of every refused request.
type apiError struct {
	Code    int    `json:"code"` // of gRPC
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"` // of a Refusal
}

func gatewayError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if over := tooLarge(r); over != nil {
		writeTooLarge(w, over)
		return
	}
	writeAPIError(w, err)
}

func writeAPIError(w http.ResponseWriter, err error) {
	s := status.Convert(err)
	writeAPIStatus(w, httpStatus(s), s)
}

func writeAPIStatus(w http.ResponseWriter, code int, s *status.Status) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="wheelwork"`)
	}
	refusal := refusalOf(s)
	if after := refusal.GetRetryAfterS(); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(after)))
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(apiError{Code: int(s.Code()), Message: s.Message(), Reason: refusal.GetReason()})
}

// httpStatus returns the status of HTTP for an error: that of its reason if it has one,
// as the codes of gRPC are coarser.
func httpStatus(s *status.Status) int {
	switch refusalOf(s).GetReason() {
	case "changed":
		return http.StatusPreconditionFailed
	case "referenced":
		return http.StatusConflict
	case "key_reused":
		return http.StatusUnprocessableEntity
	}
	return runtime.HTTPStatusFromCode(s.Code())
}

// refusalOf returns what an error says to programs; nil: nothing.
func refusalOf(s *status.Status) *apiv1.Refusal {
	for _, d := range s.Details() {
		if r, ok := d.(*apiv1.Refusal); ok {
			return r
		}
	}
	return nil
}

// livez says that the process answers.
func (c *console) livez(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz says whether the API serves: 200, or 503 with the reason.
func (c *console) readyz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	answer, err := c.health.Check(r.Context(), &grpc_health_v1.HealthCheckRequest{})
	switch {
	case err != nil:
		http.Error(w, "not ready: "+status.Convert(err).Message(), http.StatusServiceUnavailable)
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		http.Error(w, "not ready: the API is "+answer.GetStatus().String(), http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
}
