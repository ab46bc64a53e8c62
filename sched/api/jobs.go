package api

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// The gRPC services turn messages into commands, and results into messages. They check what
// needs no state; the decisions are in decide.go.

type jobsAPI struct {
	apiv1.UnimplementedJobsServer
	s *Services
}

func (a *jobsAPI) ApplyJob(ctx context.Context, req *apiv1.ApplyJobRequest) (*apiv1.ApplyJobResponse, error) {
	def, err := core.Definition(req.GetJob())
	if err != nil {
		return nil, err
	}
	w := core.JobChange{Def: def, When: core.Condition{Etag: req.Job.Etag, IfMatch: req.IfMatch}, DryRun: req.DryRun}
	switch {
	case req.DryRun:
		w.With = core.TogetherWith(req.Together)
	case len(req.Together) > 0:
		return nil, status.Error(codes.InvalidArgument, "together goes with dry_run only")
	}
	return a.change(ctx, w)
}

func (a *jobsAPI) CreateJob(ctx context.Context, req *apiv1.CreateJobRequest) (*apiv1.ApplyJobResponse, error) {
	def, err := core.Definition(req.GetJob())
	if err != nil {
		return nil, err
	}
	return a.change(ctx, core.JobChange{Def: def, When: core.Condition{New: true}})
}

func (a *jobsAPI) change(ctx context.Context, w core.JobChange) (*apiv1.ApplyJobResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ApplyJobResponse, error) {
		m, result, err := l.Commands.ApplyJob(w)
		return &apiv1.ApplyJobResponse{Job: m, Result: result}, err
	})
}

func (a *jobsAPI) GetJob(ctx context.Context, req *apiv1.GetJobRequest) (*apiv1.Job, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Job, error) {
		return l.GetJob(core.AppOf(req.App), req.Name)
	})
}

func (a *jobsAPI) DeleteJob(ctx context.Context, req *apiv1.DeleteJobRequest) (*apiv1.DeleteJobResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.DeleteJobResponse, error) {
		return &apiv1.DeleteJobResponse{}, l.Commands.DeleteRequested(req)
	})
}

func (a *jobsAPI) PauseJob(ctx context.Context, req *apiv1.PauseJobRequest) (*apiv1.Job, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Job, error) {
		return l.Commands.PauseJob(core.AppOf(req.App), req.Name, req.Reason, req.Until)
	})
}

func (a *jobsAPI) ResumeJob(ctx context.Context, req *apiv1.ResumeJobRequest) (*apiv1.Job, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Job, error) {
		return l.Commands.ResumeJob(core.AppOf(req.App), req.Name)
	})
}

func (a *jobsAPI) TriggerJob(ctx context.Context, req *apiv1.TriggerJobRequest) (*apiv1.Run, error) {
	t := &core.Trigger{}
	err := core.NewTrigger(t, req, TraceParent(ctx))
	if err != nil {
		return nil, err
	}
	if p := access.Caller(ctx); p != nil {
		t.By = p.Author()
	}
	once := onceOf(ctx)
	once.fix(t, once.try())
	if req.Wait != "" {
		wait, err := WaitTime(req.Wait)
		if err != nil {
			return nil, err
		}
		return a.s.triggerAndWait(ctx, t, wait)
	}
	return a.s.trigger(ctx, t)
}

// trigger starts a run, or finds the run of the idempotency key, and returns it once it is
// durable.
func (s *Services) trigger(ctx context.Context, t *core.Trigger) (*apiv1.Run, error) {
	var id job.RunID // set on the loop, before it answers
	run, err := core.AskDurable(ctx, s.loop, func(l *core.Loop, answer func(*apiv1.Run, error)) { id = l.Commands.TriggerThen(t, answer) })
	if err != nil || run != nil {
		return run, err
	}
	return s.run(ctx, t.App, id)
}

// run returns a run as the API shows it, live or ended, also if it ended in another
// partition before its job moved to this one. It fails with the code NotFound.
func (s *Services) run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	m, err := s.find(ctx, app, id)
	if err == nil && m == nil {
		m, err = s.elsewhere(ctx, app, id)
	}
	if err == nil && m == nil {
		err = core.NoRun(id.String())
	}
	return m, err
}

// find returns a run of this partition, live or ended; nil: there is none.
func (s *Services) find(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	m, err := core.Ask(ctx, s.loop, func(l *core.Loop) (*apiv1.Run, error) { return l.Shown(app, id) })
	if err != nil || m != nil {
		return m, err
	}
	value, ok, err := s.cfg.Store.Run(app, id)
	if err != nil || !ok {
		return nil, err
	}
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, err
	}
	return job.RunMessage(row, time.Now()), nil
}
