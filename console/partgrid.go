package console

import (
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// maxCells bounds the parts of a run that has a grid. A larger run has its counts.
	maxCells = 1000
	// cellsAtOnce bounds the parts that one call reads.
	cellsAtOnce = 100
	// gridTime is how long one page reads parts for its grid before it offers to continue. It ends
	// after the call that is under way then.
	gridTime = 40 * time.Millisecond
)

// partGrid is the parts of a run, each with its state.
type partGrid struct {
	Parts   []*apiv1.Run // by number
	Without int32        // parts without a run: they are not made yet, or had succeeded in the run that this one retries
	From    string       // token at which the grid begins; "": at part 0
	Next    string       // token of the parts that were not read in time; "": all were
}

// Bad reports whether a part ended without success.
func (partGrid) Bad(state string) bool {
	s := job.State(state)
	return s.Terminal() && s != job.Succeeded && s != job.Skipped
}

// gridOf reads the parts of a run for a grid; nil: there are too many.
func (c *console) gridOf(v *visit, run *apiv1.Run, from string, until time.Time) (*partGrid, error) {
	if run.Parts > maxCells {
		return nil, nil
	}
	g := &partGrid{From: from, Next: from}
	for {
		answer, err := c.runs.ListRuns(v.ctx, &apiv1.ListRunsRequest{App: v.app, Parent: run.Id, PageSize: cellsAtOnce, PageToken: g.Next})
		if err != nil {
			return nil, err
		}
		g.Parts, g.Next = append(g.Parts, answer.Runs...), answer.NextPageToken
		if g.Next == "" || !time.Now().Before(until) {
			break
		}
	}
	if g.From == "" && g.Next == "" {
		g.Without = max(0, run.Parts-int32(len(g.Parts)))
	}
	return g, nil
}
