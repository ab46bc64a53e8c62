package sdk

import (
	"context"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Kinds of operations. The texts are part of the API.
const (
	CancelRuns = "runs.cancel"
	SearchRuns = "runs.search" // finds runs and changes none
	RetryRuns  = "runs.retry"
	DeleteRuns = "runs.delete"
	PurgeRuns  = "runs.purge" // their payloads
	PauseJobs  = "jobs.pause"
	ResumeJobs = "jobs.resume"
	RunJobs    = "jobs.run"
	DeleteJobs = "jobs.delete"
	SetJobs    = "jobs.set"
)

type (
	// Operation is a change of many runs or jobs that a server carries out.
	Operation = apiv1.Operation
	// OperationRequest says what an [Operation] changes.
	OperationRequest = apiv1.StartOperationRequest
	// OperationPreview is what an [Operation] would change.
	OperationPreview = apiv1.StartOperationResponse
	// JobChanges are the fields that an operation of the kind [SetJobs] changes.
	JobChanges = apiv1.JobChanges
	// RunSelection and JobSelection are the conditions of an [OperationRequest].
	RunSelection = apiv1.ListRunsRequest
	JobSelection = apiv1.ListJobsRequest
)

// StartOperation starts an operation and returns it as it is then. It goes on when the caller has
// gone. [Client.Operation] returns its progress. The operation ends with the server process; started
// again, it goes on.
func (c *Client) StartOperation(ctx context.Context, req *OperationRequest) (*Operation, error) {
	req = proto.CloneOf(req)
	req.App, req.DryRun = appOf(req.App), false
	if req.IdempotencyKey == "" {
		req.IdempotencyKey = freshKey()
	}
	r, err := c.operations.StartOperation(ctx, req)
	return r.GetOperation(), c.callError(ctx, "start an operation", err)
}

// PreviewOperation counts what an operation would change, and changes nothing.
func (c *Client) PreviewOperation(ctx context.Context, req *OperationRequest) (*OperationPreview, error) {
	req = proto.CloneOf(req)
	req.App, req.DryRun = appOf(req.App), true
	r, err := c.operations.StartOperation(ctx, req)
	return r, c.callError(ctx, "preview an operation", err)
}

// Operations returns the operations of an app that run or ended in the last 24 hours, the newest
// first, at most 200.
func (c *Client) Operations(ctx context.Context, app string) ([]*Operation, error) {
	r, err := c.operations.ListOperations(ctx, &apiv1.ListOperationsRequest{App: appOf(app)})
	return r.GetOperations(), c.callError(ctx, "list operations", err)
}

// AllOperations is [Client.Operations] for all apps that the caller may see.
func (c *Client) AllOperations(ctx context.Context) ([]*Operation, error) {
	r, err := c.operations.ListAllOperations(ctx, &apiv1.ListAllOperationsRequest{})
	return r.GetOperations(), c.callError(ctx, "list operations", err)
}

// Operation returns an operation as it is now.
func (c *Client) Operation(ctx context.Context, app, id string) (*Operation, error) {
	op, err := c.operations.GetOperation(ctx, &apiv1.GetOperationRequest{App: appOf(app), Id: id})
	return op, c.callError(ctx, "get operation "+id, err)
}

// CancelOperation stops an operation. What it has changed stays changed.
func (c *Client) CancelOperation(ctx context.Context, app, id string) (*Operation, error) {
	op, err := c.operations.CancelOperation(ctx, &apiv1.CancelOperationRequest{App: appOf(app), Id: id})
	return op, c.callError(ctx, "cancel operation "+id, err)
}

// SelectRuns returns the conditions of a [RunBulk] for an operation.
func SelectRuns(b RunBulk) *RunSelection {
	return &RunSelection{Job: b.Job, State: b.State, Host: b.Host, Triggers: b.Triggers, Labels: b.Labels, Since: timestampOf(b.Since), Until: timestampOf(b.Until)}
}
