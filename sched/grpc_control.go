package sched

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file has calls for operators: to skip planned times, to fill in past ones, to change
// many jobs, and to explain and retry runs.

func (a *jobsAPI) SkipNext(ctx context.Context, req *apiv1.SkipNextRequest) (*apiv1.Job, error) {
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Job, error)) {
		m, err := l.skipNext(appOf(req.App), req.Name)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(m, err) })
	})
}

// maxBackfill bounds the runs of one BackfillJob call, and shownTimes the planned times in
// its response.
const (
	maxBackfill = 10_000
	shownTimes  = 100
)

func (a *jobsAPI) BackfillJob(ctx context.Context, req *apiv1.BackfillJobRequest) (*apiv1.BackfillJobResponse, error) {
	app, from, until := appOf(req.App), req.From.AsTime(), req.Until.AsTime()
	switch {
	case req.From == nil || req.Until == nil:
		return nil, status.Error(codes.InvalidArgument, "from and until are both needed")
	case !until.After(from):
		return nil, status.Error(codes.InvalidArgument, "until must be after from")
	case req.Limit < 0 || req.Limit > maxBackfill:
		return nil, status.Errorf(codes.InvalidArgument, "limit is %d, it must be 1 to %d", req.Limit, maxBackfill)
	}
	limit := maxBackfill
	if req.Limit > 0 {
		limit = int(req.Limit)
	}
	if !req.DryRun { // concurrent backfills would not see each other's runs
		done, err := a.s.backfills.begin(ctx, jobKey{app, req.Name})
		if err != nil {
			return nil, err
		}
		defer done()
	}
	b := &backfilling{a: a, app: app, req: req, resp: &apiv1.BackfillJobResponse{}, traceParent: TraceParent(ctx)}
	var err error
	if b.of, err = ask(ctx, a.s.loop, func(l *loop) (jobSchedule, error) { return l.scheduleOf(app, req.Name) }); err != nil {
		return nil, err
	}
	// Future times are left to the schedule, and so are times that it has not decided yet.
	times, _ := b.of.plan.Between(from, earliest(until, b.of.now, b.of.nextMs), limit+1)
	// A planned time, because a fixed rate without an anchor continues from it.
	if len(times) > limit {
		b.resp.NextFrom = timestamppb.New(times[limit])
		times = times[:limit]
	}
	for times := range slices.Chunk(times, maxCommands) {
		if err := b.fill(ctx, times); err != nil {
			return nil, err
		}
	}
	return b.resp, nil
}

// jobSchedule is a copy of the schedule of a job, with which a call computes planned times
// outside the loop: there may be ten thousand.
type jobSchedule struct {
	job       *job.Job
	text      string
	calendars []*schedule.Calendar
	plan      schedule.Plan
	nextMs    int64
	now       time.Time
}

func (l *loop) scheduleOf(app, name string) (jobSchedule, error) {
	j := l.job(app, name)
	if j == nil {
		return jobSchedule{}, noJob(app, name)
	}
	plan, err := l.planOf(j)
	if err != nil {
		return jobSchedule{}, invalid(err)
	}
	if j.NextMs > 0 { // a fixed rate counts from the planned times of the job
		plan = plan.Anchor(time.UnixMilli(l.ahead.next(j)))
	}
	return jobSchedule{j, j.Schedule(), l.calendarsOf(j), plan, l.ahead.next(j), l.now}, nil
}

// calendarsOf returns the compiled calendars that the schedule of a job names. The entry of a
// calendar that does not exist is nil.
func (l *loop) calendarsOf(j *job.Job) []*schedule.Calendar {
	var of []*schedule.Calendar
	for _, name := range j.Calendars() {
		of = append(of, l.calendar(j.Slot().App, name))
	}
	return of
}

// holds fails if the job was deleted, or has another schedule or other calendars now.
func (s *jobSchedule) holds(l *loop, app, name string) error {
	j := l.job(app, name)
	switch {
	case j == nil:
		return noJob(app, name)
	case j != s.job || j.Schedule() != s.text || !slices.Equal(l.calendarsOf(j), s.calendars):
		return status.Errorf(codes.Aborted, "the schedule of job %s was changed while its times were filled in", name)
	}
	return nil
}

