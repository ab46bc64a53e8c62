package session

import (
	"hash/maphash"
	"iter"
)

// held has the tasks of all sessions by their keys. It is an open-addressing hash table
// of pointers: each run needs a lookup, an insertion and a removal, and in a Go map of
// keys the cache misses take as long as all other work on a task. The zero value is
// empty.
type held struct {
	// cells has a power of two of entries, or none. A task is in the cell of its hash or in
	// a later one, without an empty cell between.
	cells []cell
	n     int // tasks
}

// cell is one entry of the table; it is empty if task is nil.
type cell struct {
	hash uint64
	task *task
}

// heldSeed is random, so that a server cannot choose run ids that collide.
var heldSeed = maphash.MakeSeed()

func hashOf(k *key) uint64 { return maphash.Bytes(heldSeed, k.run[:]) }

func (h *held) index(hash uint64) int { return int(hash) & (len(h.cells) - 1) }

func (h *held) after(i int) int { return (i + 1) & (len(h.cells) - 1) }

// find returns the cell of the task with a key and its hash; -1: the task is not held.
func (h *held) find(k *key, hash uint64) int {
	if len(h.cells) == 0 {
		return -1
	}
	for i := h.index(hash); h.cells[i].task != nil; i = h.after(i) {
		if p := &h.cells[i]; p.hash == hash && p.task.key == *k {
			return i
		}
	}
	return -1
}

// get returns the task with a key; nil: it is not held.
func (h *held) get(k key) *task {
	if i := h.find(&k, hashOf(&k)); i >= 0 {
		return h.cells[i].task
	}
	return nil
}

// put adds a task. It returns false if a task with the same key is held.
func (h *held) put(t *task) bool {
	if h.find(&t.key, t.hash) >= 0 {
		return false
	}
	if 4*(h.n+1) > 3*len(h.cells) {
		old := h.cells
		h.cells = make([]cell, max(64, 2*len(old)))
		for _, p := range old {
			if p.task != nil {
				h.insert(p)
			}
		}
	}
	h.insert(cell{t.hash, t})
	h.n++
	return true
}

func (h *held) insert(p cell) {
	i := h.index(p.hash)
	for h.cells[i].task != nil {
		i = h.after(i)
	}
	h.cells[i] = p
}

// remove removes a task, if it is held.
func (h *held) remove(t *task) {
	if len(h.cells) == 0 {
		return
	}
	hole := h.index(t.hash)
	for h.cells[hole].task != t {
		if h.cells[hole].task == nil {
			return
		}
		hole = h.after(hole)
	}
	// Close the gap: a task behind it moves into it, unless the gap is before the task's index.
	for i := h.after(hole); h.cells[i].task != nil; i = h.after(i) {
		if index := h.index(h.cells[i].hash); (i-index)&(len(h.cells)-1) >= (i-hole)&(len(h.cells)-1) {
			h.cells[hole], hole = h.cells[i], i
		}
	}
	h.cells[hole] = cell{}
	h.n--
}

// all iterates over the tasks in no order. The caller must not put or remove a task meanwhile.
func (h *held) all() iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for _, p := range h.cells {
			if p.task != nil && !yield(p.task) {
				return
			}
		}
	}
}
