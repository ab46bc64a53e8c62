package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// This file has calls for operators: to skip planned times, to fill in past ones, to change
// many jobs or runs, and to explain and retry runs.

func (a *jobsAPI) SkipNext(ctx context.Context, req *apiv1.SkipNextRequest) (*apiv1.Job, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Job, error) { return l.Commands.SkipNext(core.AppOf(req.App), req.Name) })
}

// maxBackfill bounds the runs of one BackfillJob call, and shownTimes the planned times in
// its response.
const (
	maxBackfill = 10_000
	shownTimes  = 100
)

func (a *jobsAPI) BackfillJob(ctx context.Context, req *apiv1.BackfillJobRequest) (*apiv1.BackfillJobResponse, error) {
	app, from, until := core.AppOf(req.App), req.From.AsTime(), req.Until.AsTime()
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
	if b.of, err = core.Ask(ctx, a.s.loop, func(l *core.Loop) (core.JobSchedule, error) { return l.Planner.ScheduleOf(app, req.Name) }); err != nil {
		return nil, err
	}
	// Future times are left to the schedule, and so are times that it has not decided yet.
	times, _ := b.of.Plan.Between(from, earliest(until, b.of.Now, b.of.NextMs), limit+1)
	// A planned time, because a fixed rate without an anchor continues from it.
	if len(times) > limit {
		b.resp.NextFrom = timestamppb.New(times[limit])
		times = times[:limit]
	}
	for times := range slices.Chunk(times, core.MaxCommands) {
		if err := b.fill(ctx, times); err != nil {
			return nil, err
		}
	}
	return b.resp, nil
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
	of          core.JobSchedule
	resp        *apiv1.BackfillJobResponse
	traceParent string
}

