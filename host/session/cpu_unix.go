//go:build unix && !linux

package session

import (
	goruntime "runtime"
	"syscall"
	"time"
)

// began is the origin of the wall time counter.
var began = time.Now()

// readCPU reads the processor time of this process and of its ended children, because the
// processor time of the machine is not available without C.
func readCPU(now time.Time) cpuTimes {
	t := cpuTimes{at: now, all: uint64(now.Sub(began)) * uint64(goruntime.NumCPU())}
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(of, &u); err == nil {
			t.busy += uint64(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return t
}
