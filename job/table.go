package job

import (
	"hash/maphash"
	"iter"

	"github.com/wheelworkhq/wheelwork/internal/hashtable"
)

// tableSeed is random, so that a client cannot choose names that collide.
var tableSeed = maphash.MakeSeed()

// mixed adds a secret to a hash: without it, a client could choose many keys that share
// a cell.
func mixed(hash [16]byte) uint32 { return uint32(maphash.Bytes(tableSeed, hash[:])) }

// Jobs are the jobs of a slot by name. The table has no copies of the names and no pointers
// in the order of hashes: for a million jobs it takes 0.46 of the memory of Go's map
// (BenchmarkJobs). A single look-up that misses the caches takes 2.2 times as long as in a
// map, which has the names beside the pointers; loops prefetch (see [FindJobs]). The zero
// value is empty. The table must not be modified while All iterates.
type Jobs struct{ table hashtable.Table[Job] }

func hashOf(name string) uint32 { return uint32(maphash.String(tableSeed, name)) }

// Len returns the number of jobs.
func (t *Jobs) Len() int { return t.table.Len() }

// All yields the jobs in no particular order.
func (t *Jobs) All() iter.Seq[*Job] { return t.table.All() }

// Get returns the job with a name, or nil.
func (t *Jobs) Get(name string) *Job { return t.table.At(t.find(name)) }

// At returns the job with a number, or nil. The number of a removed job is used again.
func (t *Jobs) At(number uint32) *Job { return t.table.Entry(number) }

// find returns the cell of the job with a name; -1: there is none.
func (t *Jobs) find(name string) int {
	hash := hashOf(name)
	i := t.table.First(hash)
	for i >= 0 && t.table.At(i).Name() != name {
		i = t.table.Next(i, hash)
	}
	return i
}

// add adds a job. Its name must not be in the table.
func (t *Jobs) add(j *Job) { j.number = t.table.Add(j, hashOf(j.Name())) }

// remove removes the job with a name, if there is one.
func (t *Jobs) remove(name string) { t.table.Remove(t.find(name)) }

// Runs are the live runs of a slot by id. Each step of a run looks it up, and other work
// evicts the table from the processor caches between steps. A look-up touches eight bytes
// per run in this table; Go's map has 25 bytes per run, plus the space of removed runs. The
// steps of a run take 0.72 of the time that they take in a map (BenchmarkRuns). The zero
// value is empty. A run that is added or removed while All iterates may or may not be
// yielded.
type Runs struct{ table hashtable.Table[Run] }

// Len returns the number of runs.
func (t *Runs) Len() int { return t.table.Len() }

// All yields the runs in no particular order.
func (t *Runs) All() iter.Seq[*Run] { return t.table.All() }

// Get returns the run with an id, or nil.
func (t *Runs) Get(id RunID) *Run { return t.table.At(t.find(id)) }

// find returns the cell of the run with an id; -1: there is none.
func (t *Runs) find(id RunID) int {
	hash := mixed(id)
	i := t.table.First(hash)
	for i >= 0 && t.table.At(i).ID != id {
		i = t.table.Next(i, hash)
	}
	return i
}

// add adds a run. Its id must not be in the table.
func (t *Runs) add(r *Run) { t.table.Add(r, mixed(r.ID)) }

// retainedCells is the size, in cells, up to which an empty table retains its memory.
const retainedCells = 1 << 12

// remove removes the run with an id, if there is one.
func (t *Runs) remove(id RunID) {
	t.table.Remove(t.find(id))
	if t.Len() == 0 && t.table.Cells() > retainedCells { // the memory is for a peak
		*t = Runs{}
	}
}
