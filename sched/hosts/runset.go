package hosts

import "github.com/wheelworkhq/wheelwork/job"

// runSet has the runs of one host, in no order. Each operation takes constant time and
// no lookup. With it and the table of live runs, e2e/batch100 of bench/sched was 1.05 times
// as high as with Go maps in four pairs. Invariant: a run is in at most one set, at the index SetIndex-1. The zero
// value is empty.
type runSet []*job.Run

// Executes reports whether r is in the set of a host.
func Executes(r *job.Run) bool { return r.SetIndex != 0 }

// add adds a run, which must be in no set.
func (x *runSet) add(r *job.Run) {
	*x = append(*x, r)
	r.SetIndex = uint32(len(*x))
}

// drop removes a run, and reports whether the set had it.
func (x *runSet) drop(r *job.Run) bool {
	all, i := *x, int(r.SetIndex)-1
	if i < 0 || i >= len(all) || all[i] != r {
		return false
	}
	last := len(all) - 1
	all[i] = all[last]
	all[i].SetIndex = r.SetIndex
	r.SetIndex, all[last] = 0, nil
	*x = all[:last]
	return true
}
