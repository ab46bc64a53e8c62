package core

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TerminateRun ends a live run without the confirmation of hosts, and with it its parts and
// the runs of its nodes that are in this partition. The attempts count as stopped, and their
// later results are ignored. It reports whether the run was live.
func (cm *Commands) TerminateRun(app string, id job.RunID, why string) (bool, error) {
	r := cm.l.State.LiveRun(app, id)
	if r == nil {
		return false, nil
	}
	if err := cm.cancel(r, why); err != nil {
		return true, err
	}
	collected := cm.l.Sessions.resultBatch()
	for _, x := range cm.executing(r, nil) {
		if err := cm.cancel(x, why); err != nil {
			return true, err
		}
		collected.add(x, &apiv1.TaskResult{Run: x.ID[:], Attempt: x.Attempt, Outcome: apiv1.Outcome_OUTCOME_STOPPED, Error: why, Code: job.CodeTerminated})
	}
	collected.record()
	cm.l.Dispatcher.hostFreed()
	return true, nil
}

// executing appends the runs at hosts on which the end of r depends.
func (cm *Commands) executing(r *job.Run, all []*job.Run) []*job.Run {
	switch {
	case r.HasParts():
		for _, part := range r.LiveParts() {
			all = cm.executing(part, all)
		}
	case r.HasNodes():
		for _, n := range r.Nodes.Rows {
			if len(n.Run) != len(job.RunID{}) {
				continue
			}
			if x := cm.l.State.LiveRun(r.App, job.RunID(n.Run)); x != nil {
				all = cm.executing(x, all)
			}
		}
	case r.State == job.Running && r.Mark&isInResultBatch == 0:
		all = append(all, r)
	}
	return all
}
