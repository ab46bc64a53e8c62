package codec

import (
	"sync"
	"testing"
)

// TestStock lets some take and others give, one at a time and many, and looks that
// nobody is given what another one has.
func TestStock(t *testing.T) {
	type message struct{ taken bool } // the race detector sees two who have one
	var s stock[message]
	const rounds, atOnce = 200, 100
	var wg sync.WaitGroup
	for range 4 {
		took := make(chan []*message, 4)
		wg.Go(func() { // as who sends
			defer close(took)
			for range rounds {
				var m []*message
				for range atOnce {
					m = append(m, s.take())
				}
				for _, m := range m {
					if m.taken {
						t.Error("a message was taken twice")
					}
					m.taken = true
				}
				took <- m
			}
		})
		wg.Go(func() { // as who receives
			for m := range took {
				for _, m := range m {
					m.taken = false
				}
				s.give(m[:atOnce/2]...)
				for _, m := range m[atOnce/2:] {
					s.give(m)
				}
			}
		})
	}
	wg.Wait()
}

// TestStockKeeps makes sure that what was given is taken before anything is made.
// Much is given at once: of what is given one by one the race detector has a
// [sync.Pool] drop so much that now and then nothing would be left.
func TestStockKeeps(t *testing.T) {
	var s stock[int]
	spare := make([]*int, 1000)
	given := map[*int]bool{}
	for i := range spare {
		spare[i] = new(int)
		given[spare[i]] = true
	}
	s.give(spare...)
	again := 0
	for range spare {
		if m := s.take(); given[m] {
			delete(given, m)
			again++
		}
	}
	// A collection, and the race detector, take what they like.
	if again == 0 {
		t.Error("nothing that was given is used again")
	}
}
