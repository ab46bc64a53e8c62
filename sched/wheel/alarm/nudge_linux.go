package alarm

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// nudge is a kernel timer that wakes the runtime. If the kernel gives no file descriptor
// for it, the alarm rings at the time of Go's timer. The zero value is such a nudge.
type nudge struct {
	fd   int
	file *os.File // makes the runtime watch fd; never read
}

func newNudge() nudge {
	// CLOCK_MONOTONIC is the clock of the runtime's timers.
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nudge{}
	}
	return nudge{fd, os.NewFile(uintptr(fd), "timerfd")}
}

// set replaces the last setting. Each expiry wakes the runtime, even if the last one was
// not read.
func (n nudge) set(d time.Duration) {
	if n.file == nil {
		return
	}
	after := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	// The only errors are an invalid fd and an invalid time.
	_ = unix.TimerfdSettime(n.fd, 0, &after, nil)
}

func (n nudge) close() {
	if n.file != nil {
		_ = n.file.Close() // nothing was written
	}
}
