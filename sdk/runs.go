package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Run returns a run.
func (c *Client) Run(ctx context.Context, app, id string) (*Run, error) {
	run, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{App: appOf(app), Id: id})
	return run, c.callError(ctx, "get run "+id, err)
}

// RunQuery selects runs.
type RunQuery struct {
	App   string // default [DefaultApp]
	Job   string // default: of all jobs
	State string // one state, or "live", or "ended", or "unsuccessful"; default: all
	Host  string // default: on all hosts
	Limit int    // default: all

	Triggers []string          // any of these: schedule, manual, retry and so on; default: any trigger
	Labels   map[string]string // the job had all of these when the run was accepted
	// Since and Until select ended runs by their end: Since is included, Until is not. A
	// live run has not ended: it is selected unless Until has passed. Default: no bound.
	Since, Until time.Time

	// Input and Output select runs whose input, or output, contains this text, byte for byte.
	// InputValues and OutputValues select those whose input, or output, is JSON with all of
	// these values by path, such as "data.country": "DE". Each needs Since, and the permission
	// payload.read. Default: no such filter.
	Input, Output             string
	InputValues, OutputValues map[string]string

	// Parent is a run with parts or nodes: only the runs that do its work, in their
	// order. Default: no such filter.
	Parent string

	// Unreadable, if set, is called when a page of the list passes over damaged blocks of
	// the server's history, each of up to 256 runs, with their number and before the runs
	// of that page: those in the blocks are missing from the list. The server's log names
	// the places.
	Unreadable func(blocks int)
}

// Runs returns the selected runs, newest first, without their inputs and
// outputs. It reads page after page while the caller iterates and ends after
// the first error. A run that ends while the list is read is in it once, in the state in
// which it was read first.
func (c *Client) Runs(ctx context.Context, q RunQuery) iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) { c.runPages(ctx, q)(yield) }
}

// runPages is Runs for one iteration.
func (c *Client) runPages(ctx context.Context, q RunQuery) iter.Seq2[*Run, error] {
	live := map[string]bool{} // the ids of the runs that were live when they were read
	return pages(q.Limit, func(size int32, token string) ([]*Run, string, error) {
		r, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{
			App: appOf(q.App), Job: q.Job, State: q.State, Host: q.Host, Parent: q.Parent, PageSize: size, PageToken: token,
			Triggers: q.Triggers, Labels: q.Labels, Since: timestampOf(q.Since), Until: timestampOf(q.Until),
			Input: q.Input, Output: q.Output, InputValues: q.InputValues, OutputValues: q.OutputValues,
		})
		if n := r.GetUnreadableBlocks(); n > 0 && q.Unreadable != nil {
			q.Unreadable(int(n))
		}
		fresh := slices.DeleteFunc(r.GetRuns(), func(run *Run) bool {
			again := live[run.GetId()]
			if run.GetFinishedAt() == nil {
				live[run.GetId()] = true
			}
			return again
		})
		return fresh, r.GetNextPageToken(), c.callError(ctx, "list runs", err)
	})
}

// Cancel requests the end of a run and returns its current state: cancelled, or still
// running until its host has confirmed.
func (c *Client) Cancel(ctx context.Context, app, id string) (*Run, error) {
	run, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{App: appOf(app), Id: id})
	return run, c.callError(ctx, "cancel run "+id, err)
}

// Terminate cancels a run, waits for its end for a grace period, and then ends it although
// its host has not confirmed. The handler may still be running. A negative grace is the
// default of 10 s. Terminate returns the run when it has ended.
func (c *Client) Terminate(ctx context.Context, app, id string, grace time.Duration) (*Run, error) {
	req := &apiv1.TerminateRunRequest{App: appOf(app), Id: id}
	if grace >= 0 {
		req.Grace = grace.String()
	}
	run, err := c.runs.TerminateRun(ctx, req)
	return run, c.callError(ctx, "terminate run "+id, err)
}

