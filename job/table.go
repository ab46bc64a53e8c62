package job

import (
	"hash/maphash"
	"iter"
)

// Jobs are the jobs of a slot by name. It is a hash table that keeps no copy of
// the names: beside a million jobs, Go's map takes three times as much memory.
// The zero value is empty. It may not be changed while it is ranged over.
type Jobs struct {
	places []*Job // a power of two, or none; a job is at its hash's place or behind, without a gap
	n      int
}

var tableSeed = maphash.MakeSeed()

func (t *Jobs) home(name string) int {
	return int(maphash.String(tableSeed, name) & uint64(len(t.places)-1))
}

func (t *Jobs) next(i int) int { return (i + 1) & (len(t.places) - 1) }

// Len returns how many jobs there are.
func (t *Jobs) Len() int { return t.n }

// Get returns the job of that name, or nil.
func (t *Jobs) Get(name string) *Job {
	if t.n == 0 {
		return nil
	}
	for i := t.home(name); ; i = t.next(i) {
		if j := t.places[i]; j == nil || j.Name() == name {
			return j
		}
	}
}

// All yields the jobs in no order.
func (t *Jobs) All() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		for _, j := range t.places {
			if j != nil && !yield(j) {
				return
			}
		}
	}
}

// put adds a job whose name is not there.
func (t *Jobs) put(j *Job) {
	if 5*(t.n+1) > 4*len(t.places) {
		t.grow()
	}
	t.n++
	t.settle(j)
}

func (t *Jobs) settle(j *Job) {
	i := t.home(j.Name())
	for t.places[i] != nil {
		i = t.next(i)
	}
	t.places[i] = j
}

func (t *Jobs) grow() {
	old := t.places
	t.places = make([]*Job, max(8, 2*len(old)))
	for _, j := range old {
		if j != nil {
			t.settle(j)
		}
	}
}

// remove takes the job of that name out, if there is one.
func (t *Jobs) remove(name string) {
	if t.Get(name) == nil {
		return
	}
	hole := t.home(name)
	for t.places[hole].Name() != name {
		hole = t.next(hole)
	}
	t.n--
	// Close the gap: who stands behind it moves up, unless that is before its home.
	for i := t.next(hole); t.places[i] != nil; i = t.next(i) {
		size := len(t.places) - 1
		if home := t.home(t.places[i].Name()); (i-home)&size >= (i-hole)&size {
			t.places[hole], hole = t.places[i], i
		}
	}
	t.places[hole] = nil
}
