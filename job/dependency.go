package job

import (
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// maxUpstream bounds the jobs that one job depends on.
const maxUpstream = 100

// Dependency defines which ends of which jobs start a run.
type Dependency struct {
	Jobs       []string // upstream, at least one
	On         string   // success failure end
	Any        bool     // each end starts a run; else one end of each of Jobs is needed
	PassOutput bool     // the output of the run that completes the dependency is the input
	Paused     bool     // the job is paused, so its dependency starts no run
}

func dependencyOf(d *apiv1.Job) *Dependency {
	m := d.GetDependency()
	if len(m.GetJobs()) == 0 {
		return nil
	}
	dep := &Dependency{Jobs: m.Jobs, On: m.On, Any: m.Need == "any", PassOutput: m.PassOutput, Paused: d.GetPaused()}
	if dep.On == "" {
		dep.On = "success"
	}
	return dep
}

func calendarsOf(d *apiv1.Job) []string {
	s := d.GetSchedule()
	return append(slices.Clone(s.GetInclude()), s.GetExclude()...)
}

// Counts reports whether a run of an upstream job counts that ended in this state.
func (d *Dependency) Counts(end State) bool {
	switch d.On {
	case "success":
		return end == Succeeded
	case "failure":
		return end != Succeeded && end != Skipped
	}
	return true
}

// Completes reports whether an end of upstream starts a run of j now, because no other
// upstream is missing.
func (j *Job) Completes(upstream string) bool {
	d := j.Dependency()
	if d.Any {
		return true
	}
	for _, up := range d.Jobs {
		if up != upstream && !j.Met(up) {
			return false
		}
	}
	return true
}

func checkDependency(d *apiv1.Job) error {
	m := d.Dependency
	if m == nil {
		return nil
	}
	switch {
	case len(m.Jobs) == 0:
		return fmt.Errorf("dependency.jobs is empty: name the jobs whose runs start this one")
	case len(m.Jobs) > maxUpstream:
		return fmt.Errorf("dependency.jobs has %d jobs, the limit is %d", len(m.Jobs), maxUpstream)
	case m.On != "" && m.On != "success" && m.On != "failure" && m.On != "end":
		return fmt.Errorf("dependency.on: %q is neither success, failure nor end", m.On)
	case m.Need != "" && m.Need != "all" && m.Need != "any":
		return fmt.Errorf("dependency.need: %q is neither all nor any", m.Need)
	}
	for i, name := range m.Jobs {
		if err := naming.Check("dependency.jobs", name); err != nil {
			return err
		}
		if name == d.Name {
			return fmt.Errorf("dependency.jobs: the job depends on itself")
		}
		if slices.Contains(m.Jobs[:i], name) {
			return fmt.Errorf("dependency.jobs names %q twice", name)
		}
	}
	return nil
}

// CheckRate refuses an invalid rate. A nil rate is valid and means no rate.
func CheckRate(r *apiv1.Rate) error {
	switch {
	case r == nil:
		return nil
	case r.Max < 1 || r.Max > 1_000_000:
		return fmt.Errorf("rate.max is %d, it must be 1 to 1000000", r.Max)
	}
	return schedule.CheckInterval("rate.per", r.Per)
}

// RateOf reads a rate that [CheckRate] has accepted: the number of starts in a period, by
// default one second.
func RateOf(r *apiv1.Rate) (starts int32, per time.Duration) {
	if r.GetMax() == 0 {
		return 0, 0
	}
	if v := schedule.Duration(r.Per); v > 0 {
		return r.Max, v
	}
	return r.Max, time.Second
}

func checkPolicies(d *apiv1.Job) error {
	if o := d.Overlap; o != nil {
		if _, ok := overlaps[o.Policy]; !ok {
			return fmt.Errorf("overlap.policy: %q is neither parallel, queue, discard nor cover", o.Policy)
		}
		switch p := overlaps[o.Policy]; {
		case o.Limit < 0 || o.Limit > 1_000_000:
			return fmt.Errorf("overlap.limit is %d, it must be 0 to 1000000", o.Limit)
		case o.Limit > 0 && p != Parallel && p != Queue:
			return fmt.Errorf("overlap.limit goes with the policies parallel and queue only")
		}
	}
	if d.Deadline != "" {
		if err := schedule.CheckInterval("deadline", d.Deadline); err != nil {
			return err
		}
	}
	if d.Priority < -10 || d.Priority > 10 {
		return fmt.Errorf("priority is %d, it must be -10 to 10", d.Priority)
	}
	if err := CheckRate(d.Rate); err != nil {
		return err
	}
	if f := d.Fanout; f != nil {
		maps := f.Mode == "map" || f.Mode == "map_reduce"
		switch {
		case f.Mode != "broadcast" && f.Mode != "shards" && !maps:
			return fmt.Errorf("fanout.mode: %q is not one of broadcast, shards, map and map_reduce", f.Mode)
		case f.Mode != "shards" && f.Shards != 0:
			return fmt.Errorf("fanout.shards goes with the mode shards only")
		case f.Mode != "map_reduce" && f.Reduce != "":
			return fmt.Errorf("fanout.reduce goes with the mode map_reduce only")
		case f.Reduce != "" && d.GetHandler().GetModule() == "":
			return fmt.Errorf("fanout.reduce names a handler of the job's module, but the job has no module")
		case !maps && (f.MaxParts != 0 || f.MaxDepth != 0):
			return fmt.Errorf("fanout.max_parts and fanout.max_depth go with the modes map and map_reduce only")
		case f.MaxParts < 0 || f.MaxParts > maxMapped:
			return fmt.Errorf("fanout.max_parts is %d, it must be 1 to %d", f.MaxParts, maxMapped)
		case f.MaxDepth < 0 || f.MaxDepth > maxMapDepth:
			return fmt.Errorf("fanout.max_depth is %d, it must be 1 to %d", f.MaxDepth, maxMapDepth)
		case f.Mode == "shards" && (f.Shards < 1 || f.Shards > maxParts):
			return fmt.Errorf("fanout.shards is %d, it must be 1 to %d", f.Shards, maxParts)
		}
	}
	if j := d.GetRetry().GetJitter(); !(j >= 0 && j <= 1) {
		return fmt.Errorf("retry.jitter is %v, it must be 0 to 1", j)
	}
	return nil
}

// maxParts bounds the parts of one run that does not map.
const maxParts = 10_000