// fill accepts a run for each of the planned times that has none. It looks up live runs
// before the history, so that a run that ends in between is found.
func (b *backfilling) fill(ctx context.Context, times []time.Time) error {
	live, err := core.Ask(ctx, b.a.s.loop, func(l *core.Loop) ([]bool, error) {
		live := make([]bool, len(times))
		for i, at := range times {
			id := job.OccurrenceID(b.app, b.req.Name, at, "")
			live[i] = l.HasRecent(b.app, id)
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
	n, err := core.Ask(ctx, b.a.s.loop, func(l *core.Loop) (filled, error) { return b.accept(l, missing) })
	b.resp.Accepted += n.accepted
	b.resp.Existing += n.existing
	return b.interrupted(err)
}

// filled counts the planned times that got a run, and those that had one.
type filled struct{ accepted, existing int32 }

// accept is the part of fill that runs on the loop.
func (b *backfilling) accept(l *core.Loop, times []time.Time) (n filled, err error) {
	if err := b.of.Check(l, b.app, b.req.Name); err != nil {
		return n, err
	}
	for _, at := range times {
		_, known, err := l.Commands.TriggerJob(&core.Trigger{App: b.app, Name: b.req.Name, Why: job.ByBackfill, At: at, TraceParent: b.traceParent})
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

// earliest returns the earliest of a, b and NextMs, which is in Unix ms; 0: it does not count.
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
	if req.Action != "pause" && (req.Reason != "" || req.Until != nil) {
		return nil, status.Errorf(codes.InvalidArgument, "reason and until go with the action pause, and the action is %s", req.Action)
	}
	if err := core.CheckPause(req.Reason, req.Until, time.Now()); err != nil {
		return nil, err
	}
	if len(req.Names) > bulkPage {
		return nil, status.Errorf(codes.InvalidArgument, "%d names, the limit is %d", len(req.Names), bulkPage)
	}
	free := func(l *core.Loop) (struct{}, error) {
		if req.Action == "trigger" || req.DryRun {
			return struct{}{}, nil
		}
		return struct{}{}, l.Holds.Free(core.AppOf(req.App))
	}
	if _, err := core.Ask(ctx, a.s.loop, free); err != nil { // the selection sees a change set whole
		return nil, err
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
	app, parent, once := core.AppOf(req.App), TraceParent(ctx), onceOf(ctx)
	again := once.try()
	for chunk := range slices.Chunk(names, core.MaxCommands) {
		failures, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (failures []string, _ error) {
			if _, err := free(l); err != nil {
				return nil, err
			}
			for _, name := range chunk {
				err := l.Moves.ErrIfJobMoving(app, name)
				if err == nil {
					t := &core.Trigger{App: app, Name: name, TraceParent: parent}
					once.fix(t, again)
					err = act(l, req, t)
				}
				if err != nil {
					failures = append(failures, name+": "+status.Convert(err).Message())
				}
			}
			return failures, nil
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
var bulkActions = map[string]func(l *core.Loop, req *apiv1.BulkJobsRequest, t *core.Trigger) error{
	"pause": func(l *core.Loop, req *apiv1.BulkJobsRequest, t *core.Trigger) error {
		_, err := l.Commands.PauseJob(t.App, t.Name, req.Reason, req.Until)
		return err
	},
	"resume": func(l *core.Loop, _ *apiv1.BulkJobsRequest, t *core.Trigger) error {
		_, err := l.Commands.ResumeJob(t.App, t.Name)
		return err
	},
	"trigger": func(l *core.Loop, _ *apiv1.BulkJobsRequest, t *core.Trigger) error {
		_, _, err := l.Commands.TriggerJob(t)
		return err
	},
	"delete": func(l *core.Loop, req *apiv1.BulkJobsRequest, t *core.Trigger) error {
		return l.Commands.DeleteSelected(req, t.Name)
	},
}

// selected returns the names of the jobs on one page that a bulk request selects. It sets
// the token of the next page in resp.
func (a *jobsAPI) selected(ctx context.Context, req *apiv1.BulkJobsRequest, resp *apiv1.BulkJobsResponse) ([]string, error) {
	after, err := base64.RawURLEncoding.DecodeString(req.PageToken)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "page_token is not one that this method returned")
	}
	if err := a.s.loop.CaughtUp(ctx); err != nil {
		return nil, err
	}
	page, more, err := a.s.cfg.Store.Jobs(core.AppOf(req.App), req.Prefix, string(after), bulkPage)
	if err != nil {
		return nil, err
	}
	if more {
		resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1]))
	}
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (names []string, err error) {
		for _, name := range page {
			if j := l.State.Job(core.AppOf(req.App), name); j != nil && core.Selects(req, name, j.Labels()) {
				names = append(names, name)
			}
		}
		return names, nil
	})
}

// bulkAction is an action of BulkRuns.
type bulkAction struct {
	state string // the default of the request's state
	live  bool   // it acts on live runs, otherwise on ended ones
	act   func(a *runsAPI, ctx context.Context, app string, runs []*apiv1.Run, done *bulkResult) error
}

var bulkRunActions = map[string]bulkAction{
	"cancel": {"live", true, (*runsAPI).cancelAll},
	"retry":  {"unsuccessful", false, (*runsAPI).retryAll},
}

func (a *runsAPI) BulkRuns(ctx context.Context, req *apiv1.BulkRunsRequest) (*apiv1.BulkRunsResponse, error) {
	action, ok := bulkRunActions[req.Action]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "action: %q is neither cancel nor retry", req.Action)
	}
	if req.Job == "" && req.Host == "" && len(req.Triggers) == 0 && len(req.Labels) == 0 && req.Since == nil && req.Until == nil && !req.All {
		return nil, status.Error(codes.InvalidArgument, "say which runs: by job, host, triggers, labels, since or until, or all of them with all")
	}
	list := &apiv1.ListRunsRequest{
		App: req.App, Job: req.Job, State: cmp.Or(req.State, action.state), Host: req.Host,
		Triggers: req.Triggers, Labels: req.Labels, Since: req.Since, Until: req.Until, PageToken: req.PageToken,
	}
	live, ended, err := statesOf(list.State)
	switch {
	case err != nil:
		return nil, err
	case action.live && len(ended) > 0:
		return nil, status.Errorf(codes.InvalidArgument, "state %q: cancel acts on live runs: leave the state out, or use a live one", req.State)
	case !action.live && len(live) > 0:
		return nil, status.Errorf(codes.InvalidArgument, "state %q: retry acts on runs that have ended: leave the state out, or use unsuccessful or an ended one", req.State)
	}
	page, err := a.listRuns(ctx, list, bulkPage)
	if err != nil {
		return nil, err
	}
	runs := slices.DeleteFunc(page.Runs, func(r *apiv1.Run) bool { return r.Parent != "" || r.Node != "" })
	resp := &apiv1.BulkRunsResponse{Matched: int32(len(runs)), NextPageToken: page.NextPageToken}
	if req.DryRun {
		return resp, nil
	}
	var done bulkResult
	if err := action.act(a, ctx, core.AppOf(req.App), runs, &done); err != nil {
		return nil, err
	}
	resp.Changed, resp.Failures = done.changed, done.failures
	return resp, nil
}

// bulkResult counts the runs of a BulkRuns call. It is safe for concurrent use.
type bulkResult struct {
	mu       sync.Mutex
	changed  int32
	failures []string // at most 100
}

// add counts a run; err is the reason for which it was refused.
func (b *bulkResult) add(id string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.changed++
	case len(b.failures) < 100:
		b.failures = append(b.failures, id+": "+status.Convert(err).Message())
	}
}

