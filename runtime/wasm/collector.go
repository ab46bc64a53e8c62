package wasm

import (
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// A busy processor gives a quarter of its time to Go's garbage collector, so a collection
// beside a guest takes four times as long as on an idle processor, which gives all its
// time. Guests therefore pause while the collector runs.
const (
	stoodBack = time.Millisecond // bound of one pause; a guest does not wait longer for a slow collection
	nap       = 50 * time.Microsecond
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

var garbage = &collector{samples: [2]metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/sched/pauses/total/gc:seconds"}}}

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

// standBack pauses the guest while a collection runs, for at most stoodBack.
func standBack(since moment) moment {
	at := since
	for at-since < moment(stoodBack) && garbage.working() {
		time.Sleep(nap)
		at = now()
	}
	return at
}
