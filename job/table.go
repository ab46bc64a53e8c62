package job

import (
	"hash/maphash"
	"iter"
)

// Jobs are the jobs of a slot by name. It is a hash table that keeps no copy of
// the names: beside a million jobs, Go's map takes three times as much memory.
// The table has no pointers, and the list has them in the order in which the jobs
// came, which is about that in which they lie in memory: the garbage collector,
// which follows each, finds one next to the other.
// The zero value is empty. It may not be changed while it is ranged over.
type Jobs struct {
	list   []*Job   // by number; nil: the number is free
	free   []uint32 // numbers
	places places
}

func hashOf(name string) uint32 { return uint32(maphash.String(tableSeed, name)) }

// Len returns how many jobs there are.
func (t *Jobs) Len() int { return len(t.list) - len(t.free) }

// Get returns the job of that name, or nil.
func (t *Jobs) Get(name string) *Job {
	if i := t.find(name); i >= 0 {
		return t.list[t.places[i].number()]
	}
	return nil
}

// numbers is greater than the number of any job.
func (t *Jobs) numbers() uint32 { return uint32(len(t.list)) }

// At returns the job of that number, or nil. The number of a job that is gone
// becomes another's.
func (t *Jobs) At(number uint32) *Job {
	if int(number) >= len(t.list) {
		return nil
	}
	return t.list[number]
}

// find returns the place of the job of that name; -1: there is none.
func (t *Jobs) find(name string) int {
	hash := hashOf(name)
	i := t.places.first(hash)
	for i >= 0 && t.list[t.places[i].number()].Name() != name {
		i = t.places.next(i, hash)
	}
	return i
}

// All yields the jobs in no order.
func (t *Jobs) All() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		for _, j := range t.list {
			if j != nil && !yield(j) {
				return
			}
		}
	}
}

// put adds a job whose name is not there.
func (t *Jobs) put(j *Job) {
	others := t.Len()
	j.number = uint32(len(t.list))
	if n := len(t.free); n > 0 {
		j.number, t.free = t.free[n-1], t.free[:n-1]
		t.list[j.number] = j
	} else {
		t.list = append(t.list, j)
	}
	t.places.put(hashOf(j.Name()), j.number, others)
}

// remove takes the job of that name out, if there is one.
func (t *Jobs) remove(name string) {
	i := t.find(name)
	if i < 0 {
		return
	}
	number := t.places[i].number()
	t.list[number] = nil
	t.free = append(t.free, number)
	t.places.remove(i)
}

// Runs are the live runs of a slot by id, in a table like that of [Jobs]. Each step
// of a run looks it up, and other work lies between the steps: of this table a
// look-up touches eight bytes for each run, where Go's map has 25 and what it keeps
// of those that were removed. The zero value is empty. What is removed or added
// while it is ranged over may or may not be yielded.
type Runs struct {
	list   []*Run   // by number; nil: the number is free
	free   []uint32 // numbers
	places places
}

func runHash(id RunID) uint32 { return uint32(mixed(id)) }

// Len returns how many runs there are.
func (t *Runs) Len() int { return len(t.list) - len(t.free) }

// Get returns the run of that id, or nil.
func (t *Runs) Get(id RunID) *Run {
	if i := t.find(id); i >= 0 {
		return t.list[t.places[i].number()]
	}
	return nil
}

// find returns the place of the run of that id; -1: there is none.
func (t *Runs) find(id RunID) int {
	hash := runHash(id)
	i := t.places.first(hash)
	for i >= 0 && t.list[t.places[i].number()].ID != id {
		i = t.places.next(i, hash)
	}
	return i
}

// All yields the runs in no order.
func (t *Runs) All() iter.Seq[*Run] {
	return func(yield func(*Run) bool) {
		for _, r := range t.list {
			if r != nil && !yield(r) {
				return
			}
		}
	}
}

// put adds a run whose id is not there.
func (t *Runs) put(r *Run) {
	others := t.Len()
	number := uint32(len(t.list))
	if n := len(t.free); n > 0 {
		number, t.free = t.free[n-1], t.free[:n-1]
		t.list[number] = r
	} else {
		t.list = append(t.list, r)
	}
	t.places.put(runHash(r.ID), number, others)
}

// keptPlaces is how large the table stays when the last run has ended.
const keptPlaces = 1 << 12

// remove takes the run of that id out, if there is one.
func (t *Runs) remove(id RunID) {
	i := t.find(id)
	if i < 0 {
		return
	}
	number := t.places[i].number()
	t.list[number] = nil
	t.free = append(t.free, number)
	t.places.remove(i)
	if t.Len() == 0 && len(t.places) > keptPlaces { // there were very many at once
		*t = Runs{}
	}
}
