package node

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// lookEvery is how often a process looks whether it has memory to give back.
const lookEvery = 2 * time.Second

// spare is how much memory a process keeps beside what it uses, bytes: less is
// not worth a collection.
const spare = 64 << 20

// gcPercent is how much a process may allocate between two collections, beside
// what lives: a server remembers much and its garbage is young, so that a
// collection costs more than the memory that is given back anyway.
const gcPercent = 200

// tuneCollector sets it, unless whoever starts the process has said otherwise.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// giveBack returns memory to the system when the process has been busy and is
// not any more. Go keeps what a burst took, twice the live heap and more: on a
// server that remembers a million jobs that is most of a gigabyte, for hours.
func giveBack(ctx context.Context) error {
	tuneCollector()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var k keeper
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if k.look(readMemory()) {
			debug.FreeOSMemory()
		}
	}
}

// memory is what a process holds and does.
type memory struct {
	allocated uint64 // bytes since the process began
	idle      uint64 // bytes that it holds and that nobody uses
	garbage   uint64 // bytes that may be free after a collection, at most
}

// keeper decides when to give memory back: once after each busy time.
type keeper struct {
	allocated uint64
	grown     bool // since memory was given back
}

// busy is what a process that does nothing allocates between two looks at most.
const busy = 16 << 20

func (k *keeper) look(m memory) bool {
	grew := m.allocated - k.allocated
	k.allocated = m.allocated
	if grew > busy {
		k.grown = true
		return false
	}
	if !k.grown || m.idle+m.garbage < spare {
		return false
	}
	k.grown = false
	return true
}

func readMemory() memory {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	v := func(i int) uint64 { return s[i].Value.Uint64() }
	m := memory{allocated: v(0), idle: v(1) + v(2)}
	if objects, live := v(3), v(4); objects > live {
		m.garbage = objects - live
	}
	return m
}