// cancelAll cancels live runs. A run that has ended since it was listed is not counted.
func (a *runsAPI) cancelAll(ctx context.Context, app string, runs []*apiv1.Run, done *bulkResult) error {
	for chunk := range slices.Chunk(runs, core.MaxCommands) {
		_, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (struct{}, error) {
			for _, r := range chunk {
				id, err := parseRun(r.Id)
				if err == nil {
					err = l.Moves.ErrIfJobMoving(app, r.Job)
				}
				live := true
				if err == nil {
					live, err = l.Commands.CancelRun(app, id)
				}
				if live {
					done.add(r.Id, err)
				}
			}
			return struct{}{}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retriesAtOnce bounds the concurrent retries of a call. Most of their time is that of a
// sync of the journal, which they share.
const retriesAtOnce = 64

// retryAll retries ended runs. The idempotency key is derived from the run, so that a
// repeated call within [job.KeyWindow] makes no second retry.
func (a *runsAPI) retryAll(ctx context.Context, app string, runs []*apiv1.Run, done *bulkResult) error {
	var g errgroup.Group
	g.SetLimit(retriesAtOnce)
	for _, r := range runs {
		g.Go(func() error {
			id, err := parseRun(r.Id)
			if err == nil && ctx.Err() == nil {
				_, err = a.retry(ctx, app, id, core.RetryChoice{}, func(t *core.Trigger) { t.SetKey("bulk retry of " + r.Id) })
			}
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			done.add(r.Id, err)
			return nil
		})
	}
	return g.Wait()
}

func (a *runsAPI) ExplainRun(ctx context.Context, req *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	app := core.AppOf(req.App)
	live, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ExplainRunResponse, error) {
		if r := l.State.LiveRun(app, id); r != nil {
			return l.Dispatcher.Explain(r), nil
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
	why := reason.New(reason.Ended)
	if r.Error != "" {
		why = reason.New(reason.EndedWithError, "error", r.Error)
	}
	return &apiv1.ExplainRunResponse{State: r.State, Why: why.Text(), Reason: why.Message()}, nil
}

func (a *runsAPI) RetryRun(ctx context.Context, req *apiv1.RetryRunRequest) (*apiv1.Run, error) {
	id, err := parseRun(req.Id)
	if err != nil {
		return nil, err
	}
	if err := core.CheckKey(req.IdempotencyKey); err != nil {
		return nil, err
	}
	once := onceOf(ctx)
	pick := core.RetryChoice{FromNode: req.FromNode, Module: req.Module, Host: req.Host}
	return a.retry(ctx, core.AppOf(req.App), id, pick, func(t *core.Trigger) {
		if req.IdempotencyKey != "" {
			t.SetKey(req.IdempotencyKey)
		}
		once.fix(t, once.try())
	})
}

// retry makes a new run of an ended one. identify sets the key or the id of the new run.
func (a *runsAPI) retry(ctx context.Context, app string, id job.RunID, pick core.RetryChoice, identify func(*core.Trigger)) (*apiv1.Run, error) {
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
	if r.PayloadDeletedAt != nil || of.PayloadDeletedAt != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "the payload of run %s was deleted, and a retry needs its input: trigger job %s with an input", r.Id, r.Job)
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
	t := &core.Trigger{
		App: app, Name: r.Job, Why: job.ByRetry, Cause: id, TraceParent: TraceParent(ctx),
		HasInput: true, Input: inputOf(r), Pick: pick,
	}
	if of.Parts > 0 && of.PartsFailed > 0 {
		if t.Redo, err = a.s.redoOf(ctx, &under{app, had, of}); err != nil {
			return nil, err
		}
	}
	if pick.FromNode != "" && len(r.Nodes) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "from_node is %q, but run %s has no nodes: it is not of a workflow, or ended before its first node", pick.FromNode, r.Id)
	}
	if len(r.Nodes) > 0 && (r.State != string(job.Succeeded) || pick.FromNode != "") {
		if err := a.s.loop.CaughtUp(ctx); err != nil {
			return nil, err
		}
		left := keptBytes
		if t.Kept, err = a.kept(ctx, app, id[:], &left); err != nil {
			return nil, err
		}
	}
	identify(t)
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

// keptBytes bounds the nodes, in bytes, that a retried workflow keeps of nested
// workflows.
const keptBytes = 1 << 20

// kept returns the nodes of a run of a workflow that has ended, for a retry that
// continues it. Nested workflows that have not succeeded are continued too, as long as
// left, in bytes, suffices; beyond it they begin again.
func (a *runsAPI) kept(ctx context.Context, app string, id []byte, left *int) ([]*apiv1.NodeRow, error) {
	value, ok, err := a.s.cfg.Store.Run(app, job.RunID(id))
	if err != nil || !ok { // it is gone from the history: there is nothing to continue
		return nil, err
	}
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, err
	}
	for _, n := range row.Nodes {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if job.State(n.State) == job.Succeeded || len(n.Run) != len(job.RunID{}) {
			continue
		}
		nested, err := a.kept(ctx, app, n.Run, left)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, k := range nested {
			size += proto.Size(k)
		}
		if size <= *left {
			n.Nodes = nested
			*left -= size
		}
	}
	return row.Nodes, nil
}

// jobKey identifies a job of an app.
type jobKey struct{ app, name string }
