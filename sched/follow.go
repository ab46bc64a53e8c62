package sched

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// depends adds j to the indexes of the calendars, nodes and upstream jobs that it names. It
// is part of applying a record, and of loading the store.
func (l *loop) depends(j *job.Job) {
	for _, name := range j.Calendars() {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(l.planned[k], j) {
			l.planned[k] = append(l.planned[k], j)
		}
	}
	for _, name := range j.Nodes() {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(l.nodeOf[k], j) {
			l.nodeOf[k] = append(l.nodeOf[k], j)
		}
	}
	if j.Dependency() == nil {
		return
	}
	for _, up := range j.Dependency().Jobs {
		k := jobKey{j.Slot().App, up}
		if !slices.Contains(l.dependents[k], j) {
			l.dependents[k] = append(l.dependents[k], j)
		}
	}
}

// follow judges canaries, starts the runs that depend on runs that have ended since the last
// call, and advances workflows. Its records are in the same batch as those ends, so that
// after a crash the journal has both or neither (ADR 11).
func (l *loop) follow() {
	l.judge()
	for len(l.followed)+len(l.moved) > 0 {
		ended, moved := l.followed, l.moved
		l.followed, l.moved = nil, nil
		for _, up := range ended {
			for _, j := range l.dependOn(jobKey{up.App, up.Job}) {
				l.followOne(j, up)
			}
		}
		l.advance(ended, moved)
	}
}

// dependOn returns the jobs that depend on a job now. It drops stale entries of the index.
func (l *loop) dependOn(up jobKey) []*job.Job {
	of := l.dependents[up]
	if len(of) == 0 {
		return nil
	}
	of = slices.DeleteFunc(of, func(j *job.Job) bool {
		return !j.Current() || j.Dependency() == nil || !slices.Contains(j.Dependency().Jobs, up.name)
	})
	if l.dependents[up] = of; len(of) == 0 {
		delete(l.dependents, up)
	}
	return of
}

func (l *loop) followOne(j *job.Job, up *job.Run) {
	d := j.Dependency()
	if d.Paused || !d.Counts(up.State) {
		return
	}
	if !j.Completes(up.Job) {
		if !j.Met(up.Job) {
			l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Met{Met: &apiv1.Met{Job: j.Name(), Upstream: up.Job}}})
		}
		return
	}
	id := job.OccurrenceID(up.App, j.Name(), l.now, "after/"+up.ID.String())
	acc := &apiv1.Accepted{
		Run: id[:], Job: j.Name(), Trigger: string(job.ByDependency), Cause: up.ID[:], TraceParent: up.TraceParent, Completes: !d.Any,
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

// checkUpstream fails if an upstream job of a definition is in another partition, or neither
// exists nor is one of together.
func (l *loop) checkUpstream(def *apiv1.Job, together []string) error {
	for _, up := range def.GetDependency().GetJobs() {
		if err := l.errIfCrossPartition(def, up); err != nil {
			return err
		}
		if l.job(def.App, up) == nil && !slices.Contains(together, up) {
			return status.Errorf(codes.FailedPrecondition, "job %s: it depends on job %q, which app %s does not have: apply that one first", def.Name, up, def.App)
		}
	}
	return nil
}

// checkCircle fails if with a definition jobs would start each other forever. A job starts
// the jobs that depend on it, and a workflow starts the jobs of its nodes.
func (l *loop) checkCircle(def *apiv1.Job) error {
	if def.Workflow == nil && def.Dependency == nil {
		return nil // it names no job, so it cannot close a circle
	}
	type step struct{ name, path string }
	var next []step
	seen := map[string]bool{}
	from := func(s step, nodes []string) {
		for _, name := range nodes {
			next = append(next, step{name, s.path + ", which runs " + name})
		}
		for _, j := range l.dependOn(jobKey{def.App, s.name}) {
			if j.Name() != def.Name { // the dependency of the new definition counts: see below
				next = append(next, step{j.Name(), s.path + ", after which runs " + j.Name()})
			}
		}
		if slices.Contains(def.GetDependency().GetJobs(), s.name) {
			next = append(next, step{def.Name, s.path + ", after which runs " + def.Name})
		}
	}
	from(step{def.Name, def.Name}, job.NodeJobs(def))
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		if s.name == def.Name {
			return status.Errorf(codes.InvalidArgument, "job %s: jobs would start each other in a circle: %s", def.Name, s.path)
		}
		if seen[s.name] {
			continue
		}
		seen[s.name] = true
		if j := l.job(def.App, s.name); j != nil {
			from(s, j.Nodes())
		}
	}
	return nil
}
