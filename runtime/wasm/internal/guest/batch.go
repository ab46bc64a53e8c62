package guest

import (
	"context"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// batchGrace is the time that a guest has to return after the last task of a batch.
const batchGrace = time.Second

// batch holds the tasks of one call of wheelwork_run.
type batch struct {
	items []*runtime.Item
	item  *runtime.Item // the item opened last
	next  int           // number of opened items, and index of the next one
	open  bool          // item has not ended
	start Moment
	small []byte // buffer that small outputs share

	budget api.MutableGlobal // the guest's
	fuel   int32             // fuel left of its slice when the clock was last read
}

// BeginBatch makes c the call of a batch, whose first task c was begun with.
func (c *Call) BeginBatch(items []*runtime.Item) {
	c.tasks = batch{items: items}
	c.batch = &c.tasks
	c.between()
}

// SetBudget sets the budget of the guest that runs the batch, after its first slice was
// granted.
func (c *Call) SetBudget(budget api.MutableGlobal) {
	c.tasks.budget = budget
	c.tasks.fuel, _ = meter.SplitBudget(budget.Get())
}

// EndBatch ends the task that was open when the guest returned status or failed with err,
// and returns the number of tasks that the guest opened. If no task was open, the earlier
// tasks have their results already, and the later ones run in another call. taken is
// BatchGlobal, or nil if the guest has none.
func (c *Call) EndBatch(taken api.MutableGlobal, status abi.Status, err error) (opened int) {
	b := c.batch
	b.receive(c, taken)
	switch {
	case !b.open:
	case err != nil:
		c.Look() // the budget is unreliable after a trap, so read the clock
		b.finish(c, c.ErrorResult(err))
	default:
		b.finish(c, c.StatusResult(status))
	}
	return b.next
}

// between charges the time between two tasks to the next task, so that a guest that hangs
// there is ended. The guest can access neither task during this time.
func (c *Call) between() {
	if b := c.batch; b.next < len(b.items) {
		c.next(b.items[b.next])
		return
	}
	c.announce(context.Background(), &noTask)
	c.deadline = c.seen + Moment(batchGrace)
}

// next makes the task of an item the next one, starting at c.seen.
func (c *Call) next(item *runtime.Item) {
	if item.Timeout > 0 {
		item.Begin(c.seen.time())
	}
	c.announce(item.Ctx, &item.Task)
}

// noTask is the task of a call after the last task of its batch. It is never changed.
var noTask runtime.Task

// receive ends the open task if its end was stored in BatchGlobal and not yet reported when
// the guest's call returned.
func (b *batch) receive(c *Call, taken api.MutableGlobal) {
	if taken == nil {
		return
	}
	if v := taken.Get(); v != meter.NoTask {
		if v >= meter.TaskEnded && b.open {
			b.done(c, v, b.budget.Get())
		}
		taken.Set(meter.NoTask)
	}
}

// done ends the open task. The lower half of status is the handler's status, and budget is
// the rest of the guest's budget.
func (b *batch) done(c *Call, status, budget uint64) {
	if status := abi.Status(int32(status)); status == abi.StatusOK { // in place: a result is large
		b.item.Result = runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	} else {
		b.item.Result = c.StatusResult(status)
	}
	b.end(c, budget)
}

// finish ends the open task with a result.
func (b *batch) finish(c *Call, r runtime.Result) {
	b.item.Result = r
	b.end(c, b.budget.Get())
}

// end ends the open task, whose result lacks only the duration.
func (b *batch) end(c *Call, budget uint64) {
	b.look(c, budget)
	b.item.Result.Duration = time.Duration(c.seen - b.start)
	c.Close()
	b.open = false
	c.between()
}

// shortWork is the fuel that a guest uses within a few microseconds.
const shortWork = 2000

// look reads the clock, unless the guest has done very little since the last read and has
// made the host do as little. A read costs as much as all other work of the host for a
// task. If the clock is not read, the time is counted for the next task.
func (b *batch) look(c *Call, budget uint64) {
	left, _ := meter.SplitBudget(budget)
	if uint32(b.fuel-left) >= shortWork || c.log.touched || c.progress.started {
		c.Look()
		b.fuel = left
	}
}

// smallOutput is the largest output, in bytes, that shares a buffer with the outputs of
// other tasks. A reference to one of them retains the whole buffer.
const smallOutput = 256

// room returns space for a small output. The outputs of a batch usually have similar sizes,
// so a new buffer has as much space for each of the remaining tasks.
func (b *batch) room(n int) []byte {
	if cap(b.small)-len(b.small) < n {
		b.small = make([]byte, 0, n*(len(b.items)-b.next+1))
	}
	at := len(b.small)
	b.small = b.small[:at+n]
	return b.small[at : at : at+n]
}

// NextTask ends the current task if the guest has ended it, opens the next one, and returns
// the result of job_next. It serves a guest's calls of job_done and job_next together. See
// meter.Batch.
func (c *Call) NextTask(taken, budget uint64) int32 {
	b := c.batch
	if b == nil {
		return -int32(abi.ErrnoInvalid)
	}
	if taken >= meter.TaskEnded {
		b.done(c, taken, budget)
	}
	return b.openNext(c)
}

// JobNext serves the calls of job_next of modules that never call job_done, and calls that
// are not allowed.
func (c *Call) JobNext() int32 {
	if b := c.batch; b != nil && !b.open {
		return b.openNext(c)
	}
	return -int32(abi.ErrnoInvalid)
}

// JobDone serves a call of job_done.
func (c *Call) JobDone(status uint64) int32 {
	b := c.batch
	if b == nil {
		return -int32(abi.ErrnoInvalid)
	}
	b.done(c, status, b.budget.Get())
	return 0
}

// openNext opens the next task. A batch is complete when it begins, so openNext never waits
// for a task.
func (b *batch) openNext(c *Call) int32 {
	for b.next < len(b.items) {
		item := b.items[b.next]
		if b.next++; c.Task != &item.Task { // an earlier task was overdue
			c.next(item)
		}
		if err := c.overdue(); err != nil {
			item.Result = c.Result(err)
			continue
		}
		c.expose(item.Sink, &b.items[0].Task.Limits) // all items have the same limits
		b.item, b.open, b.start = item, true, c.seen
		return abi.NextReady
	}
	c.between()
	return abi.NextEnd
}
