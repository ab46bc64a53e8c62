package guest

import (
	goruntime "runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// A busy processor gives a quarter of its time to Go's garbage collector, so a collection
// beside a guest takes four times as long as on an idle processor, which gives all its
// time. Guests therefore pause while the collector runs.
const (
	maxPause  = time.Millisecond // bound of one pause; a guest does not wait longer for a slow collection
	pauseStep = 50 * time.Microsecond
)

// collector detects whether a garbage collection is running. The runtime only reports
// counters: a collection stops the world when it begins and is counted when it has ended.
// So a collection is running when the world was stopped for it since the last one was
// counted.
type collector struct {
	busy    atomic.Bool // result of the last check
	mu      sync.Mutex
	samples [2]metrics.Sample
	cycles  uint64
	stops   uint64 // value when cycles last changed
}

var gc = &collector{samples: [2]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/sched/pauses/total/gc:seconds"}}}

// working reads the counters, which takes about a microsecond. Concurrent callers use the
// last result instead.
func (c *collector) working() bool {
	if !c.mu.TryLock() {
		return c.busy.Load()
	}
	defer c.mu.Unlock()
	metrics.Read(c.samples[:])
	if c.samples[1].Value.Kind() != metrics.KindFloat64Histogram {
		return false // the runtime has another metric
	}
	var stops uint64
	for _, n := range c.samples[1].Value.Float64Histogram().Counts {
		stops += n
	}
	if cycles := c.samples[0].Value.Uint64(); cycles != c.cycles {
		c.cycles, c.stops = cycles, stops
	}
	c.busy.Store(stops > c.stops)
	return stops > c.stops
}

// pauseForCollection pauses the guest while a collection runs, for at most maxPause.
func pauseForCollection(since Moment) Moment {
	at := since
	for at-since < Moment(maxPause) && gc.working() {
		time.Sleep(pauseStep)
		at = Now()
	}
	return at
}

// Bounds of a yield. A turn shorter than idleTurn means that no other goroutine wants to
// run.
const (
	idleTurn = Moment(500 * time.Nanosecond)
	maxTurns = 32
)

// yield lets other goroutines run, for up to sliceTime if they need it, and returns the
// time afterwards.
func yield(begin Moment) Moment {
	at, others := giveTurns(begin, func() Moment {
		goruntime.Gosched()
		return Now()
	})
	if others {
		at = pauseForCollection(at)
	}
	return at
}

// giveTurns calls turn, which lets other goroutines run and returns the time afterwards. It
// repeats the calls until no other goroutine wants to run, and reports whether any did. One
// turn is not enough: the garbage collector sweeps in hundreds of small turns, and with a
// whole slice between every two of them a collection would take many times as long.
func giveTurns(begin Moment, turn func() Moment) (at Moment, others bool) {
	at = begin
	for range maxTurns {
		next := turn()
		if next-at < idleTurn {
			return next, others
		}
		if at, others = next, true; at-begin >= Moment(sliceTime) {
			break
		}
	}
	return at, others
}
