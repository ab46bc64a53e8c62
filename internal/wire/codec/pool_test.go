package codec

import (
	"sync"
	"testing"
)

// TestPool takes and returns messages in several goroutines, one at a time and many,
// and checks that no two goroutines have the same message.
func TestPool(t *testing.T) {
	type message struct{ taken bool } // the race detector sees two goroutines with the same message
	var s pool[message]
	const rounds, atOnce = 200, 100
	var wg sync.WaitGroup
	for range 4 {
		took := make(chan []*message, 4)
		wg.Go(func() { // as a sender
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
		wg.Go(func() { // as a receiver
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

// TestPoolReuses checks that returned messages are taken before new ones are made.
// It returns many at once: under the race detector a [sync.Pool] drops some of its
// entries at random, and of messages returned one by one too few could remain.
func TestPoolReuses(t *testing.T) {
	var s pool[int]
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
	// A garbage collection and the race detector may drop any of them.
	if again == 0 {
		t.Error("nothing that was given is used again")
	}
}