// turns serializes an operation on each job. The zero value is ready for use. Safe for
// concurrent use.
type turns struct {
	mu   sync.Mutex
	busy map[jobKey]chan struct{} // closed when the operation is over
}

// begin waits until no other caller is in the operation on the job. The caller must call
// done after its own.
func (t *turns) begin(ctx context.Context, k jobKey) (done func(), err error) {
	for {
		t.mu.Lock()
		other := t.busy[k]
		if other == nil {
			mine := make(chan struct{})
			if t.busy == nil {
				t.busy = map[jobKey]chan struct{}{}
			}
			t.busy[k] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.busy, k)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// backfilling is one call of BackfillJob.
type backfilling struct {
	a           *jobsAPI
	app         string
	req         *apiv1.BackfillJobRequest
	of          jobSchedule
	resp        *apiv1.BackfillJobResponse
	traceParent string
}

// fill accepts a run for each of the planned times that has none. It looks up live runs
// before the history, so that a run that ends in between is found.
func (b *backfilling) fill(ctx context.Context, times []time.Time) error {
	live, err := ask(ctx, b.a.s.loop, func(l *loop) ([]bool, error) {
		live := make([]bool, len(times))
		for i, at := range times {
			id := job.OccurrenceID(b.app, b.req.Name, at, "")
			live[i] = l.liveRun(b.app, id) != nil || l.view.recent(b.app, id) != nil
		}
		return live, nil
	})
	if err != nil {
		return b.interrupted(err)
	}
	var missing []time.Time
	for i, at := range times {
		ended := live[i]
		if !ended {
			if ended, err = b.a.s.ended(ctx, b.app, job.OccurrenceID(b.app, b.req.Name, at, "")); err != nil {
				return b.interrupted(err)
			}
		}
		if ended {
			b.resp.Existing++
			continue
		}
		missing = append(missing, at)
	}
	for _, at := range missing[:min(len(missing), shownTimes-len(b.resp.Times))] {
		b.resp.Times = append(b.resp.Times, timestamppb.New(at))
	}
	if b.req.DryRun {
		b.resp.Accepted += int32(len(missing))
		return nil
	}
	n, err := askDurable(ctx, b.a.s.loop, func(l *loop, answer func(filled, error)) {
		n, err := b.accept(l, missing)
		l.onDurable(func(lost error) { answer(n, cmp.Or(err, lost)) })
	})
	b.resp.Accepted += n.accepted
	b.resp.Existing += n.existing
	return b.interrupted(err)
}

// filled counts the planned times that got a run, and those that had one.
type filled struct{ accepted, existing int32 }

// accept is the part of fill that runs on the loop.
func (b *backfilling) accept(l *loop, times []time.Time) (n filled, err error) {
	if err := b.of.holds(l, b.app, b.req.Name); err != nil {
		return n, err
	}
	for _, at := range times {
		_, known, err := l.triggerJob(&trigger{app: b.app, name: b.req.Name, why: job.ByBackfill, at: at, traceParent: b.traceParent})
		switch {
		case err != nil:
			return n, err
		case known:
			n.existing++
		default:
			n.accepted++
		}
	}
	return n, nil
}

// interrupted adds to an error how many runs the call has accepted; nil stays nil.
func (b *backfilling) interrupted(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (%d runs were accepted; asking again goes on where this ended)", err, b.resp.Accepted)
}

// earliest returns the earliest of a, b and nextMs, which is in Unix ms; 0: it does not count.
func earliest(a, b time.Time, nextMs int64) time.Time {
	if b.Before(a) {
		a = b
	}
	if next := time.UnixMilli(nextMs); nextMs > 0 && next.Before(a) {
		a = next
	}
	return a
}

// bulkPage bounds the jobs that one call of BulkJobs examines, and the names in its request.
const bulkPage = 1000

func (a *jobsAPI) BulkJobs(ctx context.Context, req *apiv1.BulkJobsRequest) (*apiv1.BulkJobsResponse, error) {
	act, ok := bulkActions[req.Action]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "action: %q is neither pause, resume, trigger nor delete", req.Action)
	}
	if req.Prefix == "" && len(req.Names) == 0 && len(req.Labels) == 0 && !req.All {
		return nil, status.Error(codes.InvalidArgument, "say which jobs: by prefix, names or labels, or all of them with all")
	}
	if len(req.Names) > bulkPage {
		return nil, status.Errorf(codes.InvalidArgument, "%d names, the limit is %d", len(req.Names), bulkPage)
	}
	resp := &apiv1.BulkJobsResponse{}
	names, err := a.selected(ctx, req, resp)
	if err != nil {
		return nil, err
	}
	resp.Matched = int32(len(names))
	if req.DryRun {
		return resp, nil
	}
	app, parent, once := appOf(req.App), TraceParent(ctx), onceOf(ctx)
	again := once.try()
	for chunk := range slices.Chunk(names, maxCommands) {
		failures, err := askDurable(ctx, a.s.loop, func(l *loop, answer func([]string, error)) {
			var failures []string
			for _, name := range chunk {
				err := l.errIfJobMoving(app, name)
				if err == nil {
					t := &trigger{app: app, name: name, traceParent: parent}
					once.fix(t, again)
					err = act(l, req, t)
				}
				if err != nil {
					failures = append(failures, name+": "+status.Convert(err).Message())
				}
			}
			l.onDurable(func(err error) { answer(failures, err) })
		})
		if err != nil {
			return nil, err
		}
		resp.Changed += int32(len(chunk) - len(failures))
		resp.Failures = append(resp.Failures, failures...)
	}
	resp.Failures = resp.Failures[:min(len(resp.Failures), 100)]
	return resp, nil
}

