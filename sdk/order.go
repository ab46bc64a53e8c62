package sdk

import (
	"iter"
	"slices"
)

// InOrder yields jobs so that each comes after those of the same list that it
// names: the jobs that it depends on, and those of its workflow's nodes. A
// server refuses a job that names one which is not there, so documents in this
// order can be applied one after another. What the order leaves open stays as it
// came.
//
// Jobs that name each other in a circle have no such order. circle, which may be
// nil, is told of each circle: the names, each followed by one that it names, and
// the first one again at the end. The first of them in the list is then yielded
// as if it named none of the others.
//
// It holds only the jobs that wait for others. It ends after the first error.
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

// References returns the names of the jobs that a job names, each once.
func References(job *Job) []string {
	names := slices.Clone(job.GetDependency().GetJobs())
	for _, n := range job.GetWorkflow().GetNodes() {
		names = append(names, n.GetJob())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// identity is what a job is known by.
type identity struct{ app, name string }

func identityOf(job *Job) identity { return identity{appOf(job.GetApp()), job.GetName()} }

// ordering is one walk of [InOrder].
type ordering struct {
	yield   func(*Job, error) bool
	yielded map[identity]bool
	held    map[identity][]*heldJob // that wait, by what they are; several have one name if the list has
	wanted  map[identity][]*heldJob // that wait, by what they wait for
	line    []*heldJob              // all that were held, in the order of the list
}

// heldJob waits until all that it names were yielded.
type heldJob struct {
	job     *Job
	place   int // in ordering.line
	missing map[identity]bool
	gone    bool // it was yielded
}

// take yields a job, or holds it. It reports false when the caller wants no more.
func (o *ordering) take(job *Job) bool {
	id, missing := identityOf(job), map[identity]bool{}
	for _, name := range References(job) {
		up := identity{id.app, name}
		if up != id && !o.yielded[up] {
			missing[up] = true
		}
	}
	if len(o.held[id]) > 0 { // two definitions of one job: the later one stays the later one
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

// put yields a job, and then those that waited for it alone.
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

// release returns the held jobs that wait for nothing after id was yielded.
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

// end yields what is held when the list has ended: it names jobs that are not in
// the list, or is in a circle.
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
	for _, h := range o.line { // what waited only for absent ones
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

// let yields a job that is held.
func (o *ordering) let(h *heldJob) bool {
	o.drop(h)
	return o.put(h.job)
}

// circleFrom follows what held jobs wait for until one comes again. It returns the
// names of that circle, and the one of its jobs that came first in the list.
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

// waitsFor returns one of the jobs that h waits for, always the same.
func (o *ordering) waitsFor(h *heldJob) identity {
	var least identity
	for id := range h.missing {
		if least.name == "" || id.name < least.name {
			least = id
		}
	}
	return least
}
