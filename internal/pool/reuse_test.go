//go:build !poison

package pool

import "testing"

// TestListsReuse checks that released messages are taken before new ones are made. It
// releases many at once: under the race detector a [sync.Pool] drops some of its entries
// at random, and of messages released one by one too few could remain.
func TestListsReuse(t *testing.T) {
	var p Lists[int]
	spare := make([]*int, 1000)
	given := map[*int]bool{}
	for i := range spare {
		spare[i] = new(int)
		given[spare[i]] = true
	}
	p.Release(spare...)
	again := 0
	for range spare {
		if m := p.Get(); given[m] {
			delete(given, m)
			again++
		}
	}
	// A garbage collection and the race detector may drop any of them.
	if again == 0 {
		t.Error("no released message was used again")
	}
}

// TestPoolReuses checks that a released object is used again as it was released, and that
// New makes the others.
func TestPoolReuses(t *testing.T) {
	p := Pool[int]{New: func() *int { n := 7; return &n }}
	again := 0
	for range 1000 {
		n := p.Get()
		if *n == 8 {
			again++
		} else if *n != 7 {
			t.Fatalf("an object is %d, want 7 when it is new and 8 when it was released", *n)
		}
		*n = 8
		p.Release(n)
	}
	if again == 0 {
		t.Error("no released object was used again")
	}
}
