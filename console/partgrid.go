package console

import (
	"context"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// maxCells bounds the parts of a run that a grid shows. A larger run has its counts.
	maxCells = 1000
	// gridTime is how long a page waits for the parts of its grid.
	gridTime = 60 * time.Millisecond
)

// partGrid is the parts of a run, each with its state.
type partGrid struct {
	Parts   []*apiv1.Run // by number
	Without int32        // parts without a run: they are not made yet, or had succeeded in the run that this one retries
	Partial bool         // the page did not wait for all of them
}

// Bad reports whether a part ended without success.
func (partGrid) Bad(state string) bool {
	s := job.State(state)
	return s.Terminal() && s != job.Succeeded && s != job.Skipped
}

// gridOf reads the parts of a run for a grid; nil: there are too many, or none could be read in time.
func (c *console) gridOf(v *visit, run *apiv1.Run, limit time.Duration) *partGrid {
	if run.Parts > maxCells {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, limit)
	defer cancel()
	g := &partGrid{}
	req := &apiv1.ListRunsRequest{App: v.app, Parent: run.Id, PageSize: maxCells}
	for {
		answer, err := c.runs.ListRuns(ctx, req)
		if err != nil {
			g.Partial = true
			break
		}
		g.Parts = append(g.Parts, answer.Runs...)
		if req.PageToken = answer.NextPageToken; req.PageToken == "" {
			break
		}
		if len(g.Parts) >= maxCells {
			g.Partial = true
			break
		}
	}
	if len(g.Parts) == 0 {
		return nil
	}
	if !g.Partial {
		g.Without = max(0, run.Parts-int32(len(g.Parts)))
	}
	return g
}
