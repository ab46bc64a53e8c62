package sched

import "github.com/wheelworkhq/wheelwork/job"

// executing are the runs that a host executes, in no order. Invariant: a run is
// with one host at most, and its Place is 1 + where it stands there. So nothing is
// looked up: who adds, drops or asks has the run. The zero value is empty.
type executing []*job.Run

// executes reports whether some host executes r.
func executes(r *job.Run) bool { return r.Place != 0 }

// add puts a run in that no host executes.
func (x *executing) add(r *job.Run) {
	*x = append(*x, r)
	r.Place = uint32(len(*x))
}

// drop takes a run out, and reports whether it was there.
func (x *executing) drop(r *job.Run) bool {
	all, i := *x, int(r.Place)-1
	if i < 0 || i >= len(all) || all[i] != r {
		return false
	}
	last := len(all) - 1
	all[i] = all[last]
	all[i].Place = r.Place
	r.Place, all[last] = 0, nil
	*x = all[:last]
	return true
}
