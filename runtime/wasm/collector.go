package wasm

import (
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// A processor that has something to do gives Go's collector a quarter of itself, so
// beside a guest a collection takes four times as long as it would by itself; a
// processor that has nothing to do gives it all. So guests stand back while there is one.
const (
	stoodBack = time.Millisecond // the most of one turn; a guest waits no longer for a collector that takes its time
	nap       = 50 * time.Microsecond
)

// collector knows whether garbage is collected now. The runtime does not say so, but
// counts: a collection stops the world when it begins, and is counted when it has
// ended. So one is under way when the world was stopped for it since the last one
// was counted.
type collector struct {
	busy    atomic.Bool // as the last look found
	mu      sync.Mutex
	samples [2]metrics.Sample
	cycles  uint64
	stops   uint64 // when cycles was seen to change
}

var garbage = &collector{samples: [2]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/sched/pauses/total/gc:seconds"}}}

// working looks, which takes about a microsecond. Guests that ask at the same time
// get what one of them finds.
func (c *collector) working() bool {
	if !c.mu.TryLock() {
		return c.busy.Load()
	}
	defer c.mu.Unlock()
	metrics.Read(c.samples[:])
	if c.samples[1].Value.Kind() != metrics.KindFloat64Histogram {
		return false // a runtime that counts in another way
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

// standBack leaves the processor to the collector while there is one, for at most
// so long.
func standBack(since moment) moment {
	at := since
	for at-since < moment(stoodBack) && garbage.working() {
		time.Sleep(nap)
		at = now()
	}
	return at
}
