// Package alarm wakes a goroutine when a moment has come, and not up to a
// millisecond later.
//
// A timer of Go is late when the process has nothing else to do: the runtime
// then sleeps in a call that counts whole milliseconds. On Linux an Alarm has a
// timer of the kernel beside it, to the nanosecond, among the files that this
// call watches. It rings just after Go's timer is due and has no other task
// than to end the call; the runtime then finds its own timer. So there is no
// thread and no goroutine, an alarm that is not near costs nothing, a busy
// process is no worse off than with Go's timer alone, and in fake time
// (testing/synctest) Go's timer does what it does there. Other systems count
// nanoseconds themselves.
package alarm

import "time"

// Alarm rings once for each Set. It belongs to one goroutine.
type Alarm struct {
	// C gets a value when the alarm rings.
	C     <-chan time.Time
	timer *time.Timer
	nudge nudge
}

// New returns an alarm that is not set. Stop it in the end.
func New() *Alarm {
	t := time.NewTimer(0)
	t.Stop()
	return &Alarm{C: t.C, timer: t, nudge: newNudge()}
}

// Set makes the alarm ring after d, and not as it was set before.
func (a *Alarm) Set(d time.Duration) {
	a.timer.Reset(d)
	if d > 0 {
		// After Reset: the kernel's d begins later than that of the runtime, which
		// must find its timer due when it is woken.
		a.nudge.set(d)
	}
}

// Stop ends the alarm. It does not ring any more and must not be set again.
func (a *Alarm) Stop() {
	a.timer.Stop()
	a.nudge.close()
}
