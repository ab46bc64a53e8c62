package console

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// stripRuns bounds the runs in a strip.
	stripRuns = 20
	// stripCalls bounds the calls that read the strips of one page at once.
	stripCalls = 4
	// stripTime is how long a page waits for its strips.
	stripTime = 50 * time.Millisecond
)

// strip is the last ended runs of a job, oldest first.
type strip struct {
	Runs []*apiv1.Run
	Read bool // false: the page did not wait for them
}

// oldestFirst returns runs that a list has, the newest first, in the order of time.
func oldestFirst(runs []*apiv1.Run) []*apiv1.Run {
	ordered := slices.Clone(runs)
	slices.Reverse(ordered)
	return ordered
}

// counted returns the runs that started: those that were skipped say nothing about the job.
func (s strip) counted() (runs []*apiv1.Run) {
	for _, r := range s.Runs {
		if job.State(r.State) != job.Skipped {
			runs = append(runs, r)
		}
	}
	return runs
}

// Succeeded counts the runs that succeeded.
func (s strip) Succeeded() (n int64) {
	for _, r := range s.Runs {
		if job.State(r.State) == job.Succeeded {
			n++
		}
	}
	return n
}

// Counted counts the runs of which the success rate is.
func (s strip) Counted() int64 { return int64(len(s.counted())) }

// P95 returns the duration that 95 % of the runs with a start and an end did not exceed, by the
// nearest rank; negative: there is none.
func (s strip) P95() time.Duration {
	var took []time.Duration
	for _, r := range s.Runs {
		if r.StartedAt != nil && r.FinishedAt != nil {
			took = append(took, r.FinishedAt.AsTime().Sub(r.StartedAt.AsTime()))
		}
	}
	if len(took) == 0 {
		return -1
	}
	slices.Sort(took)
	return took[(len(took)*95+99)/100-1]
}

// strips reads the last runs of jobs side by side, for at most limit. A strip that is not read by
// then, or that the API refuses, says so.
func (c *console) strips(ctx context.Context, app string, jobs []*apiv1.Job, limit time.Duration) []strip {
	all := make([]strip, len(jobs))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(stripCalls)
	for i, j := range jobs {
		if j.GetStats().GetLastRun() == "" { // no run has ended
			all[i].Read = true
			continue
		}
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			answer, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: app, Job: j.Name, State: "ended", PageSize: stripRuns})
			if err == nil {
				all[i] = strip{oldestFirst(answer.Runs), true}
			}
			return nil
		})
	}
	_ = g.Wait() // no function fails
	return all
}
