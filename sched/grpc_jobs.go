package sched

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// The gRPC services turn messages into commands, and results into messages. They check what
// needs no state; the decisions are in decide.go.

const (
	defaultPage = 50
	maxPage     = 1000
)

func pageSize(n int32) int {
	if n <= 0 {
		return defaultPage
	}
	return int(min(n, maxPage))
}

func appOf(app string) string { return cmp.Or(app, naming.DefaultApp) }

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

type jobsAPI struct {
	apiv1.UnimplementedJobsServer
	s *Server
}

func (a *jobsAPI) ApplyJob(ctx context.Context, req *apiv1.ApplyJobRequest) (*apiv1.ApplyJobResponse, error) {
	def, err := definition(req.GetJob())
	if err != nil {
		return nil, err
	}
	w := wanted{def: def, when: condition{etag: req.Job.Etag, ifMatch: req.IfMatch}, dryRun: req.DryRun}
	switch {
	case req.DryRun:
		w.together = req.Together
	case len(req.Together) > 0:
		return nil, status.Error(codes.InvalidArgument, "together goes with dry_run only")
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.ApplyJobResponse, error)) {
		m, result, err := l.applyJob(w)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.ApplyJobResponse{Job: m, Result: result}, err) })
	})
}

// definition validates the definition that a caller sent, and returns a copy of it.
func definition(d *apiv1.Job) (*apiv1.Job, error) {
	if d == nil {
		return nil, status.Error(codes.InvalidArgument, "the job is missing")
	}
	def := job.Definition(d)
	if err := job.Validate(def); err != nil {
		return nil, invalid(err)
	}
	return def, nil
}

func (a *jobsAPI) GetJob(ctx context.Context, req *apiv1.GetJobRequest) (*apiv1.Job, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Job, error) {
		j := l.job(appOf(req.App), req.Name)
		if j == nil {
			return nil, noJob(appOf(req.App), req.Name)
		}
		m := l.jobMessage(j)
		m.NextWhy = l.whyNext(j)
		return m, nil
	})
}

func (a *jobsAPI) ListJobs(ctx context.Context, req *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	after, err := base64.RawURLEncoding.DecodeString(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this list returned")
	}
	if err := a.s.loop.caughtUp(ctx); err != nil {
		return nil, err
	}
	names, more, err := a.s.cfg.Store.Jobs(appOf(req.App), req.Prefix, string(after), pageSize(req.PageSize))
	if err != nil {
		return nil, err
	}
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListJobsResponse, error) {
		resp := &apiv1.ListJobsResponse{}
		page, last := Page{}, ""
		for _, name := range names {
			if j := l.job(appOf(req.App), name); j != nil { // otherwise it was deleted meanwhile
				m := l.jobMessage(j)
				if !req.WithInput {
					m.Input, m.InputBytes = "", nil
				}
				if !page.Fits(m) {
					more = true
					break
				}
				resp.Jobs = append(resp.Jobs, m)
			}
			last = name
		}
		if more {
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(last))
		}
		return resp, nil
	})
}

func (a *jobsAPI) DeleteJob(ctx context.Context, req *apiv1.DeleteJobRequest) (*apiv1.DeleteJobResponse, error) {
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.DeleteJobResponse, error)) {
		if err := l.deleteAsked(req); err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.DeleteJobResponse{}, err) })
	})
}

func (a *jobsAPI) PauseJob(ctx context.Context, req *apiv1.PauseJobRequest) (*apiv1.Job, error) {
	return a.pause(ctx, req.App, req.Name, true)
}

func (a *jobsAPI) ResumeJob(ctx context.Context, req *apiv1.ResumeJobRequest) (*apiv1.Job, error) {
	return a.pause(ctx, req.App, req.Name, false)
}

func (a *jobsAPI) pause(ctx context.Context, app, name string, pause bool) (*apiv1.Job, error) {
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Job, error)) {
		m, err := l.pauseJob(appOf(app), name, pause)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(m, err) })
	})
}

func (a *jobsAPI) TriggerJob(ctx context.Context, req *apiv1.TriggerJobRequest) (*apiv1.Run, error) {
	t := &trigger{}
	err := newTrigger(t, req, TraceParent(ctx))
	if err != nil {
		return nil, err
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
// durable. The turn in which a new run becomes durable also reads it. A later read could
// fail because the server ends, and the caller would not learn that the run exists.
func (s *Server) trigger(ctx context.Context, t *trigger) (*apiv1.Run, error) {
	var id job.RunID // set on the loop, before it answers
	run, err := askDurable(ctx, s.loop, func(l *loop, answer func(*apiv1.Run, error)) {
		made, _, err := l.triggerJob(t)
		if id = made; err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) {
			if err != nil {
				answer(nil, err)
				return
			}
			answer(l.shown(t.app, made))
		})
	})
	if err != nil || run != nil {
		return run, err
	}
	return s.run(ctx, t.app, id)
}

const maxKey = 256

// newTrigger validates a request and sets t to its trigger.
func newTrigger(t *trigger, req *apiv1.TriggerJobRequest, traceParent string) error {
	*t = trigger{app: appOf(req.App), name: req.Name, key: req.IdempotencyKey, traceParent: traceParent}
	switch {
	case req.Input != nil && req.InputBytes != nil:
		return status.Error(codes.InvalidArgument, "input and input_bytes are both set: use one")
	case req.Input != nil:
		t.hasInput, t.input = true, []byte(*req.Input)
	case req.InputBytes != nil:
		t.hasInput, t.input = true, slices.Clone(req.InputBytes) // input_bytes would retain the whole message
	}
	if err := job.CheckInput(len(t.input)); err != nil {
		return invalid(err)
	}
	if len(t.key) > maxKey {
		return status.Errorf(codes.InvalidArgument, "the idempotency key has %d bytes, the limit is %d", len(t.key), maxKey)
	}
	if t.key != "" {
		t.hash = keyHash(t.name, t.key)
	}
	return nil
}

// run returns a run as the API shows it, live or ended, also if it ended in another
// partition before its job moved to this one. It fails with the code NotFound.
func (s *Server) run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	m, err := s.find(ctx, app, id)
	if err == nil && m == nil {
		m, err = s.elsewhere(ctx, app, id)
	}
	if err == nil && m == nil {
		err = noRun(id.String())
	}
	return m, err
}

// shown returns a run that is live, or has ended and may not be in the history yet; nil:
// there is none.
func (l *loop) shown(app string, id job.RunID) (*apiv1.Run, error) {
	if r := l.liveRun(app, id); r != nil {
		return l.message(r), nil
	}
	value := l.view.recent(app, id)
	if value == nil {
		return nil, nil
	}
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, err
	}
	return job.RunMessage(row, l.now), nil
}

// find returns a run of this partition, live or ended; nil: there is none.
func (s *Server) find(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	m, err := ask(ctx, s.loop, func(l *loop) (*apiv1.Run, error) { return l.shown(app, id) })
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
