package sdk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Apply creates or updates a job and returns when the change is durable. Applying the
// same definition again changes nothing. An empty App means [DefaultApp]. If the
// definition has an Etag, an existing job is changed only while it has the same etag: see
// [Client.ApplyIf].
//
// When ctx ends first, the client withdraws a command that is not on the wire yet. The
// error of a command that is on the wire matches [ErrUnknown].
func (c *Client) Apply(ctx context.Context, job *Job) (Answer, error) {
	app, command := applyCommand(job)
	answer, err := c.producer.call(ctx, app, command)
	return answer, wrap("apply job "+job.GetName(), err)
}

// ApplyIf applies a definition like [Client.Apply], but only if the job still has this
// etag. The caller takes the etag from the result of [Client.Job] and makes its change to
// that definition; "*" matches any existing job. If the job has another etag, or does not
// exist, nothing changes and the error matches [ErrChanged]. Then read the job and repeat
// the change, so that no update of another caller is lost.
//
// If a server is lost during the call, the change may have been made although the call
// fails, even with an error that matches [ErrChanged]. Read the job again to find out.
func (c *Client) ApplyIf(ctx context.Context, job *Job, etag string) (Answer, error) {
	if etag == "" {
		return Answer{}, fmt.Errorf("apply job %s: %w", job.GetName(), &Error{Code: codes.InvalidArgument, Message: "the etag is empty: use the etag of the job that was read"})
	}
	r, err := c.jobs.ApplyJob(forApp(ctx, job.GetApp()), &apiv1.ApplyJobRequest{Job: withApp(job), IfMatch: etag})
	return Answer{Result: Result(r.GetResult())}, c.callError(ctx, "apply job "+job.GetName(), err)
}

// ApplyAsync is [Client.Apply] without waiting for the answer. It blocks only while there
// is no room for another command, at most until ctx ends. A deadline of ctx applies to
// the command too; cancelling ctx later has no effect on it. The caller must not change
// the job before the answer has arrived.
func (c *Client) ApplyAsync(ctx context.Context, job *Job) *Pending {
	app, command := applyCommand(job)
	return c.producer.submit(ctx, app, command)
}

// TryApply is [Client.ApplyAsync] without blocking. It fails if the command could not be
// queued, with [ErrFull] if there is no room for it.
func (c *Client) TryApply(ctx context.Context, job *Job) (*Pending, error) {
	app, command := applyCommand(job)
	pending, err := c.producer.trySubmit(ctx, app, command)
	return pending, wrap("apply job "+job.GetName(), err)
}

// Delete removes a job. Its accepted runs continue. It fails with [ErrNotFound] if the
// job does not exist, and with [ErrPrecondition] if other jobs depend on it or have it as
// a node. For the effect of ctx see [Client.Apply].
func (c *Client) Delete(ctx context.Context, app, name string) error {
	_, err := c.producer.call(ctx, appOf(app), deleteCommand(app, name))
	return wrap("delete job "+name, err)
}

// ForceDelete removes a job like [Client.Delete], even if other jobs name it. Those jobs
// stay and do not run until the job exists again or they name another one.
func (c *Client) ForceDelete(ctx context.Context, app, name string) error {
	command := deleteCommand(app, name)
	command.GetDelete().Force = true
	_, err := c.producer.call(ctx, appOf(app), command)
	return wrap("delete job "+name, err)
}

// DeleteAsync is [Client.Delete] without waiting for the answer; see [Client.ApplyAsync].
func (c *Client) DeleteAsync(ctx context.Context, app, name string) *Pending {
	return c.producer.submit(ctx, appOf(app), deleteCommand(app, name))
}

// TryDelete is [Client.DeleteAsync] without blocking; see [Client.TryApply].
func (c *Client) TryDelete(ctx context.Context, app, name string) (*Pending, error) {
	pending, err := c.producer.trySubmit(ctx, appOf(app), deleteCommand(app, name))
	return pending, wrap("delete job "+name, err)
}

// Trigger describes one run of a job.
type Trigger struct {
	App   string // default [DefaultApp]
	Job   string
	Input []byte // replaces the job's own input; nil: the job's own. At most 64 KiB

	// Key makes the trigger idempotent. The server answers a repeated key with the same
	// run, for 10 minutes and for the last 65 536 keys of a slot, which is a sixteenth of
	// an app's jobs. After that the key is new and starts another run. Default: 120
	// random bits, so that a trigger which the client itself repeats starts no second
	// run. At most 256 bytes.
	Key string
}

