package sched

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// depends notes on which jobs and calendars j depends. It is part of the fold.
func (l *loop) depends(j *job.Job) {
	for _, name := range j.Calendars {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(l.planned[k], j) {
			l.planned[k] = append(l.planned[k], j)
		}
	}
	if j.Dependency == nil {
		return
	}
	for _, up := range j.Dependency.Jobs {
		k := jobKey{j.Slot().App, up}
		if !slices.Contains(l.dependents[k], j) {
			l.dependents[k] = append(l.dependents[k], j)
		}
	}
}

// follow starts what depends on the runs that have ended since the last call.
// Its records go to the journal in the same unit as those of the ends: after a
// crash both are there, or neither is.
func (l *loop) follow() {
	for len(l.followed) > 0 {
		ended := l.followed
		l.followed = nil
		for _, up := range ended {
			k := jobKey{up.App, up.Job}
			of := l.dependents[k]
			if len(of) == 0 {
				continue
			}
			of = slices.DeleteFunc(of, func(j *job.Job) bool {
				return !j.Current() || j.Dependency == nil || !slices.Contains(j.Dependency.Jobs, up.Job)
			})
			if l.dependents[k] = of; len(of) == 0 {
				delete(l.dependents, k)
			}
			for _, j := range of {
				l.followOne(j, up)
			}
		}
	}
}

func (l *loop) followOne(j *job.Job, up *job.Run) {
	d := j.Dependency
	if d.Paused || !d.Counts(up.State) {
		return
	}
	if !j.Completes(up.Job) {
		if !j.Met(up.Job) {
			l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: j.Name, Upstream: up.Job}}})
		}
		return
	}
	id := job.NewRunID(up.App, j.Name, l.now, "after/"+up.ID.String())
	acc := &apiv1.Accepted{
		Run: id[:], Job: j.Name, Trigger: string(job.ByDependency), Cause: up.ID[:], TraceParent: up.TraceParent, Completes: !d.Any,
	}
	if d.PassOutput {
		acc.HasInput, acc.Input = true, up.Output
	}
	tooLarge := job.CheckInput(len(acc.Input))
	if tooLarge != nil {
		acc.Input = nil
	}
	l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	if r := l.liveRun(up.App, id); r != nil && tooLarge != nil {
		l.endUnrun(r, job.Failed, "input_limit", "the output of run "+up.ID.String()+" cannot be passed on: "+tooLarge.Error())
	}
}

// checkUpstream refuses a dependency on a job that is not there, and one that
// leads back to the job itself: its runs would start each other for ever.
func (l *loop) checkUpstream(def *apiv1.Job) error {
	if def.Dependency == nil {
		return nil
	}
	for _, up := range def.Dependency.Jobs {
		if l.job(def.App, up) == nil {
			return status.Errorf(codes.FailedPrecondition, "job %s: it depends on job %q, which app %s does not have: apply that one first", def.Name, up, def.App)
		}
	}
	type step struct {
		name string
		path string
	}
	seen := map[string]bool{}
	next := make([]step, 0, len(def.Dependency.Jobs))
	for _, up := range def.Dependency.Jobs {
		next = append(next, step{up, def.Name + " after " + up})
	}
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		if s.name == def.Name {
			return status.Errorf(codes.InvalidArgument, "job %s: its dependency goes in a circle: %s", def.Name, s.path)
		}
		if seen[s.name] {
			continue
		}
		seen[s.name] = true
		if j := l.job(def.App, s.name); j != nil && j.Dependency != nil {
			for _, up := range j.Dependency.Jobs {
				next = append(next, step{up, s.path + " after " + up})
			}
		}
	}
	return nil
}
