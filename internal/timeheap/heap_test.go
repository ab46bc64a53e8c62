package timeheap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrder adds values in any order, drops some, and takes the others in the order of their
// times.
func TestOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Heap[int]
	var want []int64
	for i := range 1000 {
		at := r.Int64N(500)
		h.Add(at, i)
		if at%3 != 0 {
			want = append(want, at)
		}
	}
	h.Retain(func(at int64, _ int) bool { return at%3 != 0 })
	slices.Sort(want)
	var got []int64
	for at, _, ok := h.First(); ok; at, _, ok = h.First() {
		got = append(got, at)
		h.Remove()
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d times come out, want %d in order", len(got), len(want))
	}
	h.Remove() // of an empty heap: nothing
}