// Trigger starts a run and returns its id when the run is durable. For the effect of ctx
// see [Client.Apply].
func (c *Client) Trigger(ctx context.Context, t Trigger) (Answer, error) {
	answer, err := c.producer.call(ctx, appOf(t.App), t.command())
	return answer, wrap("trigger job "+t.Job, err)
}

// TriggerAsync is [Client.Trigger] without waiting for the answer; see [Client.ApplyAsync].
func (c *Client) TriggerAsync(ctx context.Context, t Trigger) *Pending {
	return c.producer.submit(ctx, appOf(t.App), t.command())
}

// TryTrigger is [Client.TriggerAsync] without blocking; see [Client.TryApply].
func (c *Client) TryTrigger(ctx context.Context, t Trigger) (*Pending, error) {
	pending, err := c.producer.trySubmit(ctx, appOf(t.App), t.command())
	return pending, wrap("trigger job "+t.Job, err)
}

// TriggerRun triggers a run in a call of its own and returns the whole run. Prefer
// Trigger for many runs.
func (c *Client) TriggerRun(ctx context.Context, t Trigger) (*Run, error) {
	run, err := c.jobs.TriggerJob(ctx, t.fill(&apiv1.TriggerJobRequest{}))
	return run, c.callError(ctx, "trigger job "+t.Job, err)
}

// TriggerAndWait starts a run, waits for its end and returns it, however it ended. It
// combines [Client.Trigger] and [Client.Wait], mostly in one call. When ctx ends first,
// the error matches the context's error and the run continues; a trigger with the same
// Key finds it again.
func (c *Client) TriggerAndWait(ctx context.Context, t Trigger) (*Run, error) {
	t.Key = cmp.Or(t.Key, freshKey())
	request := t.fill(&apiv1.TriggerJobRequest{})
	request.Wait = "1m"
	run, err := c.jobs.TriggerJob(ctx, request)
	switch {
	case err == nil && run.GetFinishedAt() != nil:
		return run, nil
	case err == nil: // the run takes long, or the server cannot wait
		return c.Wait(ctx, t.App, run.GetId())
	case ctx.Err() != nil || !broken(err) && !moving(err):
		return nil, c.callError(ctx, "trigger job "+t.Job, err)
	}
	// The server is gone, or another server has the job now. The producer finds that
	// server, and the key identifies the run if it exists.
	answer, err := c.Trigger(ctx, t)
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx, t.App, answer.RunID)
}

// DryRun checks a definition and reports what [Client.Apply] would do. together names
// jobs that would be applied before it, so the definition may refer to them.
func (c *Client) DryRun(ctx context.Context, job *Job, together ...string) (Result, error) {
	_, result, err := c.dryRun(ctx, job, together)
	return result, err
}

// dryRun also returns the definition as the server would store it, with its defaults.
func (c *Client) dryRun(ctx context.Context, job *Job, together []string) (*Job, Result, error) {
	r, err := c.jobs.ApplyJob(forApp(ctx, job.GetApp()), &apiv1.ApplyJobRequest{Job: withApp(job), DryRun: true, Together: together})
	return r.GetJob(), Result(r.GetResult()), c.callError(ctx, "check job "+job.GetName(), err)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "get job "+name, err)
}

// JobQuery selects jobs.
type JobQuery struct {
	App    string            // default [DefaultApp]
	Prefix string            // prefix of the name
	Limit  int               // default: all
	Labels map[string]string // the job has all of these
	Owner  string            // of the job; "": any

	Contains string // part of the name; upper and lower case are equal
	Module   string // of the handler: its name, name@version or name@alias
	Schedule string // kind of the schedule: cron, every, delay, at, after, daily or none
	Paused   *bool  // default: both
	Failing  bool   // the last run that ended neither succeeded nor was skipped
	// Order is name, last_run (latest end first) or next_time (earliest first). Default: name. While
	// the caller iterates, a job whose time changes may come twice or not at all.
	Order string

	// NoInput omits the inputs of the jobs, which may be large. Do not apply a job that
	// was read without its input. Default: with inputs.
	NoInput bool
}