// RetryRun creates a new run with the input of an ended run, and returns the new one. For
// a run with parts it creates only the parts that did not succeed. It fails with
// [ErrPrecondition] if the run has not ended or is itself a part. Each call creates
// another run.
func (c *Client) RetryRun(ctx context.Context, app, id string) (*Run, error) {
	return c.RetryRunWith(ctx, RunRetry{App: app, Run: id})
}

// RunRetry says what [Client.RetryRunWith] changes for its one run.
type RunRetry struct {
	App string // default [DefaultApp]
	Run string // the id of the ended run

	// FromNode is, for a run of a workflow, a node that runs again with all nodes after it, even if
	// they succeeded. Of the others, those that succeeded are kept.
	FromNode string
	// Module is another version or alias of the job's module, as name@version. It needs the
	// permission jobs.write, too.
	Module string
	// Host is the id of the only host that may execute the new run, which waits until the host
	// takes it. It goes with jobs that have neither a workflow nor a fanout.
	Host string
	// Key: a call with the same key within ten minutes returns the same run. "": each call makes one.
	Key string
}

// RetryRunWith is [Client.RetryRun] with choices for the new run.
func (c *Client) RetryRunWith(ctx context.Context, r RunRetry) (*Run, error) {
	run, err := c.runs.RetryRun(ctx, &apiv1.RetryRunRequest{App: appOf(r.App), Id: r.Run, FromNode: r.FromNode, Module: r.Module, Host: r.Host, IdempotencyKey: r.Key})
	return run, c.callError(ctx, "retry run "+r.Run, err)
}

// DeleteRun deletes a run that has ended, with its log lines, its parts and the runs of its
// nodes. It fails with [ErrPrecondition] if the run is live, or is a part or the run of a
// node whose parent is there.
func (c *Client) DeleteRun(ctx context.Context, app, id string) error {
	_, err := c.runs.DeleteRun(ctx, &apiv1.DeleteRunRequest{App: appOf(app), Id: id})
	return c.callError(ctx, "delete run "+id, err)
}

// PurgeRun is [Client.DeleteRun] for the payload alone: input, output and log lines. The run
// stays, and its PayloadDeletedAt is set. It cannot be retried.
func (c *Client) PurgeRun(ctx context.Context, app, id string) error {
	_, err := c.runs.DeleteRun(ctx, &apiv1.DeleteRunRequest{App: appOf(app), Id: id, PayloadOnly: true})
	return c.callError(ctx, "delete the payload of run "+id, err)
}

// Actions of a [RunBulk]. The texts are part of the API.
const (
	BulkCancel = "cancel" // live runs
	BulkRetry  = "retry"  // ended runs
)

// RunBulk describes one action on many runs. It selects the runs that match all of the
// fields that are set. Parts and the runs of nodes are left to their parents.
type RunBulk struct {
	App      string // default [DefaultApp]
	Action   string // one of the actions above
	Job      string
	State    string // default: live to cancel, unsuccessful to retry
	Host     string
	Triggers []string          // any of these
	Labels   map[string]string // all of these
	Since    time.Time         // as in [RunQuery]
	Until    time.Time
	All      bool // required when only State is set, or nothing
	DryRun   bool // only count

	// Progress is called after each call to the server. Default: none.
	Progress func(Bulked)
}

// BulkRuns applies one action to many runs. Runs that refuse the action are in
// [Bulked.Failures], not in the error. With an error BulkRuns also returns the results of
// the runs before it. Repeating a BulkRuns is harmless: within ten minutes a run gets one
// retry from it.
func (c *Client) BulkRuns(ctx context.Context, b RunBulk) (Bulked, error) {
	var done Bulked
	request := &apiv1.BulkRunsRequest{
		App: appOf(b.App), Action: b.Action, Job: b.Job, State: b.State, Host: b.Host, Triggers: b.Triggers, Labels: b.Labels,
		Since: timestampOf(b.Since), Until: timestampOf(b.Until), All: b.All, DryRun: b.DryRun,
	}
	for {
		r, err := c.runs.BulkRuns(ctx, request)
		if err != nil {
			return done, c.callError(ctx, b.Action+" runs", err)
		}
		done.add(r)
		if b.Progress != nil {
			b.Progress(done)
		}
		if request.PageToken = r.GetNextPageToken(); request.PageToken == "" {
			return done, nil
		}
	}
}

