package session

import (
	"hash/maphash"
	"iter"
)

// held are the tasks of a worker by their keys: a hash table of pointers, because a
// task is looked for, put and removed for each run, and a map of keys takes as long
// to wait for memory as all else that is done with it. The zero value is empty.
type held struct {
	places []place // a power of two, or none; a task is at its hash's place or behind, without a gap
	n      int
}

// place is a task and its hash; nil: none.
type place struct {
	hash uint64
	task *task
}

// heldSeed makes places that no server can foresee.
var heldSeed = maphash.MakeSeed()

func hashOf(k *key) uint64 { return maphash.Bytes(heldSeed, k.run[:]) }

func (h *held) home(hash uint64) int { return int(hash) & (len(h.places) - 1) }

func (h *held) after(i int) int { return (i + 1) & (len(h.places) - 1) }

// find returns where the task of that name and hash is; -1: nowhere.
func (h *held) find(k *key, hash uint64) int {
	if len(h.places) == 0 {
		return -1
	}
	for i := h.home(hash); h.places[i].task != nil; i = h.after(i) {
		if p := &h.places[i]; p.hash == hash && p.task.key == *k {
			return i
		}
	}
	return -1
}

// get returns the task of that name; nil: it is not held.
func (h *held) get(k key) *task {
	if i := h.find(&k, hashOf(&k)); i >= 0 {
		return h.places[i].task
	}
	return nil
}

// put adds a task, and reports whether it did: not if one of that name is held.
func (h *held) put(t *task) bool {
	if h.find(&t.key, t.hash) >= 0 {
		return false
	}
	if 4*(h.n+1) > 3*len(h.places) {
		old := h.places
		h.places = make([]place, max(64, 2*len(old)))
		for _, p := range old {
			if p.task != nil {
				h.settle(p)
			}
		}
	}
	h.settle(place{t.hash, t})
	h.n++
	return true
}

func (h *held) settle(p place) {
	i := h.home(p.hash)
	for h.places[i].task != nil {
		i = h.after(i)
	}
	h.places[i] = p
}

// remove forgets a task, if it is held.
func (h *held) remove(t *task) {
	if len(h.places) == 0 {
		return
	}
	hole := h.home(t.hash)
	for h.places[hole].task != t {
		if h.places[hole].task == nil {
			return
		}
		hole = h.after(hole)
	}
	// Close the gap: who stands behind it moves up, unless that is before its home.
	for i := h.after(hole); h.places[i].task != nil; i = h.after(i) {
		if home := h.home(h.places[i].hash); (i-home)&(len(h.places)-1) >= (i-hole)&(len(h.places)-1) {
			h.places[hole], hole = h.places[i], i
		}
	}
	h.places[hole] = place{}
	h.n--
}

// all iterates over the tasks, in no order; none may be put or removed meanwhile.
func (h *held) all() iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for _, p := range h.places {
			if p.task != nil && !yield(p.task) {
				return
			}
		}
	}
}
