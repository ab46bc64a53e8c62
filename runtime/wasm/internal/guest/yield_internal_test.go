package guest

import (
	goruntime "runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// TestYieldIsMoreThanOneTurn yields to a goroutine that works in small turns, as the
// garbage collector does when it sweeps.
func TestYieldIsMoreThanOneTurn(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	var turns atomic.Int64
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			for turn := Now(); Now() < turn+2*idleTurn; {
			}
			turns.Add(1)
			goruntime.Gosched()
		}
	}()
	best := int64(0)
	for range 100 { // a busy machine may interrupt some tries
		before := turns.Load()
		yield(Now())
		best = max(best, turns.Load()-before)
	}
	done.Store(true)
	<-ended
	if best < 2 { // up to maxTurns on an idle machine: see TestGiveTurns
		t.Errorf("a neighbour got %d turns, want some", best)
	}
}

// TestGiveTurns checks that other goroutines get turns until none wants one, a slice has
// passed, or maxTurns were given.
func TestGiveTurns(t *testing.T) {
	const begin, small = Moment(time.Hour), idleTurn
	for _, c := range []struct {
		what   string
		takes  []Moment // duration of each turn; further turns take as long as the last one
		turns  int
		others bool
	}{
		{"no other goroutine", []Moment{idleTurn - 1}, 1, false},
		{"small turns without end", []Moment{small}, maxTurns, true},
		{"three small turns", []Moment{small, small, small, idleTurn - 1}, 4, true},
		{"one long turn", []Moment{Moment(sliceTime)}, 1, true},
		{"turns of a quarter of a slice", []Moment{Moment(sliceTime) / 4}, 4, true},
	} {
		now, turns := begin, 0
		at, others := giveTurns(begin, func() Moment {
			now += c.takes[min(turns, len(c.takes)-1)]
			turns++
			return now
		})
		if turns != c.turns || others != c.others || at != now {
			t.Errorf("%s: %d turns, others %v, ended %v after it began; want %d, %v, %v", c.what, turns, others, time.Duration(at-begin), c.turns, c.others, time.Duration(now-begin))
		}
	}
}

// TestCollectorIsSeen checks that a running collection is detected, at the latest in one of
// many tries. It fails when a version of Go has other metrics.
func TestCollectorIsSeen(t *testing.T) {
	c := &collector{samples: gc.samples}
	metrics.Read(c.samples[:])
	if c.samples[0].Value.Kind() != metrics.KindUint64 || c.samples[1].Value.Kind() != metrics.KindFloat64Histogram {
		t.Fatalf("this version of Go has no %s, or no %s", c.samples[0].Name, c.samples[1].Name)
	}
	goruntime.GC()
	c.working() // the first call has no earlier values
	type node struct{ next *node }
	var list *node // takes the collector a while to mark
	for range 1 << 20 {
		list = &node{list}
	}
	seen := false
	for try := 0; try < 1000 && !seen; try++ {
		done := make(chan struct{})
		go func() {
			goruntime.GC()
			close(done)
		}()
		for ended := false; !ended; {
			seen = seen || c.working()
			select {
			case <-done:
				ended = true
			default:
				goruntime.Gosched()
			}
		}
	}
	if !seen {
		t.Error("no collection was seen")
	}
	goruntime.KeepAlive(list)
}