// timestampOf returns a time for a request; the zero time is no time.
func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ExplainRun returns the reason for the current state of a run. While the run waits for a
// host, the result says for each host whether and why it may take the run.
func (c *Client) ExplainRun(ctx context.Context, app, id string) (*Explanation, error) {
	why, err := c.runs.ExplainRun(ctx, &apiv1.ExplainRunRequest{App: appOf(app), Id: id})
	return why, c.callError(ctx, "explain run "+id, err)
}

// Watch returns a run now and at each change; the last one is terminal. It survives lost
// connections and ends after the first error.
func (c *Client) Watch(ctx context.Context, app, id string) iter.Seq2[*Run, error] {
	op := "watch run " + id
	return follow(ctx, c, op, func(ctx context.Context) (grpc.ServerStreamingClient[Run], error) {
		return c.runs.WatchRun(forApp(ctx, app), &apiv1.WatchRunRequest{App: appOf(app), Id: id})
	}, func(*Run) {})
}

// Wait blocks until a run is terminal and returns it, however it ended. When ctx ends
// first, Wait returns the last known state of the run, together with an error that
// matches the context's.
func (c *Client) Wait(ctx context.Context, app, id string) (*Run, error) {
	var last *Run
	for run, err := range c.Watch(ctx, app, id) {
		if err != nil {
			return last, err
		}
		last = run
	}
	if last == nil {
		return nil, fmt.Errorf("watch run %s: the server sent no state", id)
	}
	// The last change may lack the output, so read the run itself.
	return c.Run(ctx, app, id)
}

// LogQuery selects lines of a run's log.
type LogQuery struct {
	App    string // default [DefaultApp]
	Run    string // the id
	From   int64  // offset of the first line
	Follow bool   // continue until the run is terminal and every line was sent
}

// Logs returns the lines of a run's log. A followed log survives lost connections without
// a gap or a repetition. It ends after the first error.
func (c *Client) Logs(ctx context.Context, q LogQuery) iter.Seq2[*LogLine, error] {
	request := &apiv1.ReadLogRequest{App: appOf(q.App), Id: q.Run, From: q.From, Follow: q.Follow}
	op := "read log of run " + q.Run
	return follow(ctx, c, op, func(ctx context.Context) (grpc.ServerStreamingClient[LogLine], error) {
		return c.runs.ReadLog(forApp(ctx, q.App), request)
	}, func(line *LogLine) { request.From = line.GetOffset() + 1 })
}

// follow iterates over a stream until the server reports that it is complete, and reopens
// it when it breaks. follow passes each element to seen before the caller gets it.
func follow[T any](
	ctx context.Context, c *Client, op string,
	open func(context.Context) (grpc.ServerStreamingClient[T], error), seen func(*T),
) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var down time.Time // start of the time without elements; zero while elements arrive
		pause := minPause
		hops := 0 // number of redirects since the last element
		for {
			stream, err := open(ctx)
			for err == nil {
				var element *T
				if element, err = stream.Recv(); err != nil {
					break
				}
				down, pause, hops = time.Time{}, minPause, 0
				seen(element)
				if !yield(element, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if hint(err) != nil && hops < maxHops {
				hops++
				continue
			}
			if down.IsZero() {
				down = time.Now()
			}
			if !broken(err) && !moving(err) || ctx.Err() != nil || time.Since(down) >= c.retryFor {
				yield(nil, c.callError(ctx, op, err))
				return
			}
			if sleep(ctx, pause) != nil {
				yield(nil, c.callError(ctx, op, status.FromContextError(ctx.Err()).Err()))
				return
			}
			pause, hops = min(2*pause, maxPause), 0 // the named server is lost, but it will be replaced
		}
	}
}

// sleep waits for d or the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