// bulkActions has the actions of BulkJobs by name. Each acts on the job that t names; only
// the action trigger uses the other fields of t.
var bulkActions = map[string]func(l *loop, req *apiv1.BulkJobsRequest, t *trigger) error{
	"pause": func(l *loop, _ *apiv1.BulkJobsRequest, t *trigger) error {
		_, err := l.pauseJob(t.app, t.name, true)
		return err
	},
	"resume": func(l *loop, _ *apiv1.BulkJobsRequest, t *trigger) error {
		_, err := l.pauseJob(t.app, t.name, false)
		return err
	},
	"trigger": func(l *loop, _ *apiv1.BulkJobsRequest, t *trigger) error {
		_, _, err := l.triggerJob(t)
		return err
	},
	"delete": func(l *loop, req *apiv1.BulkJobsRequest, t *trigger) error { return l.deleteAmong(req, t.name) },
}

// selected returns the names of the jobs on one page that a bulk request selects. It sets
// the token of the next page in resp.
func (a *jobsAPI) selected(ctx context.Context, req *apiv1.BulkJobsRequest, resp *apiv1.BulkJobsResponse) ([]string, error) {
	after, err := base64.RawURLEncoding.DecodeString(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this method returned")
	}
	if err := a.s.loop.caughtUp(ctx); err != nil {
		return nil, err
	}
	page, more, err := a.s.cfg.Store.Jobs(appOf(req.App), req.Prefix, string(after), bulkPage)
	if err != nil {
		return nil, err
	}
	if more {
		resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1]))
	}
	return ask(ctx, a.s.loop, func(l *loop) (names []string, err error) {
		for _, name := range page {
			if j := l.job(appOf(req.App), name); j != nil && selects(req, name, j.Labels()) {
				names = append(names, name)
			}
		}
		return names, nil
	})
}

// selects reports whether a bulk request selects a job.
func selects(req *apiv1.BulkJobsRequest, name string, labels map[string]string) bool {
	if len(req.Names) > 0 && !slices.Contains(req.Names, name) {
		return false
	}
	for k, v := range req.Labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return strings.HasPrefix(name, req.Prefix)
}

