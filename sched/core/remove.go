package core

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// MaxRemoved is the largest number of runs that one call of RemoveRuns removes in addition to the run itself.
const MaxRemoved = 1000

// Removed says which ended runs to remove from the history. The caller has found them there.
type Removed struct {
	App         string
	Run         job.RunID   // that the caller of the API named
	Under       []job.RunID // parts and runs of nodes
	More        bool        // the run itself stays until another call, which has the rest of them
	PayloadOnly bool
}

// RemoveRuns records the removal of runs. It refuses live ones.
func (cm *Commands) RemoveRuns(r *Removed) error {
	slot := cm.l.State.app(r.App).slots[r.Run.Slot()]
	if !here(slot) {
		return status.Errorf(codes.Unavailable, "the job of run %s moves to another partition: try again in a moment", r.Run)
	}
	if err := cm.l.commits.refuseChange(); err != nil {
		return err
	}
	rec := &apiv1.RunsRemoved{PayloadOnly: r.PayloadOnly}
	for _, id := range append(r.Under[:len(r.Under):len(r.Under)], r.Run) {
		if cm.l.State.LiveRun(r.App, id) != nil {
			return status.Errorf(codes.FailedPrecondition, "run %s has not ended: cancel it first, and delete it when it has ended", id)
		}
	}
	for _, id := range r.Under {
		rec.Runs = append(rec.Runs, id[:])
	}
	if !r.More {
		rec.Run = r.Run[:]
	}
	cm.l.commits.record(slot, &apiv1.Record{Kind: &apiv1.Record_RunsRemoved{RunsRemoved: rec}})
	return nil
}
