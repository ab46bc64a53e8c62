package wasm

import (
	goruntime "runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// spent returns the processor time of do in its own goroutine. It shows a limit that does
// not work, but not the delays of a busy machine. Tests therefore bound it instead of the
// real time.
func spent(do func()) time.Duration {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var before, after unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before) != nil {
		do()
		return 0
	}
	do()
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after) != nil {
		return 0
	}
	return time.Duration(after.Nano() - before.Nano())
}

// spentFrom is like spent, from the moment at which do calls mark on any goroutine.
func spentFrom(do func(mark func())) time.Duration {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	own := int32(^unix.Gettid()<<3 | 6) // the clock of this thread, for other threads: see clock_getcpuclockid(3)
	var from atomic.Int64
	var after unix.Timespec
	do(func() {
		var now unix.Timespec
		if unix.ClockGettime(own, &now) == nil {
			from.Store(now.Nano())
		}
	})
	if unix.ClockGettime(own, &after) != nil || from.Load() == 0 {
		return 0
	}
	return time.Duration(after.Nano() - from.Load())
}
