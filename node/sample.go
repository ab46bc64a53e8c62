package node

import (
	"bytes"
	"context"
	"log/slog"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/modules/transfer"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched"
)

// sample gives a newcomer an example: it pushes a module and applies a job with it,
// unless the app has jobs already.
func sample(ctx context.Context, conn grpc.ClientConnInterface, log *slog.Logger) error {
	jobs := apiv1.NewJobsClient(conn)
	list, err := jobs.ListJobs(ctx, &apiv1.ListJobsRequest{App: naming.DefaultApp, PageSize: 1})
	if err != nil || len(list.Jobs) > 0 {
		return err
	}
	push, err := apiv1.NewModulesClient(conn).PushModule(ctx)
	if err != nil {
		return err
	}
	head := &apiv1.PushModuleRequest_Head{App: naming.DefaultApp, Name: "greet", Version: "1"}
	if _, err := transfer.Push(push, head, bytes.NewReader(greet.Module), transfer.ChunkBytes); err != nil {
		return err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, sched.CauseHeader, "dev")
	_, err = jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: &apiv1.Job{
		App: naming.DefaultApp, Name: "greet", Description: "The sample job: a module of a few kilobytes, written in C. Delete it when you have your own.",
		Handler:  &apiv1.Handler{Module: "greet@1"},
		Schedule: &apiv1.Schedule{Cron: "*/5 * * * * *"},
		Input:    "newcomer", Timeout: "10s",
	}})
	log.Debug("sample job applied")
	return err
}
