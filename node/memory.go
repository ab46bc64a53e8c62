package node

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/store"
)

// lookEvery is how often a process looks whether it has memory to give back.
const lookEvery = 2 * time.Second

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
// What the store's compactions have taken becomes free a little later, a piece
// every two seconds, so it looks some more times.
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
		if k.look(allocated()) {
			debug.FreeOSMemory()
			store.ReleasePages()
		}
	}
}

// keeper decides when to give memory back: some times after each busy time.
type keeper struct {
	allocated uint64
	grown     bool // there was a busy time
	quiet     int  // looks since then
}

// giveBackAt are the looks after a busy time at which memory is given back; all
// that is free by the last one is not worth more of them.
var giveBackAt = []int{1, 3, 10, 30}

// busy is what a process that does nothing allocates between two looks at most.
const busy = 16 << 20

func (k *keeper) look(allocated uint64) bool {
	grew := allocated - k.allocated
	k.allocated = allocated
	if grew > busy {
		k.grown, k.quiet = true, 0
		return false
	}
	k.quiet++
	return k.grown && slices.Contains(giveBackAt, k.quiet)
}

// allocated returns the bytes that were allocated since the process began.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
