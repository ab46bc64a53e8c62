package sdk

import (
	"iter"
	"slices"
)

// InOrder yields jobs so that each job follows the jobs of the same list that it names:
// its dependencies, and the jobs of its workflow's nodes. A server refuses a job that
// names a missing one, so documents in this order can be applied one after another. Jobs
// without such a constraint stay in their order.
//
// Jobs that name each other in a cycle have no such order. InOrder calls circle, which
// may be nil, for each cycle: with the names, each followed by one that it names, and the
// first one again at the end. InOrder then yields the job of the cycle that is first in
// the list as if it named none of the others.
//
// InOrder holds only the jobs that wait for others. It ends after the first error.
func InOrder(jobs iter.Seq2[*Job, error], circle func(names []string)) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		o := ordering{yield: yield, yielded: map[identity]bool{}, held: map[identity][]*heldJob{}, wanted: map[identity][]*heldJob{}}
		for job, err := range jobs {
			if err != nil {
				o.yield(nil, err)
				return
			}
			if !o.take(job) {
				return
			}
		}
		o.end(circle)
	}
}

// References returns the names of the jobs that a job names, without duplicates.
func References(job *Job) []string {
	names := slices.Clone(job.GetDependency().GetJobs())
	for _, n := range job.GetWorkflow().GetNodes() {
		names = append(names, n.GetJob())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// identity is the key of a job.
type identity struct{ app, name string }

func identityOf(job *Job) identity { return identity{appOf(job.GetApp()), job.GetName()} }

// ordering is the state of one call of [InOrder].
type ordering struct {
	yield   func(*Job, error) bool
	yielded map[identity]bool
	held    map[identity][]*heldJob // waiting jobs by their own identity; duplicates in the list share one
	wanted  map[identity][]*heldJob // waiting jobs by a job that they wait for
	line    []*heldJob              // all jobs that ever waited, in the order of the list
}

// heldJob waits until all jobs that it names were yielded.
type heldJob struct {
	job     *Job
	place   int // index in ordering.line
	missing map[identity]bool
	gone    bool // it was yielded
}

// take yields a job, or holds it. It returns false when the caller stops the iteration.
func (o *ordering) take(job *Job) bool {
	id, missing := identityOf(job), map[identity]bool{}
	for _, name := range References(job) {
		up := identity{id.app, name}
		if up != id && !o.yielded[up] {
			missing[up] = true
		}
	}
	if len(o.held[id]) > 0 { // two definitions of one job stay in their order
		missing[id] = true
	}
	if len(missing) == 0 {
		return o.put(job)
	}
	h := &heldJob{job: job, place: len(o.line), missing: missing}
	o.line = append(o.line, h)
	o.held[id] = append(o.held[id], h)
	for up := range missing {
		o.wanted[up] = append(o.wanted[up], h)
	}
	return true
}

// put yields a job, and then the jobs that waited only for it.
func (o *ordering) put(job *Job) bool {
	next := []*Job{job}
	for len(next) > 0 {
		job, next = next[0], next[1:]
		if !o.yield(job, nil) {
			return false
		}
		o.yielded[identityOf(job)] = true
		next = append(next, o.release(identityOf(job))...)
	}
	return true
}

// release returns the held jobs that have nothing left to wait for after id was yielded.
func (o *ordering) release(id identity) (free []*Job) {
	for _, h := range o.wanted[id] {
		delete(h.missing, id)
		if !h.gone && len(h.missing) == 0 {
			o.drop(h)
			free = append(free, h.job)
		}
	}
	delete(o.wanted, id)
	return free
}

func (o *ordering) drop(h *heldJob) {
	id := identityOf(h.job)
	h.gone = true
	if o.held[id] = slices.DeleteFunc(o.held[id], func(x *heldJob) bool { return x == h }); len(o.held[id]) == 0 {
		delete(o.held, id)
	}
}

// end yields the remaining jobs after the end of the list: each names a missing job, or
// is in a cycle.
func (o *ordering) end(circle func([]string)) {
	var absent []identity
	for id := range o.wanted {
		if len(o.held[id]) == 0 {
			absent = append(absent, id)
		}
	}
	for _, id := range absent {
		for _, h := range o.wanted[id] {
			delete(h.missing, id)
		}
		delete(o.wanted, id)
	}
	for _, h := range o.line { // jobs that waited only for missing ones
		if !h.gone && len(h.missing) == 0 && !o.let(h) {
			return
		}
	}
	for _, h := range o.line {
		for !h.gone {
			names, first := o.circleFrom(h)
			if circle != nil {
				circle(names)
			}
			if !o.let(first) {
				return
			}
		}
	}
}

// let yields a held job.
func (o *ordering) let(h *heldJob) bool {
	o.drop(h)
	return o.put(h.job)
}

// circleFrom follows the jobs that held jobs wait for until a job repeats. It returns the
// names of that cycle, and the job of the cycle that is first in the list.
func (o *ordering) circleFrom(h *heldJob) (names []string, first *heldJob) {
	seen := map[*heldJob]bool{}
	for !seen[h] {
		seen[h] = true
		h = o.held[o.waitsFor(h)][0]
	}
	first = h
	for x := h; len(names) == 0 || x != h; x = o.held[o.waitsFor(x)][0] {
		names = append(names, x.job.GetName())
		if x.place < first.place {
			first = x
		}
	}
	return append(names, names[0]), first
}

// waitsFor returns one of the jobs that h waits for, always the same one.
func (o *ordering) waitsFor(h *heldJob) identity {
	var least identity
	for id := range h.missing {
		if least.name == "" || id.name < least.name {
			least = id
		}
	}
	return least
}
