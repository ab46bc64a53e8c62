package pool

import (
	"sync"
	"testing"
)

// TestLists takes and returns messages in several goroutines, one at a time and many, and
// checks that no two goroutines have the same message.
func TestLists(t *testing.T) {
	type message struct{ taken bool } // the race detector sees two goroutines with the same message
	var p Lists[message]
	const rounds, atOnce = 200, 100
	var wg sync.WaitGroup
	for range 4 {
		took := make(chan []*message, 4)
		wg.Go(func() { // as a sender
			defer close(took)
			for range rounds {
				var m []*message
				for range atOnce {
					m = append(m, p.Get())
				}
				for _, m := range m {
					if m.taken {
						t.Error("a message was taken twice, or was not cleared")
					}
					m.taken = true
				}
				took <- m
			}
		})
		wg.Go(func() { // as a receiver
			for m := range took {
				p.Release(m[:atOnce/2]...)
				for _, m := range m[atOnce/2:] {
					p.Release(m)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkPool compares an object of 4 KiB from a pool with a new one.
func BenchmarkPool(b *testing.B) {
	type object [4 << 10]byte
	var p Pool[object]
	var sink *object
	b.Run("pool", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			o := p.Get()
			o[0]++
			p.Release(o)
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = new(object)
			sink[0]++
		}
	})
}

// BenchmarkLists moves messages from one goroutine to another, as results move from the
// stream of a host to the loop, with Lists and with a [sync.Pool].
func BenchmarkLists(b *testing.B) {
	type message [256]byte
	const atOnce = 256
	move := func(b *testing.B, get func() *message, release func([]*message)) {
		b.ReportAllocs()
		full, done := make(chan []*message, 4), make(chan struct{})
		empty := make(chan []*message, 8)
		for range cap(empty) {
			empty <- make([]*message, atOnce)
		}
		go func() {
			defer close(done)
			for m := range full {
				release(m)
				empty <- m
			}
		}()
		for n := 0; b.Loop(); n++ {
			m := <-empty
			for i := range m {
				m[i] = get()
				m[i][0]++
			}
			full <- m
		}
		close(full)
		<-done
	}
	b.Run("lists", func(b *testing.B) {
		var p Lists[message]
		move(b, p.Get, func(m []*message) { p.Release(m...) })
	})
	b.Run("pool", func(b *testing.B) {
		var p Pool[message]
		move(b, p.Get, func(m []*message) {
			for _, m := range m {
				*m = message{}
				p.Release(m)
			}
		})
	})
}
