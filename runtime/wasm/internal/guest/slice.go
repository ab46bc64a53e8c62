package guest

import (
	"context"
	"errors"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// Tick is called when a slice is used up. It lets other goroutines run, ends a guest after
// its deadline or cancellation, and returns the next slice.
func (c *Call) Tick() int64 {
	at := Now()
	used := time.Duration(at - c.sliceStart)
	c.seen = yield(at)
	c.check(c.seen)
	c.progress.flush(c.seen, false)
	c.slice = nextSlice(c.slice, used)
	c.sliceStart = c.seen
	return c.slice
}

// workBetweenLooks is how much host functions do for a guest between two reads of the
// clock, in calls and pages. Their time is not in the guest's budget, so a loop around a
// slow host function would run a thousand times as long as its slice.
const workBetweenLooks = 32

// pageBytes is the number of bytes whose copy counts as one unit of work.
const pageBytes = 4 << 10

// Work counts the work of a host function on so many bytes, and ends a guest whose deadline
// has passed. Functions that touch no memory cost what the guest's budget charges for a
// call.
func (c *Call) Work(bytes int) {
	if c.worked += 1 + bytes/pageBytes; c.worked >= workBetweenLooks {
		c.worked = 0
		c.Check()
	}
}

// nextSlice doubles a slice that took less than half of sliceTime. It shrinks a slice that
// took longer than sliceTime to about sliceTime at once.
func nextSlice(slice int64, used time.Duration) int64 {
	switch {
	case used > sliceTime:
		return max(minSlice, int64(float64(slice)*float64(sliceTime)/float64(used)))
	case used < sliceTime/2:
		return min(maxSlice, slice*2)
	}
	return slice
}

// Check reads the clock, and ends the guest if it is overdue.
func (c *Call) Check() { c.check(c.Look()) }

// check ends the guest when its deadline has passed, or cancelGrace after the caller
// cancelled it.
func (c *Call) check(now Moment) {
	if now >= c.deadline {
		c.end(errDeadline)
	}
	err := c.ctx.Err()
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		c.end(errDeadline)
	case c.cancelSeen == never:
		c.cancelSeen = now
	case time.Duration(now-c.cancelSeen) > cancelGrace:
		c.end(errStopped)
	}
}

// overdue returns the reason why a guest should not start at c.seen, or nil.
func (c *Call) overdue() error {
	err := c.ctx.Err()
	switch {
	case c.seen >= c.deadline:
		return errDeadline
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	}
	return errStopped
}

// Cancelled returns the answer to a guest that polls for cancellation.
func (c *Call) Cancelled() abi.Cancel {
	switch {
	case c.ctx.Err() != nil:
		return abi.CancelRequested
	case c.left() < deadlineNear:
		return abi.CancelDeadlineNear
	}
	return abi.CancelNone
}

// left is the time until the deadline.
func (c *Call) left() time.Duration {
	if c.deadline == never {
		return time.Duration(never)
	}
	return time.Duration(c.deadline - Now())
}

// Sleep waits for d and gives its slot to another guest meanwhile. A sleep longer than
// longSleep also releases the execution slot of the host, unless guest memory is scarce or
// the host refuses. A guest whose deadline passes or that is cancelled during its sleep is
// ended at once, because it could not poll for cancellation before it wakes.
func (c *Call) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	c.progress.flush(c.Look(), d >= progressEvery)
	d = min(d, c.left())
	c.ReleaseSlot()
	sleeper, _ := c.log.sink.(runtime.Sleeper)
	if d <= longSleep || c.host.Memory.Scarce() || sleeper != nil && !sleeper.Sleep() {
		sleeper = nil
	}
	timer := time.NewTimer(d)
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		timer.Stop()
	}
	if sleeper != nil {
		c.wake(sleeper)
	}
	err := c.acquireSlot()
	c.sliceStart = c.Look()
	if err == nil {
		err = c.overdue()
	}
	if err != nil {
		c.end(err)
	}
}

// wake waits until the host has an execution slot for a guest that has slept, or until the
// guest's deadline.
func (c *Call) wake(s runtime.Sleeper) {
	ctx := c.ctx
	if c.deadline != never {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, c.left())
		defer end()
	}
	s.Wake(ctx)
}

// Start waits for a slot, unless the deadline has passed or the task was stopped.
func (c *Call) Start() error {
	if err := c.overdue(); err != nil {
		return err
	}
	return c.acquireSlot()
}

// acquireSlot waits for a slot of the engine.
func (c *Call) acquireSlot() error {
	select {
	case c.host.Slots <- struct{}{}:
		c.hasSlot = true
		return nil
	default:
	}
	var expired <-chan time.Time
	if c.deadline != never {
		timer := time.NewTimer(c.left())
		defer timer.Stop()
		expired = timer.C
	}
	defer c.Look()
	select {
	case c.host.Slots <- struct{}{}:
		c.hasSlot = true
		return nil
	case <-c.ctx.Done():
		return c.overdue()
	case <-expired:
		return errDeadline
	}
}

// ReleaseSlot returns the slot of the call, if it holds one.
func (c *Call) ReleaseSlot() {
	if c.hasSlot {
		c.hasSlot = false
		<-c.host.Slots
	}
}
