package wasm

import (
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spent is how long a processor works at what do does in its own goroutine. A limit
// that does not hold shows in it; that a busy machine lets a guest wait does not, which
// is why tests bound it and not the time that passes.
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
