package wasm

import (
	goruntime "runtime"
	"runtime/metrics"
	"testing"
)

// TestCollectorIsSeen checks that a running collection is detected, at the latest in one of
// many tries. It fails when a version of Go has other metrics.
func TestCollectorIsSeen(t *testing.T) {
	c := &collector{samples: garbage.samples}
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
