package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// jsonForm configures the JSON of messages: the field names of the .proto files, with
// every field present, so that clients need not know defaults.
func jsonForm() protojson.MarshalOptions {
	return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
}

func newGateway(server *grpc.ClientConn, address func(*http.Request) netip.Addr) (http.Handler, error) {
	conn := conditional{earlyErrors{server}}
	useQueryParser()
	methods, err := newMethods()
	if err != nil {
		return nil, err
	}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &requestJSON{runtime.JSONPb{
			MarshalOptions:   jsonForm(),
			UnmarshalOptions: protojson.UnmarshalOptions{},
		}}),
		runtime.WithIncomingHeaderMatcher(forwarded),
		runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD {
			return metadata.Pairs(clientHeader, address(r).String())
		}),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithErrorHandler(gatewayError),
		runtime.WithRoutingErrorHandler(methods.refuse),
		runtime.WithForwardResponseOption(setETag),
		runtime.WithForwardResponseOption(setCreated),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(), // it answers a POST like a GET
	)
	ctx := context.Background() // registration with a client neither stores the context nor waits on it
	for _, register := range []func() error{
		func() error { return apiv1.RegisterJobsHandlerClient(ctx, mux, keyedJobs{apiv1.NewJobsClient(conn)}) },
		func() error { return apiv1.RegisterRunsHandlerClient(ctx, mux, apiv1.NewRunsClient(conn)) },
		func() error { return apiv1.RegisterAppsHandlerClient(ctx, mux, apiv1.NewAppsClient(conn)) },
		func() error { return apiv1.RegisterCalendarsHandlerClient(ctx, mux, apiv1.NewCalendarsClient(conn)) },
		func() error { return apiv1.RegisterRevisionsHandlerClient(ctx, mux, apiv1.NewRevisionsClient(conn)) },
		func() error { return apiv1.RegisterChangeSetsHandlerClient(ctx, mux, apiv1.NewChangeSetsClient(conn)) },
		func() error { return apiv1.RegisterAlertsHandlerClient(ctx, mux, apiv1.NewAlertsClient(conn)) },
		func() error { return apiv1.RegisterEventsHandlerClient(ctx, mux, apiv1.NewEventsClient(conn)) },
		func() error { return apiv1.RegisterQueuesHandlerClient(ctx, mux, apiv1.NewQueuesClient(conn)) },
		func() error { return apiv1.RegisterModulesHandlerClient(ctx, mux, apiv1.NewModulesClient(conn)) },
		func() error { return apiv1.RegisterValuesHandlerClient(ctx, mux, apiv1.NewValuesClient(conn)) },
		func() error { return apiv1.RegisterSecretsHandlerClient(ctx, mux, apiv1.NewSecretsClient(conn)) },
		func() error {
			return apiv1.RegisterModuleAccessHandlerClient(ctx, mux, apiv1.NewModuleAccessClient(conn))
		},
		func() error { return apiv1.RegisterAccessHandlerClient(ctx, mux, apiv1.NewAccessClient(conn)) },
		func() error { return apiv1.RegisterAuditHandlerClient(ctx, mux, apiv1.NewAuditClient(conn)) },
		func() error { return apiv1.RegisterMachinesHandlerClient(ctx, mux, apiv1.NewMachinesClient(conn)) },
		func() error { return apiv1.RegisterOperationsHandlerClient(ctx, mux, apiv1.NewOperationsClient(conn)) },
		func() error { return apiv1.RegisterBackupsHandlerClient(ctx, mux, apiv1.NewBackupsClient(conn)) },
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

// keyHeader is the HTTP header of an idempotency key, in gRPC's lower case.
const keyHeader = "idempotency-key"

// keyedJobs reads the idempotency key of a trigger from its header.
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

// setCreated sets the status and the address of a response to the creation of a job.
func setCreated(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	created, ok := m.(*apiv1.ApplyJobResponse)
	if method, _ := runtime.RPCMethod(ctx); !ok || method != apiv1.Jobs_CreateJob_FullMethodName {
		return nil
	}
	w.Header().Set("Location", "/api/v1/apps/"+created.GetJob().GetApp()+"/jobs/"+created.GetJob().GetName())
	w.WriteHeader(http.StatusCreated)
	return nil
}

// forwarded lets only the trace context, an idempotency key, and the condition and the cause of
// a change through to the API. So clients cannot set other metadata, and cookies are not
// forwarded. The gateway itself forwards Authorization.
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
	case "Wheelwork-Note", "Wheelwork-Cause", "Wheelwork-Rollback":
		return strings.ToLower(key), true
	}
	return "", false
}

// apiError is the body of every refused request.
type apiError struct {
	Code    int    `json:"code"` // the gRPC code
	Message string `json:"message"`
	// Reason and Problems are from a Refusal.
	Reason   string       `json:"reason,omitempty"`
	Problems []apiProblem `json:"problems,omitempty"`
}

// apiProblem says why a change of a set is refused.
type apiProblem struct {
	Index   int32  `json:"index"`
	Code    int32  `json:"code"`
	Message string `json:"message"`
}

func gatewayError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if over := tooLarge(r); over != nil {
		writeTooLarge(w, r, over)
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
	body := apiError{Code: int(s.Code()), Message: s.Message(), Reason: refusal.GetReason()}
	for _, p := range refusal.GetProblems() {
		body.Problems = append(body.Problems, apiProblem{p.Index, p.Code, p.Error})
	}
	_ = json.NewEncoder(w).Encode(body)
}

// httpStatus returns the HTTP status of an error. It prefers the status of the error's
// reason, because gRPC codes are coarser.
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

// refusalOf returns the machine-readable part of an error, or nil.
func refusalOf(s *status.Status) *apiv1.Refusal {
	for _, d := range s.Details() {
		if r, ok := d.(*apiv1.Refusal); ok {
			return r
		}
	}
	return nil
}

// livez reports that the process responds.
func (c *console) livez(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz reports whether the API serves: 200, or 503 with the reason.
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
