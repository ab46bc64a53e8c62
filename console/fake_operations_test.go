package console

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// fakeOperations has operations that do not go on by themselves.
type fakeOperations struct {
	apiv1.UnimplementedOperationsServer
	operations []*apiv1.Operation // the newest first
	uncounted  bool               // counting takes too long
}

func (f *fakeAPI) populateOperations() {
	began := timestamppb.New(time.Now().Add(-time.Minute))
	f.operations = []*apiv1.Operation{
		{
			Id: "op_live", App: "default", Kind: "jobs.set", Caller: "ada" + evil, State: "running", StartedAt: began, Total: proto.Int64(20000), Done: 4000, Skipped: 900, Failed: 100, Note: "new team " + evil,
			Errors:  []string{"totals: the etag differs " + evil, "report: it was deleted"},
			Request: &apiv1.StartOperationRequest{Kind: "jobs.set", Jobs: &apiv1.ListJobsRequest{App: "default", Prefix: "t" + evil, Labels: map[string]string{"team": "billing"}}, Set: &apiv1.JobChanges{Owner: proto.String("team-b"), RemoveLabels: []string{"old"}}},
		},
		{Id: "op_start", App: "shop", Kind: "runs.cancel", Caller: "ci", State: "running", StartedAt: began, Done: 50, Request: &apiv1.StartOperationRequest{Kind: "runs.cancel", All: true}},
		{
			Id: "op_done", App: "default", Kind: "runs.retry", Caller: "ada", State: "done", StartedAt: began, EndedAt: timestamppb.New(began.AsTime().Add(12 * time.Second)), Total: proto.Int64(33), Done: 33,
			Request: &apiv1.StartOperationRequest{Kind: "runs.retry", Module: "totals@1", Runs: &apiv1.ListRunsRequest{State: "failed", Triggers: []string{"manual"}, Since: timestamppb.New(time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC))}},
		},
		{Id: "op_failed", App: "default", Kind: "jobs.delete", Caller: "ci", State: "failed", StartedAt: began, EndedAt: began, Error: "ci (tok_1) is no longer accepted", Request: &apiv1.StartOperationRequest{Kind: "jobs.delete", All: true}},
		{
			Id: "op_search", App: "default", Kind: "runs.search", Caller: "ada", State: "done", StartedAt: began, EndedAt: began, Done: 700, Skipped: 600,
			Found:   []*apiv1.FoundRun{{Id: failedRun, Job: "totals", State: "failed", PlannedAt: began, FinishedAt: began}},
			Request: &apiv1.StartOperationRequest{Kind: "runs.search", Error: "no such table"},
		},
		{Id: "op_new", App: "default", Kind: "jobs.of_a_newer_version", Caller: "ci", State: "cancelled", CancelledBy: "bob", StartedAt: began, EndedAt: began},
	}
}

func (f *fakeAPI) StartOperation(_ context.Context, r *apiv1.StartOperationRequest) (*apiv1.StartOperationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if proto.Size(r.Set) == 0 && r.Kind == "jobs.set" {
		return nil, status.Error(codes.InvalidArgument, "set is empty: say which fields to change")
	}
	if r.DryRun {
		resp := &apiv1.StartOperationResponse{More: f.uncounted}
		if r.Jobs != nil {
			for _, j := range f.jobs {
				if r.Jobs.Prefix == "" || j.Name == r.Jobs.Prefix {
					resp.Jobs = append(resp.Jobs, proto.CloneOf(j))
				}
			}
			resp.Matched = int64(len(resp.Jobs))
			return resp, nil
		}
		for _, run := range f.runs {
			if resp.Matched++; len(resp.Runs) < 2 {
				resp.Runs = append(resp.Runs, proto.CloneOf(run))
			}
		}
		return resp, nil
	}
	live := 0
	for _, op := range f.operations {
		if op.App == r.App && op.State == "running" {
			live++
		}
	}
	if live >= 4 {
		return nil, status.Error(codes.ResourceExhausted, "4 operations of the app are running, which is the limit")
	}
	op := &apiv1.Operation{Id: fmt.Sprint("op_", len(f.operations)), App: r.App, Kind: r.Kind, State: "running", StartedAt: timestamppb.Now(), Request: r}
	f.operations = append([]*apiv1.Operation{op}, f.operations...)
	return &apiv1.StartOperationResponse{Operation: proto.CloneOf(op)}, nil
}

func (f *fakeAPI) ListAllOperations(context.Context, *apiv1.ListAllOperationsRequest) (*apiv1.ListOperationsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return proto.CloneOf(&apiv1.ListOperationsResponse{Operations: f.operations}), nil
}

func (f *fakeAPI) GetOperation(_ context.Context, r *apiv1.GetOperationRequest) (*apiv1.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range f.operations {
		if op.Id == r.Id && op.App == r.App {
			return proto.CloneOf(op), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "the app %s has no operation %s", r.App, r.Id)
}

func (f *fakeAPI) CancelOperation(ctx context.Context, r *apiv1.CancelOperationRequest) (*apiv1.Operation, error) {
	f.mu.Lock()
	for _, op := range f.operations {
		if op.Id == r.Id && op.State == "running" {
			op.State, op.EndedAt, op.CancelledBy = "cancelled", timestamppb.Now(), "ada"
		}
	}
	f.mu.Unlock()
	return f.GetOperation(ctx, &apiv1.GetOperationRequest{App: r.App, Id: r.Id})
}