// Jobs returns the selected jobs, sorted by name unless the query has another order. It reads page after page while the
// caller iterates and ends after the first error.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[*Job, error] {
	return pages(q.Limit, func(size int32, token string) ([]*Job, string, error) {
		r, err := c.jobs.ListJobs(ctx, &apiv1.ListJobsRequest{
			App: appOf(q.App), Prefix: q.Prefix, Labels: q.Labels, Owner: q.Owner, PageSize: size, PageToken: token, WithInput: !q.NoInput,
			Contains: q.Contains, Module: q.Module, Schedule: q.Schedule, Paused: q.Paused, Failing: q.Failing, Order: q.Order,
		})
		return r.GetJobs(), r.GetNextPageToken(), c.callError(ctx, "list jobs", err)
	})
}

// Pause stops the job's schedule. Triggers still start runs.
func (c *Client) Pause(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "pause job "+name, err)
}

// PauseJob is [Client.Pause] with a reason and an end, at which the server resumes the job. It
// replaces the reason and the end of a job that is paused.
func (c *Client) PauseJob(ctx context.Context, app, name string, p Pause) (*Job, error) {
	job, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{App: appOf(app), Name: name, Reason: p.Reason, Until: p.end()})
	return job, c.callError(ctx, "pause job "+name, err)
}

// Resume ends a pause. It does not make up for planned times during the pause.
func (c *Client) Resume(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "resume job "+name, err)
}

// SkipNext skips the next planned time of the job's schedule and returns the job with the
// time after it. The skipped time becomes a run in the state skipped. It fails with
// [ErrPrecondition] if no time is planned.
func (c *Client) SkipNext(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.SkipNext(ctx, &apiv1.SkipNextRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "skip the next run of job "+name, err)
}

// Backfill describes a range of planned times, possibly in the past, for which runs are
// wanted.
type Backfill struct {
	App    string // default [DefaultApp]
	Job    string
	From   time.Time // first time, inclusive
	Until  time.Time // last time, exclusive
	Limit  int       // maximum number of planned times to count; default: all
	DryRun bool      // only report the times

	// Progress is called after each call to the server. Default: none.
	Progress func(Backfilled)
}

// Backfilled is the result of a [Backfill].
type Backfilled struct {
	Accepted int64       // number of new runs; for a dry run: that would be created
	Existing int64       // number of times that already had a run
	Times    []time.Time // the first 100 of the new runs
	Next     time.Time   // From of a call that continues; zero: the range is complete
}

// backfillStep is the number of planned times for each call. The API allows 10 000;
// smaller calls let a progress bar move.
const backfillStep = 1000

// Backfill creates a run for each time that the job's schedule plans in a range. A time
// that already has a run gets no second one. So it is safe to repeat a backfill, or to
// continue after an error from [Backfilled.Next]. With an error Backfill also returns the
// result of the calls before it.
func (c *Client) Backfill(ctx context.Context, b Backfill) (Backfilled, error) {
	const shown = 100
	done := Backfilled{Next: b.From}
	for left := b.Limit; ; {
		step := backfillStep
		if b.Limit > 0 {
			step = min(left, backfillStep)
		}
		r, err := c.jobs.BackfillJob(ctx, &apiv1.BackfillJobRequest{
			App: appOf(b.App), Name: b.Job, From: timestamppb.New(done.Next), Until: timestamppb.New(b.Until),
			Limit: int32(step), DryRun: b.DryRun,
		})
		if err != nil {
			return done, c.callError(ctx, "backfill job "+b.Job, err)
		}
		done.Accepted += int64(r.GetAccepted())
		done.Existing += int64(r.GetExisting())
		for _, t := range r.GetTimes()[:min(len(r.GetTimes()), shown-len(done.Times))] {
			done.Times = append(done.Times, t.AsTime())
		}
		done.Next = time.Time{}
		if r.GetNextFrom() != nil {
			done.Next = r.GetNextFrom().AsTime()
		}
		if b.Progress != nil {
			b.Progress(done)
		}
		if left -= step; done.Next.IsZero() || b.Limit > 0 && left <= 0 {
			return done, nil
		}
	}
}

// Actions of a [Bulk]. The texts are part of the API.
const (
	BulkPause   = "pause"
	BulkResume  = "resume"
	BulkTrigger = "trigger"
	BulkDelete  = "delete"
)

// Bulk describes one action on many jobs. It selects the jobs that match all of Prefix,
// Names and Labels, as far as these are set.
type Bulk struct {
	App    string // default [DefaultApp]
	Action string // one of the actions above
	Prefix string // prefix of the name
	Names  []string
	Labels map[string]string // the job must have all of them
	All    bool              // required when no selector is set
	DryRun bool              // only count
	Force  bool              // delete: also jobs that are named by other jobs outside the selection
	Pause  Pause             // pause: why, and until when

	// Progress is called after each call to the server. Default: none.
	Progress func(Bulked)
}

