package api

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

func (a *runsAPI) DeleteRun(ctx context.Context, req *apiv1.DeleteRunRequest) (*apiv1.DeleteRunResponse, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := core.AppOf(req.App)
	r, err := a.s.run(ctx, app, id)
	if err != nil {
		return nil, err
	}
	if err := a.mayRemove(ctx, app, id, r); err != nil {
		return nil, err
	}
	if req.PayloadOnly && r.PayloadDeletedAt != nil {
		return &apiv1.DeleteRunResponse{}, nil
	}
	rm := &removing{a: a, app: app, run: id, payloadOnly: req.PayloadOnly}
	if err := rm.under(ctx, r); err != nil {
		return nil, err
	}
	// The run itself is in the last record. If an earlier one fails, it is still there, and the call can be
	// repeated.
	last := max(len(rm.all)-core.MaxRemoved, 0)
	for part := range slices.Chunk(rm.all[:last], core.MaxRemoved) {
		if err := rm.record(ctx, part, true); err != nil {
			return nil, err
		}
	}
	if err := rm.record(ctx, rm.all[last:], false); err != nil {
		return nil, err
	}
	return &apiv1.DeleteRunResponse{Runs: int64(len(rm.all)) + 1}, nil
}

// mayRemove returns an error if a run cannot be removed.
func (a *runsAPI) mayRemove(ctx context.Context, app string, id job.RunID, r *apiv1.Run) error {
	if !job.State(r.State).Terminal() {
		return status.Errorf(codes.FailedPrecondition, "run %s is %s: cancel it first, and delete it when it has ended", r.Id, r.State)
	}
	of := r.Parent
	if r.Node != "" {
		of = r.Cause
	}
	if of != "" {
		parent, err := parseRun(of)
		if err != nil {
			return err
		}
		switch _, err := a.s.run(ctx, app, parent); {
		case err == nil:
			return status.Errorf(codes.FailedPrecondition, "run %s belongs to run %s: delete that one, and this run goes with it", r.Id, of)
		case status.Code(err) != codes.NotFound:
			return err
		}
	}
	here, err := a.s.find(ctx, app, id)
	if err != nil {
		return err
	}
	if here == nil {
		return status.Errorf(codes.FailedPrecondition, "run %s ended before its job came to this partition of the cluster, and is in the history of the former one: it goes with the retention there", r.Id)
	}
	return nil
}

// removing collects the runs that go with a run.
type removing struct {
	a           *runsAPI
	app         string
	run         job.RunID
	payloadOnly bool
	all         []job.RunID // without run
}

// under adds the parts of a run and the runs of its nodes, and what is under these, the lowest
// first. It leaves out the nodes that the run has taken over from an earlier one, which has them.
func (rm *removing) under(ctx context.Context, r *apiv1.Run) error {
	id, err := job.ParseRunID(r.Id)
	if err != nil || r.Parent != "" { // a part has the number of its parent's parts, and none of its own
		return err
	}
	u := &under{rm.app, id, r}
	for n := 0; n < u.len(); n += underStep {
		rows, err := rm.a.s.rowsUnder(ctx, u, n, min(n+underStep, u.len()))
		if err != nil {
			return err
		}
		for i, row := range rows {
			if row == nil || len(r.Nodes) > 0 && r.Nodes[n+i].Kept {
				continue
			}
			m := job.RunMessage(row, time.Now())
			if !job.State(m.State).Terminal() {
				return status.Errorf(codes.FailedPrecondition, "run %s belongs to run %s and is %s: cancel it first, and delete them when it has ended", m.Id, r.Id, m.State)
			}
			if err := rm.under(ctx, m); err != nil {
				return err
			}
			rm.all = append(rm.all, u.id(n+i))
		}
	}
	return nil
}

func (rm *removing) record(ctx context.Context, under []job.RunID, more bool) error {
	_, err := core.Change(ctx, rm.a.s.loop, func(l *core.Loop) (struct{}, error) {
		return struct{}{}, l.Commands.RemoveRuns(&core.Removed{App: rm.app, Run: rm.run, Under: under, More: more, PayloadOnly: rm.payloadOnly})
	})
	return err
}
