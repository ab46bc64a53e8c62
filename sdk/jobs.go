package sdk

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Apply creates or updates a job and returns when the change is durable.
// Applying the same definition again changes nothing. An empty App means
// [DefaultApp].
func (c *Client) Apply(ctx context.Context, job *Job) (Answer, error) {
	answer, err := c.producer.call(ctx, applyCommand(job))
	return answer, wrap("apply job "+job.GetName(), err)
}

// ApplyAsync is [Client.Apply] without waiting for the answer. It blocks only
// while there is no room for another command, at most until ctx ends. The job
// must not be changed before the answer has come.
func (c *Client) ApplyAsync(ctx context.Context, job *Job) *Pending {
	return c.producer.submit(ctx, applyCommand(job))
}

// Delete removes a job. Runs that were accepted go on. It fails with
// [ErrNotFound] if there is no such job.
func (c *Client) Delete(ctx context.Context, app, name string) error {
	_, err := c.producer.call(ctx, deleteCommand(app, name))
	return wrap("delete job "+name, err)
}

// DeleteAsync is [Client.Delete] without waiting for the answer; see [Client.ApplyAsync].
func (c *Client) DeleteAsync(ctx context.Context, app, name string) *Pending {
	return c.producer.submit(ctx, deleteCommand(app, name))
}

// Trigger asks for one run of a job.
type Trigger struct {
	App   string // default [DefaultApp]
	Job   string
	Input []byte // instead of the job's own; nil: the job's own. At most 64 KiB

	// Key makes the trigger idempotent: the server answers the same key with
	// the same run. Default: 128 random bits, so that what the client itself
	// sends again after a lost connection starts no second run.
	Key string
}

// Trigger starts a run and returns its id when it is durable.
func (c *Client) Trigger(ctx context.Context, t Trigger) (Answer, error) {
	answer, err := c.producer.call(ctx, t.command())
	return answer, wrap("trigger job "+t.Job, err)
}

// TriggerAsync is [Client.Trigger] without waiting for the answer; see [Client.ApplyAsync].
func (c *Client) TriggerAsync(ctx context.Context, t Trigger) *Pending {
	return c.producer.submit(ctx, t.command())
}

// TriggerRun is [Client.Trigger] in a call of its own that returns the whole
// run. Prefer Trigger when there are many.
func (c *Client) TriggerRun(ctx context.Context, t Trigger) (*Run, error) {
	run, err := c.jobs.TriggerJob(ctx, t.request())
	return run, c.callError(ctx, "trigger job "+t.Job, err)
}

// DryRun checks a definition and says what [Client.Apply] would do.
func (c *Client) DryRun(ctx context.Context, job *Job) (Result, error) {
	r, err := c.jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: withApp(job), DryRun: true})
	return Result(r.GetResult()), c.callError(ctx, "check job "+job.GetName(), err)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.GetJob(ctx, &apiv1.GetJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "get job "+name, err)
}

// JobQuery selects jobs.
type JobQuery struct {
	App    string // default [DefaultApp]
	Prefix string // of the name
	Limit  int    // default: all
}

// Jobs returns the selected jobs by name. It reads page after page while the
// caller iterates and ends after the first error.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[*Job, error] {
	return pages(q.Limit, func(size int32, token string) ([]*Job, string, error) {
		r, err := c.jobs.ListJobs(ctx, &apiv1.ListJobsRequest{
			App: appOf(q.App), Prefix: q.Prefix, PageSize: size, PageToken: token,
		})
		return r.GetJobs(), r.GetNextPageToken(), c.callError(ctx, "list jobs", err)
	})
}

// Pause keeps the job's schedule from firing. Triggering it still works.
func (c *Client) Pause(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "pause job "+name, err)
}

// Resume ends a pause. What the schedule would have fired meanwhile is not made up for.
func (c *Client) Resume(ctx context.Context, app, name string) (*Job, error) {
	job, err := c.jobs.ResumeJob(ctx, &apiv1.ResumeJobRequest{App: appOf(app), Name: name})
	return job, c.callError(ctx, "resume job "+name, err)
}

func applyCommand(job *Job) *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Apply{Apply: withApp(job)}}
}

func deleteCommand(app, name string) *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: appOf(app), Name: name}}}
}

func (t Trigger) command() *apiv1.Command {
	return &apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: t.request()}}
}

func (t Trigger) request() *apiv1.TriggerJobRequest {
	r := &apiv1.TriggerJobRequest{App: appOf(t.App), Name: t.Job, IdempotencyKey: cmp.Or(t.Key, rand.Text())}
	switch {
	case t.Input == nil:
	case utf8.Valid(t.Input):
		r.Input = proto.String(string(t.Input))
	default:
		r.InputBytes = t.Input
	}
	return r
}

// withApp returns the job with its app named, without touching the caller's.
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

// pages iterates over a paged list, up to limit elements if it is positive.
func pages[T any](limit int, page func(size int32, token string) ([]T, string, error)) iter.Seq2[T, error] {
	const largest = 1000 // that the API serves
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
