package job

import (
	"hash/maphash"
	"iter"
)

// numbered is a list of entries with an index from their hash to their number. The list
// has the order in which the entries were added, which is about their order in memory, so
// the garbage collector reads memory in sequence when it scans them. The zero value is
// empty.
type numbered[E any] struct {
	list  []*E     // by number; nil: the number is free
	free  []uint32 // numbers
	index numberIndex
}

// Len returns the number of entries.
func (t *numbered[E]) Len() int { return len(t.list) - len(t.free) }

// numbers is greater than any number.
func (t *numbered[E]) numbers() uint32 { return uint32(len(t.list)) }

// All yields the entries in no particular order.
func (t *numbered[E]) All() iter.Seq[*E] {
	return func(yield func(*E) bool) {
		for _, e := range t.list {
			if e != nil && !yield(e) {
				return
			}
		}
	}
}

// at returns the entry of a cell; -1: nil.
func (t *numbered[E]) at(i int) *E {
	if i < 0 {
		return nil
	}
	return t.list[t.index[i].number()]
}

// put adds an entry and returns its number.
func (t *numbered[E]) put(e *E, hash uint32) (number uint32) {
	others := t.Len()
	if n := len(t.free); n > 0 {
		number, t.free = t.free[n-1], t.free[:n-1]
		t.list[number] = e
	} else {
		number = uint32(len(t.list))
		t.list = append(t.list, e)
	}
	t.index.put(hash, number, others)
	return number
}

// removeAt removes the entry of a cell; -1: none.
func (t *numbered[E]) removeAt(i int) {
	if i < 0 {
		return
	}
	number := t.index[i].number()
	t.list[number] = nil
	t.free = append(t.free, number)
	t.index.remove(i)
}

// Jobs are the jobs of a slot by name. It is a hash table without copies of the names:
// for a million jobs, Go's map takes three times the memory. The zero value is empty. The
// table must not be modified while All iterates.
type Jobs struct{ numbered[Job] }

func hashOf(name string) uint32 { return uint32(maphash.String(tableSeed, name)) }

// Get returns the job with a name, or nil.
func (t *Jobs) Get(name string) *Job { return t.at(t.find(name)) }

// At returns the job with a number, or nil. The number of a removed job is used again.
func (t *Jobs) At(number uint32) *Job {
	if number >= t.numbers() {
		return nil
	}
	return t.list[number]
}

// find returns the cell of the job with a name; -1: there is none.
func (t *Jobs) find(name string) int {
	hash := hashOf(name)
	i := t.index.first(hash)
	for i >= 0 && t.at(i).Name() != name {
		i = t.index.next(i, hash)
	}
	return i
}

// add adds a job. Its name must not be in the table.
func (t *Jobs) add(j *Job) { j.number = t.put(j, hashOf(j.Name())) }

// remove removes the job with a name, if there is one.
func (t *Jobs) remove(name string) { t.removeAt(t.find(name)) }

// Runs are the live runs of a slot by id, in a table like [Jobs]. Each step of a run
// looks it up, and other work evicts the table from the processor caches between steps. A
// look-up touches eight bytes per run in this table; Go's map has 25 bytes per run, plus
// the space of removed runs. The zero value is empty. A run that is added or removed
// while All iterates may or may not be yielded.
type Runs struct{ numbered[Run] }

func runHash(id RunID) uint32 { return uint32(mixed(id)) }

// Get returns the run with an id, or nil.
func (t *Runs) Get(id RunID) *Run { return t.at(t.find(id)) }

// find returns the cell of the run with an id; -1: there is none.
func (t *Runs) find(id RunID) int {
	hash := runHash(id)
	i := t.index.first(hash)
	for i >= 0 && t.at(i).ID != id {
		i = t.index.next(i, hash)
	}
	return i
}

// add adds a run. Its id must not be in the table.
func (t *Runs) add(r *Run) { t.put(r, runHash(r.ID)) }

// retainedCells is the size, in cells, up to which an empty table retains its memory.
const retainedCells = 1 << 12

// remove removes the run with an id, if there is one.
func (t *Runs) remove(id RunID) {
	t.removeAt(t.find(id))
	if t.Len() == 0 && len(t.index) > retainedCells { // the memory is for a peak
		*t = Runs{}
	}
}
