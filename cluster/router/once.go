package router

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched"
)

// findEvery is how often this server looks for the end of a run that another server owns,
// for a caller that waits.
const findEvery = time.Second

// onceOnly keeps a client from repeating at another server a request that may have been
// carried out here: if the request was tried, it replaces an error that names an owner by
// one that does not.
func onceOnly(err error, once *sched.Once) error {
	if !once.Tried() || AddressIn(err) == "" {
		return err
	}
	return status.Error(codes.Unavailable, "the jobs moved to another server during the call, and the runs may have been started: look at them before you try again")
}

// triggerElsewhere passes a trigger to the server that owns its job. A client that was
// redirected would send it there as a new trigger, and that server could not know that it
// was tried here.
func (r *Router) triggerElsewhere(ctx context.Context, req *apiv1.TriggerJobRequest, once *sched.Once) (*apiv1.Run, error) {
	if req.Wait != "" {
		if _, err := sched.WaitTime(req.Wait); err != nil {
			return nil, err
		}
	}
	one := proto.CloneOf(req)
	one.Wait = ""
	a := &apiv1.Ingress{
		Command: &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: one}}, AtMs: once.At().UnixMilli(), TraceParent: sched.TraceParent(ctx),
	}
	id := once.ID(req.App, req.Name)
	if req.IdempotencyKey == "" {
		a.Run = id[:]
	}
	commands := []*apiv1.Ingress{a}
	results, err := r.Apply(ctx, commands, once.Tried())
	if err == nil {
		err = r.follow(ctx, commands, results)
	}
	switch {
	case err != nil:
		return nil, err
	case results[0].Code != 0:
		return nil, status.Error(codes.Code(results[0].Code), results[0].Error)
	}
	if results[0].RunId != "" {
		if id, err = job.ParseRunID(results[0].RunId); err != nil {
			return nil, status.Errorf(codes.Internal, "the owner of the job answered: %v", err)
		}
	}
	return r.awaitRun(ctx, req, id)
}

// awaitRun returns the run of a trigger. If the trigger waits, it returns when the run
// has ended or the wait is over.
func (r *Router) awaitRun(ctx context.Context, req *apiv1.TriggerJobRequest, id job.RunID) (*apiv1.Run, error) {
	var left time.Duration
	if req.Wait != "" {
		d, err := sched.WaitTime(req.Wait)
		if err != nil {
			return nil, err
		}
		left = d
	}
	app := cmp.Or(req.App, "default")
	home, err := r.PartitionOf(ctx, app, false)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(left); ; {
		partition, err := r.partitionOfSlot(app, id.Slot(), home)
		if err != nil {
			return nil, err
		}
		found, err := r.ask(ctx, &apiv1.AskRequest{Unit: partition, App: app, What: &apiv1.AskRequest_Run{Run: id[:]}})
		switch {
		case err != nil:
			return nil, err
		case found.Run == nil:
			return nil, status.Errorf(codes.Unavailable, "run %s was accepted, and its owner does not show it yet: ask for it in a moment", id)
		case job.State(found.Run.State).Terminal() || !time.Now().Before(end):
			return found.Run, nil
		}
		if !wait.For(ctx, min(findEvery, time.Until(end))) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