// Bulked is the result of a [Bulk] or a [RunBulk].
type Bulked struct {
	Matched  int64    // number of selected jobs or runs
	Changed  int64    // number of those on which the action succeeded
	Failures []string // "name: reason", at most 100 of each call
}

func (b *Bulked) add(r interface {
	GetMatched() int32
	GetChanged() int32
	GetFailures() []string
},
) {
	b.Matched += int64(r.GetMatched())
	b.Changed += int64(r.GetChanged())
	b.Failures = append(b.Failures, r.GetFailures()...)
}

// bulkNames is the maximum number of names in one call.
const bulkNames = 1000

// Bulk applies one action to many jobs. Jobs that refuse the action are in
// [Bulked.Failures], not in the error. With an error Bulk also returns the results of the
// jobs before it. Repeating a Bulk is harmless, except for [BulkTrigger], which starts
// further runs.
func (c *Client) Bulk(ctx context.Context, b Bulk) (Bulked, error) {
	var done Bulked
	request := &apiv1.BulkJobsRequest{
		App: appOf(b.App), Action: b.Action, Prefix: b.Prefix, Labels: b.Labels, All: b.All, DryRun: b.DryRun, Force: b.Force,
		Reason: b.Pause.Reason, Until: b.Pause.end(),
	}
	for start := 0; start == 0 || start < len(b.Names); start += bulkNames {
		request.Names, request.PageToken = b.Names[start:min(start+bulkNames, len(b.Names))], ""
		for {
			r, err := c.jobs.BulkJobs(ctx, request)
			if err != nil {
				return done, c.callError(ctx, b.Action+" jobs", err)
			}
			done.add(r)
			if b.Progress != nil {
				b.Progress(done)
			}
			if request.PageToken = r.GetNextPageToken(); request.PageToken == "" {
				break
			}
		}
	}
	return done, nil
}

func applyCommand(job *Job) (app string, _ *apiv1.Command) {
	job = withApp(job)
	return job.GetApp(), &apiv1.Command{Kind: &apiv1.Command_Apply{Apply: job}}
}

func deleteCommand(app, name string) *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: appOf(app), Name: name}}}
}

// command makes a single allocation, because programs send triggers by the hundred
// thousand.
func (t Trigger) command() *apiv1.Command {
	m := &struct {
		command apiv1.Command
		kind    apiv1.Command_Trigger
		request apiv1.TriggerJobRequest
	}{}
	m.kind.Trigger = t.fill(&m.request)
	m.command.Kind = &m.kind
	return &m.command
}

func (t Trigger) fill(r *apiv1.TriggerJobRequest) *apiv1.TriggerJobRequest {
	r.App, r.Name, r.IdempotencyKey = appOf(t.App), t.Job, t.Key
	if t.Key == "" {
		r.IdempotencyKey = freshKey()
	}
	switch {
	case t.Input == nil:
	case utf8.Valid(t.Input):
		r.Input = proto.String(string(t.Input))
	default:
		r.InputBytes = t.Input
	}
	return r
}

// freshKey returns a unique key: 120 bits of a generator that the system seeds. The key
// is not a secret. Reading each key from the system took a tenth of the client's time for
// a trigger.
func freshKey() string {
	const digits, each = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 12
	var key [2 * each]byte
	a, b := rand.Uint64(), rand.Uint64()
	for i := range each {
		key[i], key[each+i] = digits[a%32], digits[b%32]
		a, b = a/32, b/32
	}
	return string(key[:])
}

// withApp returns a copy of the job with its app set, without changing the caller's job.
func withApp(job *Job) *Job {
	if job.GetApp() != "" {
		return job
	}
	named := proto.CloneOf(job)
	named.App = DefaultApp
	return named
}

func appOf(app string) string { return cmp.Or(app, DefaultApp) }

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, err)
}

// pages iterates over a paged list, up to limit elements if limit is positive.
func pages[T any](limit int, page func(size int32, token string) ([]T, string, error)) iter.Seq2[T, error] {
	const largest = 1000 // the largest page of the API
	return func(yield func(T, error) bool) {
		token, left := "", limit
		for {
			size := largest
			if limit > 0 {
				size = min(left, largest)
			}
			elements, next, err := page(int32(size), token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, e := range elements {
				if !yield(e, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}
