package session

import (
	"hash/maphash"
	"iter"

	"github.com/wheelworkhq/wheelwork/internal/hashtable"
)

// held has the tasks of all sessions by their keys: each run needs a look-up, an insertion
// and a removal. They take 0.5 of the time that they take in a Go map of keys
// (BenchmarkHeld), whose cache misses take as long as all other work on a task. The zero
// value is empty.
type held struct{ table hashtable.Table[task] }

// heldSeed is random, so that a server cannot choose run ids that collide.
var heldSeed = maphash.MakeSeed()

func hashOf(k *key) uint32 { return uint32(maphash.Bytes(heldSeed, k.run[:])) }

// len returns the number of tasks.
func (h *held) len() int { return h.table.Len() }

// find returns the cell of the task with a key and its hash; -1: the task is not held.
func (h *held) find(k *key, hash uint32) int {
	i := h.table.First(hash)
	for i >= 0 && h.table.At(i).key != *k {
		i = h.table.Next(i, hash)
	}
	return i
}

// get returns the task with a key; nil: it is not held.
func (h *held) get(k key) *task { return h.table.At(h.find(&k, hashOf(&k))) }

// put adds a task that has a key. It returns false if a task with that key is held.
func (h *held) put(t *task) bool {
	if h.find(&t.key, t.hash) >= 0 {
		return false
	}
	t.number = h.table.Add(t, t.hash)
	return true
}

// remove removes a task, if it is held.
func (h *held) remove(t *task) {
	if h.table.Entry(t.number) == t {
		h.table.Remove(h.table.Find(t.hash, t.number))
	}
}

// all yields the tasks in no order. The caller may remove the task that it was given.
func (h *held) all() iter.Seq[*task] { return h.table.All() }
