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
	places []place  // a power of two, or none; a job is at its hash's place or behind, without a gap
}

// place is 32 bits of the hash of a job's name, then its number and 1; 0: empty.
type place uint64

func placeOf(hash, number uint32) place { return place(hash)<<32 | place(number+1) }

func (p place) hash() uint32 { return uint32(p >> 32) }

func (p place) number() uint32 { return uint32(p) - 1 }

var tableSeed = maphash.MakeSeed()

func hashOf(name string) uint32 { return uint32(maphash.String(tableSeed, name)) }

func (t *Jobs) home(hash uint32) int { return int(hash) & (len(t.places) - 1) }

func (t *Jobs) next(i int) int { return (i + 1) & (len(t.places) - 1) }

// Len returns how many jobs there are.
func (t *Jobs) Len() int { return len(t.list) - len(t.free) }

// Get returns the job of that name, or nil.
func (t *Jobs) Get(name string) *Job {
	if i := t.find(name); i >= 0 {
		return t.list[t.places[i].number()]
	}
	return nil
}

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
	if len(t.places) == 0 {
		return -1
	}
	hash := hashOf(name)
	for i := t.home(hash); t.places[i] != 0; i = t.next(i) {
		if p := t.places[i]; p.hash() == hash && t.list[p.number()].Name() == name {
			return i
		}
	}
	return -1
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
	if 5*(t.Len()+1) > 4*len(t.places) {
		t.grow()
	}
	j.number = uint32(len(t.list))
	if n := len(t.free); n > 0 {
		j.number, t.free = t.free[n-1], t.free[:n-1]
		t.list[j.number] = j
	} else {
		t.list = append(t.list, j)
	}
	t.settle(placeOf(hashOf(j.Name()), j.number))
}

func (t *Jobs) settle(p place) {
	i := t.home(p.hash())
	for t.places[i] != 0 {
		i = t.next(i)
	}
	t.places[i] = p
}

func (t *Jobs) grow() {
	old := t.places
	t.places = make([]place, max(8, 2*len(old)))
	for _, p := range old {
		if p != 0 {
			t.settle(p)
		}
	}
}

// remove takes the job of that name out, if there is one.
func (t *Jobs) remove(name string) {
	hole := t.find(name)
	if hole < 0 {
		return
	}
	number := t.places[hole].number()
	t.list[number] = nil
	t.free = append(t.free, number)
	// Close the gap: who stands behind it moves up, unless that is before its home.
	for i := t.next(hole); t.places[i] != 0; i = t.next(i) {
		size := len(t.places) - 1
		if home := t.home(t.places[i].hash()); (i-home)&size >= (i-hole)&size {
			t.places[hole], hole = t.places[i], i
		}
	}
	t.places[hole] = 0
}