func (a *runsAPI) ExplainRun(ctx context.Context, req *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := appOf(req.App)
	live, err := ask(ctx, a.s.loop, func(l *loop) (*apiv1.ExplainRunResponse, error) {
		if r := l.liveRun(app, id); r != nil {
			return l.explain(r), nil
		}
		return nil, nil
	})
	if err != nil || live != nil {
		return live, err
	}
	r, err := a.s.run(ctx, app, id)
	if err != nil {
		return nil, err
	}
	why := "it has ended"
	if r.Error != "" {
		why += ": " + r.Error
	}
	return &apiv1.ExplainRunResponse{State: r.State, Why: why}, nil
}

func (a *runsAPI) RetryRun(ctx context.Context, req *apiv1.RetryRunRequest) (*apiv1.Run, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := appOf(req.App)
	r, err := a.s.run(ctx, app, id)
	switch {
	case err != nil:
		return nil, err
	case !job.State(r.State).Terminal():
		return nil, status.Errorf(codes.FailedPrecondition, "run %s is %s: only a run that has ended can be retried", r.Id, r.State)
	case r.Parent != "":
		return nil, status.Errorf(codes.FailedPrecondition, "run %s is a part: retry its parent %s, which makes the parts that did not succeed anew", r.Id, r.Parent)
	case r.Node != "":
		return nil, status.Errorf(codes.FailedPrecondition, "run %s is node %s of run %s, a workflow: retry that one, which keeps what succeeded", r.Id, r.Node, r.Cause)
	}
	of, err := a.began(ctx, app, r)
	if err != nil {
		return nil, err
	}
	had, err := job.ParseRunID(of.Id)
	if err != nil {
		return nil, err
	}
	if len(of.Nodes) > 0 || of.Parts > 0 {
		here, err := a.s.find(ctx, app, had)
		if err != nil {
			return nil, err
		}
		if here == nil {
			return nil, status.Errorf(codes.FailedPrecondition, "run %s ended before its job came to this partition of the cluster, and what became of its parts stayed there: trigger job %s anew", r.Id, r.Job)
		}
	}
	t := &trigger{
		app: app, name: r.Job, why: job.ByRetry, cause: id, traceParent: TraceParent(ctx),
		hasInput: true, input: inputOf(r),
	}
	if of.Parts > 0 && of.PartsFailed > 0 {
		if t.redo, err = a.s.redoOf(ctx, &under{app, had, of}); err != nil {
			return nil, err
		}
	}
	if len(r.Nodes) > 0 && r.State != string(job.Succeeded) {
		if err := a.s.loop.caughtUp(ctx); err != nil {
			return nil, err
		}
		left := keptBytes
		if t.kept, err = a.kept(ctx, app, id[:], &left); err != nil {
			return nil, err
		}
	}
	once := onceOf(ctx)
	once.fix(t, once.try())
	return a.s.trigger(ctx, t)
}

// began returns the run with the parts that a retry of r builds on: r itself or, if r is a
// retry that ended before it made any parts, the run that r retried, and so on. It stops at
// a run whose predecessor is gone from the history.
func (a *runsAPI) began(ctx context.Context, app string, r *apiv1.Run) (*apiv1.Run, error) {
	const far = 16 // bounds a chain of retries, each of which was cancelled
	for range far {
		if r.Trigger != string(job.ByRetry) || r.Parts > 0 || len(r.Nodes) > 0 || r.StartedAt != nil || r.Cause == "" {
			break
		}
		id, err := parseRun(r.Cause)
		if err != nil {
			return nil, err
		}
		of, err := a.s.run(ctx, app, id)
		if status.Code(err) == codes.NotFound {
			break
		}
		if err != nil {
			return nil, err
		}
		r = of
	}
	return r, nil
}

func inputOf(r *apiv1.Run) []byte {
	if len(r.InputBytes) > 0 {
		return r.InputBytes
	}
	return []byte(r.Input)
}
