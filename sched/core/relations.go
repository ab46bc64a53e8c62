package core

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// depends adds j to the indexes of the nodes and upstream jobs that it names. It is part of
// applying a record, and of loading the store.
func (re *relations) depends(j *job.Job) {
	for _, name := range j.Nodes() {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(re.nodeOf[k], j) {
			re.nodeOf[k] = append(re.nodeOf[k], j)
		}
	}
	if j.Dependency() == nil {
		return
	}
	for _, up := range j.Dependency().Jobs {
		k := jobKey{j.Slot().App, up}
		if !slices.Contains(re.dependents[k], j) {
			re.dependents[k] = append(re.dependents[k], j)
		}
	}
}

// dependOn returns the jobs that depend on a job now. It drops stale entries of the index.
func (re *relations) dependOn(up jobKey) []*job.Job {
	of := re.dependents[up]
	if len(of) == 0 {
		return nil
	}
	of = slices.DeleteFunc(of, func(j *job.Job) bool {
		return !j.Current() || j.Dependency() == nil || !slices.Contains(j.Dependency().Jobs, up.name)
	})
	if re.dependents[up] = of; len(of) == 0 {
		delete(re.dependents, up)
	}
	return of
}

// checkUpstream fails if an upstream job of a definition is in another partition, or neither
// exists nor is one of together.
func (re *relations) checkUpstream(def *apiv1.Job, together []string) error {
	for _, up := range def.GetDependency().GetJobs() {
		if err := re.l.Moves.errIfCrossPartition(def, up); err != nil {
			return err
		}
		if re.l.State.Job(def.App, up) == nil && !slices.Contains(together, up) {
			return status.Errorf(codes.FailedPrecondition, "job %s: it depends on job %q, which app %s does not have: apply that one first", def.Name, up, def.App)
		}
	}
	return nil
}

// checkCircle fails if with a definition jobs would start each other forever. A job starts
// the jobs that depend on it, and a workflow starts the jobs of its nodes.
func (re *relations) checkCircle(def *apiv1.Job) error {
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
		for _, j := range re.dependOn(jobKey{def.App, s.name}) {
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
		if j := re.l.State.Job(def.App, s.name); j != nil {
			from(s, j.Nodes())
		}
	}
	return nil
}

// runners returns the workflows that have a job as a node now.
func (re *relations) runners(k jobKey) []*job.Job {
	of := slices.DeleteFunc(re.nodeOf[k], func(j *job.Job) bool { return !j.Current() || !slices.Contains(j.Nodes(), k.name) })
	if len(of) == 0 {
		delete(re.nodeOf, k)
		return nil
	}
	re.nodeOf[k] = of
	return of
}

// namers returns the other jobs that depend on a job or have it as a node, each once as
// the text "job NAME". It omits those for which counts returns false.
func (re *relations) namers(k jobKey, counts func(*job.Job) bool) (names []string) {
	seen := map[string]bool{k.name: true}
	for _, of := range [][]*job.Job{re.dependOn(k), re.runners(k)} {
		for _, j := range of {
			if !seen[j.Name()] {
				seen[j.Name()] = true
				if counts(j) {
					names = append(names, "job "+j.Name())
				}
			}
		}
	}
	return names
}

// checkNodes fails if a node of a workflow names a job that does not exist, is not among
// the jobs that are applied together, or is in another partition.
func (re *relations) checkNodes(def *apiv1.Job, together []string) error {
	for _, n := range def.GetWorkflow().GetNodes() {
		if err := re.l.Moves.errIfCrossPartition(def, n.Job); err != nil {
			return err
		}
		if n.Job != def.Name && re.l.State.Job(def.App, n.Job) == nil && !slices.Contains(together, n.Job) {
			return status.Errorf(codes.FailedPrecondition, "job %s: node %s is job %q, which app %s does not have: apply that one first", def.Name, n.Name, n.Job, def.App)
		}
	}
	return nil
}
