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

// lookEvery is how often a process checks whether it has memory to return.
const lookEvery = 2 * time.Second

// gcPercent is how much a process may allocate between two collections, in percent of the
// live heap. A server holds much and its garbage is young, so a collection costs more
// than the extra memory, which giveBack returns in any case.
const gcPercent = 200

// tuneCollector sets gcPercent, unless the environment variable GOGC is set.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// giveBack returns memory to the system after the process was busy. Go retains what a
// burst took, twice the live heap and more: on a server with a million jobs that is most
// of a gigabyte, for hours. Memory of the store's compactions becomes free later, a piece
// every two seconds, so giveBack returns memory several times.
func giveBack(ctx context.Context) error {
	tuneCollector()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var k releaser
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

// releaser decides when to return memory: several times after each busy time.
type releaser struct {
	allocated uint64
	grown     bool // there was a busy time
	quiet     int  // quiet checks since then
}

// giveBackAt are the numbers of the quiet checks after a busy time at which memory is
// returned. What becomes free after the last one is not worth another.
var giveBackAt = []int{1, 3, 10, 30}

// busy is how many bytes an idle process allocates between two checks, at most.
const busy = 16 << 20

func (k *releaser) look(allocated uint64) bool {
	grew := allocated - k.allocated
	k.allocated = allocated
	if grew > busy {
		k.grown, k.quiet = true, 0
		return false
	}
	k.quiet++
	return k.grown && slices.Contains(giveBackAt, k.quiet)
}

// allocated returns the bytes that were allocated since the start of the process.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
