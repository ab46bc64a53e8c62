package alarm

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// nudge is a timer of the kernel that wakes the runtime. Without one, because
// the kernel gives no more files, the alarm rings at the time of Go's timer.
type nudge struct {
	fd   int
	file *os.File // puts fd among the files that the runtime watches; nobody reads it
}

func newNudge() nudge {
	// The same clock as the runtime's timers.
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nudge{}
	}
	return nudge{fd, os.NewFile(uintptr(fd), "timerfd")}
}

// set replaces the last setting. The kernel tells each expiry anew, whether or
// not the last one was read.
func (n nudge) set(d time.Duration) {
	if n.file == nil {
		return
	}
	after := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	// An error could only say that fd or the time is none.
	_ = unix.TimerfdSettime(n.fd, 0, &after, nil)
}

func (n nudge) close() {
	if n.file != nil {
		_ = n.file.Close() // nothing was written
	}
}
