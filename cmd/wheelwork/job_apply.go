package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// apply applies jobs, each after the jobs that it names, and returns the results in that
// order.
func (c *cli) apply(ctx context.Context, client *sdk.Client, jobs []*sdk.Job, dryRun bool) iter.Seq[result] {
	if dryRun {
		return func(yield func(result) bool) {
			done := map[jobName]bool{}
			for job := range sdk.InOrder(values(jobs), nil) {
				var together []string
				for _, name := range sdk.References(job) {
					if done[jobName{job.GetApp(), name}] {
						together = append(together, name)
					}
				}
				result, err := client.DryRun(ctx, job, together...)
				done[jobName{job.GetApp(), job.GetName()}] = err == nil
				if !yield(resultOf(job, result, err)) {
					return
				}
			}
		}
	}
	return func(yield func(result) bool) {
		// The window keeps the stream full without storing an answer for each of a
		// million jobs.
		const window = 4096
		a := applying{client: client, last: make(map[jobName]*sdk.Pending, min(len(jobs), window))}
		next, stop := iter.Pull2(sdk.InOrder(values(jobs), func(names []string) { a.circles = append(a.circles, names) }))
		defer stop()
		batch := make([]sentJob, 0, min(len(jobs), window))
		for job, _, more := next(); more; {
			for batch = batch[:0]; more && len(batch) < window; job, _, more = next() {
				batch = append(batch, a.send(ctx, job))
			}
			for _, sent := range batch {
				if !yield(a.result(ctx, sent)) {
					return
				}
			}
			clear(a.last)
		}
	}
}

// values converts a list to an iterator without errors.
func values(jobs []*sdk.Job) iter.Seq2[*sdk.Job, error] {
	return func(yield func(*sdk.Job, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}
}

type jobName struct{ app, name string }

type sentJob struct {
	job    *sdk.Job
	answer *sdk.Pending
}

// applying is one window of unanswered jobs.
type applying struct {
	client  *sdk.Client
	last    map[jobName]*sdk.Pending // latest command of each job
	circles [][]string               // cycles of jobs that name each other
}

// send sends a job after the server has answered for the jobs that it names. While a
// partition moves, a cluster may otherwise execute the two commands in either order.
func (a *applying) send(ctx context.Context, job *sdk.Job) sentJob {
	for _, name := range sdk.References(job) {
		if first := a.last[jobName{job.GetApp(), name}]; first != nil {
			first.Wait(ctx) //nolint:errcheck // its own result tells
		}
	}
	answer := a.client.ApplyAsync(ctx, job)
	a.last[jobName{job.GetApp(), job.GetName()}] = answer
	return sentJob{job, answer}
}

func (a *applying) result(ctx context.Context, sent sentJob) result {
	answer, err := sent.answer.Wait(ctx)
	if errors.Is(err, sdk.ErrPrecondition) || errors.Is(err, sdk.ErrInvalid) {
		err = a.inCircle(sent.job.GetName(), err)
	}
	return resultOf(sent.job, answer.Result, err)
}

// inCircle adds to a refusal the cycle that contains the job, if any.
func (a *applying) inCircle(name string, refused error) error {
	for _, names := range a.circles {
		if slices.Contains(names, name) {
			return fmt.Errorf("%w; the documents name each other in a circle (%s): apply one of them first without the name", refused, strings.Join(names, ", "))
		}
	}
	return refused
}
