package operation

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/conditions"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

const (
	previewed = 20  // objects that a preview shows
	listed    = 200 // operations of a list
)

// Service is the service of operations of a partition.
type Service struct {
	apiv1.UnimplementedOperationsServer
	runner   *Runner
	registry *Registry
}

// NewService returns a service without operations.
func (r *Runner) NewService() *Service {
	return &Service{runner: r, registry: NewRegistry(&r.Places)}
}

// Close stops all operations.
func (s *Service) Close() { s.registry.Close() }

// StartOperation implements [apiv1.OperationsServer].
func (s *Service) StartOperation(ctx context.Context, req *apiv1.StartOperationRequest) (*apiv1.StartOperationResponse, error) {
	caller := access.Caller(ctx)
	if caller == nil {
		return nil, status.Error(codes.Unauthenticated, "an operation has a caller, and the call has none")
	}
	caller = caller.At(ctx)
	req = proto.CloneOf(req)
	req.App = cmp.Or(req.App, naming.DefaultApp)
	k, ok := kindOf(req.Kind)
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "there is no kind %.40q of operations: want runs.search, runs.cancel, runs.retry, runs.delete, runs.purge, jobs.pause, jobs.resume, jobs.run, jobs.delete or jobs.set", req.Kind)
	}
	if err := check(k, req); err != nil {
		return nil, err
	}
	if req.DryRun {
		return newWork(s.runner, caller, k, req).preview(ctx)
	}
	shown := proto.CloneOf(req)
	shown.IdempotencyKey = ""
	noted := make(chan struct{})
	defer close(noted)
	started := false // and not by an earlier call with its key
	op, err := s.registry.Start(
		&apiv1.Operation{App: req.App, Kind: req.Kind, Caller: caller.Author(), Note: req.Note, Request: shown}, req.IdempotencyKey,
		func(id string) Work {
			w := newWork(s.runner, caller, k, req)
			w.id, started = id, true
			return func(ctx context.Context, p *Progress) error {
				<-noted // the event of the operation comes before those of its changes
				return w.do(ctx, p)
			}
		})
	if err != nil {
		return nil, err
	}
	if started {
		s.note(ctx, "operation.started", op, op.Note)
	}
	return &apiv1.StartOperationResponse{Operation: op}, nil
}

// preview counts the objects of a request.
func (w *work) preview(ctx context.Context) (*apiv1.StartOperationResponse, error) {
	found, err := w.count(ctx, previewed)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.StartOperationResponse{Matched: found.matched, More: found.more}
	for _, o := range found.first {
		if o.run != nil {
			resp.Runs = append(resp.Runs, o.run)
		} else {
			resp.Jobs = append(resp.Jobs, o.job)
		}
	}
	return resp, nil
}

// ListOperations implements [apiv1.OperationsServer].
func (s *Service) ListOperations(_ context.Context, req *apiv1.ListOperationsRequest) (*apiv1.ListOperationsResponse, error) {
	app := cmp.Or(req.App, naming.DefaultApp)
	return s.list(func(op *apiv1.Operation) bool { return op.App == app && (req.State == "" || op.State == req.State) }), nil
}

// ListAllOperations implements [apiv1.OperationsServer].
func (s *Service) ListAllOperations(ctx context.Context, req *apiv1.ListAllOperationsRequest) (*apiv1.ListOperationsResponse, error) {
	sees := access.Sees(ctx, "jobs.read")
	return s.list(func(op *apiv1.Operation) bool { return sees(op.App) && (req.State == "" || op.State == req.State) }), nil
}

func (s *Service) list(keep func(*apiv1.Operation) bool) *apiv1.ListOperationsResponse {
	all := s.registry.List(keep)
	return &apiv1.ListOperationsResponse{Operations: all[:min(len(all), listed)]}
}

// GetOperation implements [apiv1.OperationsServer].
func (s *Service) GetOperation(_ context.Context, req *apiv1.GetOperationRequest) (*apiv1.Operation, error) {
	return s.registry.Get(cmp.Or(req.App, naming.DefaultApp), req.Id)
}

// CancelOperation implements [apiv1.OperationsServer].
func (s *Service) CancelOperation(ctx context.Context, req *apiv1.CancelOperationRequest) (*apiv1.Operation, error) {
	caller := ""
	if p := access.Caller(ctx); p != nil {
		caller = p.Author()
	}
	op, first, err := s.registry.Cancel(cmp.Or(req.App, naming.DefaultApp), req.Id, caller)
	if first {
		s.note(ctx, "operation.cancelled", op, "")
	}
	return op, err
}

// note makes the audit event of a call about an operation, which names what it changes.
func (s *Service) note(ctx context.Context, code string, op *apiv1.Operation, message string) {
	if s.runner.Note != nil {
		s.runner.Note(ctx, audit.Row{Code: code, App: op.App, Object: op.Id, After: summary(op), Message: message})
	}
}

// summary returns the kind of an operation, its conditions and its changes, as "jobs.set: prefix=nightly-; set owner=ann".
func summary(op *apiv1.Operation) string {
	text := op.Kind + ": " + cmp.Or(strings.Join(conditions.Of(op.Request), ", "), "all")
	if set := conditions.Fields(op.Request.GetSet()); len(set) > 0 {
		text += "; set " + strings.Join(set, ", ")
	}
	if until := op.Request.GetUntil(); until != nil {
		text += "; until " + until.AsTime().Format(time.RFC3339)
	}
	if op.Request.GetForce() {
		text += "; also jobs that others name"
	}
	return text
}
