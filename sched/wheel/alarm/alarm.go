// Package alarm wakes a goroutine when a moment has come, and not up to a
// millisecond later.
//
// A timer of Go is late when the process is idle: the runtime then waits in a system call
// whose timeout counts whole milliseconds. On Linux an Alarm has an additional kernel
// timer with a resolution of nanoseconds, a timerfd that the same system call watches. It
// expires just after Go's timer is due, and only ends the system call, so that the
// runtime finds its own timer. So an Alarm needs no thread and no goroutine, a distant
// alarm costs nothing, a busy process is no worse off than with Go's timer alone, and in
// fake time (testing/synctest) Go's timer works as usual. On other systems the runtime
// itself waits with a resolution of nanoseconds.
package alarm

import "time"

// Alarm rings once for each Set. It is not safe for concurrent use.
type Alarm struct {
	// C receives a value when the alarm rings.
	C     <-chan time.Time
	timer *time.Timer
	nudge nudge
}

// New returns an alarm that is not set. The caller calls Stop when it no longer needs the
// alarm.
func New() *Alarm {
	t := time.NewTimer(0)
	t.Stop()
	return &Alarm{C: t.C, timer: t, nudge: newNudge()}
}

// Set makes the alarm ring after d. It replaces the last Set, also if the alarm has rung
// and C was not read. If d is 0 or negative, the alarm rings at once.
func (a *Alarm) Set(d time.Duration) {
	a.timer.Reset(d)
	if d > 0 {
		// The order matters: the kernel's timer must expire after Go's, which the runtime
		// must find due when it is woken.
		a.nudge.set(d)
	}
}

// Stop ends the alarm and frees its kernel timer. The alarm rings no more and must not be
// set again.
func (a *Alarm) Stop() {
	a.timer.Stop()
	a.nudge.close()
}
