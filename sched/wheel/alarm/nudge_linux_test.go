package alarm

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNudge: the kernel's timer expires by itself after each Set, and is closed when the
// alarm is stopped.
func TestNudge(t *testing.T) {
	a := New()
	fd := a.nudge.fd
	if a.nudge.file == nil {
		t.Fatal("the kernel gave no timer")
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for range 3 {
		a.Set(time.Millisecond)
		for {
			n, err := unix.Poll(poll, 60_000)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n != 1 {
				t.Fatalf("the kernel's timer did not go off: %d, %v", n, err)
			}
			break
		}
		<-a.C
	}
	a.Set(time.Hour)
	var left unix.ItimerSpec
	if err := unix.TimerfdGettime(fd, &left); err != nil || left.Value.Sec < 3000 {
		t.Fatalf("it goes off in %d s, want an hour: %v", left.Value.Sec, err)
	}
	a.Stop()
	if _, err := a.nudge.file.Stat(); err == nil {
		t.Fatal("the kernel's timer is left behind")
	}
}

// TestWithoutNudge: an alarm without the kernel's timer rings at the time of Go's timer.
func TestWithoutNudge(t *testing.T) {
	a := New()
	a.nudge.close()
	a.nudge = nudge{}
	defer a.Stop()
	begin := time.Now()
	a.Set(time.Millisecond)
	<-a.C
	if got := time.Since(begin); got < time.Millisecond {
		t.Fatalf("rang after %v", got)
	}
}
