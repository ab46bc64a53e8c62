// Package timeheap orders values by the time at which they are due. It is for hundreds or
// thousands of them; package sched/wheel is for millions.
package timeheap

import "slices"

// Heap has values with their times, in Unix ms. Its zero value is empty. It is not safe for
// concurrent use.
type Heap[T any] struct{ entries []entry[T] }

type entry[T any] struct {
	atMs int64
	v    T
}

// Add adds a value.
func (h *Heap[T]) Add(atMs int64, v T) {
	h.entries = append(h.entries, entry[T]{atMs, v})
	for i := len(h.entries) - 1; i > 0; {
		parent := (i - 1) / 2
		if h.entries[parent].atMs <= h.entries[i].atMs {
			return
		}
		h.entries[parent], h.entries[i] = h.entries[i], h.entries[parent]
		i = parent
	}
}

// First returns the value that is due first; ok is false if there is none.
func (h *Heap[T]) First() (atMs int64, v T, ok bool) {
	if len(h.entries) == 0 {
		return 0, v, false
	}
	return h.entries[0].atMs, h.entries[0].v, true
}

// Remove removes the value that First returns.
func (h *Heap[T]) Remove() {
	last := len(h.entries) - 1
	if last < 0 {
		return
	}
	h.entries[0] = h.entries[last]
	clear(h.entries[last:])
	h.entries = h.entries[:last]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < last && h.entries[child].atMs < h.entries[least].atMs {
				least = child
			}
		}
		if least == i {
			return
		}
		h.entries[least], h.entries[i] = h.entries[i], h.entries[least]
		i = least
	}
}

// Retain removes the values for which keep returns false.
func (h *Heap[T]) Retain(keep func(atMs int64, v T) bool) {
	old := h.entries
	h.entries = nil
	for _, e := range slices.Clone(old) {
		if keep(e.atMs, e.v) {
			h.Add(e.atMs, e.v)
		}
	}
}
