package wasm

import (
	"context"
	"reflect"
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
	start moment
	small []byte // buffer that small outputs share

	budget api.MutableGlobal // the guest's
	fuel   int32             // fuel left of its slice when the clock was last read
}

var _ runtime.BatchExecutor = (*Engine)(nil)

// Batches implements runtime.BatchExecutor. A module must export wheelwork_run, and its
// manifest must declare that the handler takes batches, because a task can see the state
// that earlier tasks of its batch left.
func (e *Engine) Batches(digest, handler string) bool {
	m := e.module(digest)
	return m != nil && m.batches(handlerName(&runtime.Task{Handler: handler}))
}

func (m *module) batches(handler string) bool {
	if !m.runs {
		return false
	}
	for _, h := range m.info.Manifest.Handlers {
		if h.Name == handler {
			return h.Batch
		}
	}
	return false
}

// RunBatch implements runtime.BatchExecutor. If a task traps or is ended by the host, the
// tasks after it run in another instance.
func (e *Engine) RunBatch(items []*runtime.Item) {
	for len(items) > 0 {
		n := 1
		for n < len(items) && together(&items[0].Task, &items[n].Task) {
			n++
		}
		if n == 1 || !e.Batches(items[0].Task.Digest, items[0].Task.Handler) {
			begin(items[0])
			items[0].Result = e.Run(items[0].Ctx, items[0].Task, items[0].Sink)
			items = items[1:]
			continue
		}
		items = items[e.runBatch(items[:n]):]
	}
}

// together reports whether two tasks may share an instance without a reset between them.
// Tasks with files may not, because files are mounted for one task.
func together(a, b *runtime.Task) bool {
	return a.App == b.App && a.Digest == b.Digest && a.Handler == b.Handler && a.Limits == b.Limits &&
		(a.Grants == b.Grants || reflect.DeepEqual(a.Grants, b.Grants)) && (a.Grants == nil || len(a.Grants.Files) == 0)
}

// runBatch runs the first tasks of items and returns their number, at least one.
func (e *Engine) runBatch(items []*runtime.Item) int {
	first := items[0]
	begin(first)
	p, refused := e.prepare(&first.Task)
	if refused != nil {
		first.Result = *refused
		return 1
	}
	if !p.module.limits(p.index).none() {
		for _, i := range items {
			p.module.boundItem(i, p.index)
		}
	}
	c := e.calls.Get().(*call)
	defer func() {
		c.tasks = batch{}
		e.release(c)
	}()
	c.begin(first.Ctx, &first.Task, first.Sink, e.slots)
	c.services, c.ration = e.cfg.Services, &e.ration
	if err := c.start(); err != nil {
		first.Result = c.ended(err)
		return 1
	}
	defer c.releaseSlot()
	inst, err := e.reactor(c, p.module, p.limit)
	if err != nil {
		first.Result = c.notStarted(err)
		c.close()
		return 1
	}
	c.tasks = batch{items: items}
	c.batch = &c.tasks
	c.between()
	inst.arm(c, e.cfg.StackBytes)
	c.tasks.budget = inst.budget
	c.tasks.fuel, _ = meter.SplitBudget(inst.budget.Get())
	if inst.run == nil { // api.Function has a stack of its own, so it is only created for instances that run batches
		inst.run = inst.mod.ExportedFunction(abi.ExportRun)
	}
	inst.params[0] = uint64(p.index)
	err = inst.run.CallWithStack(c, inst.params[:])
	status := abi.Status(int32(inst.params[0]))
	c.tasks.hear(c, inst)
	switch {
	case err != nil:
		_ = inst.close(c) // its state is unknown
		c.batch.failed(c, c.errorResult(err))
	case c.batch.open:
		c.batch.settle(c, c.statusResult(status))
		e.recycle(c, inst)
	default:
		e.recycle(c, inst)
	}
	if c.batch.next == 0 { // the guest opened no task: run the first one alone
		c.releaseSlot()
		begin(first)
		first.Result = e.Run(first.Ctx, first.Task, first.Sink)
		return 1
	}
	return c.batch.next
}

// begin sets the deadline of a task that begins now.
func begin(item *runtime.Item) {
	if item.Timeout > 0 {
		item.Begin(time.Now())
	}
}

// boundItem is bound for a task that begins later: its timeout counts from its begin.
func (m *module) boundItem(i *runtime.Item, index int) {
	begun := i.Task.Deadline
	m.bound(&i.Task, index)
	if d := m.limits(index).timeout(); d > 0 && i.Timeout > 0 {
		i.Timeout, i.Task.Deadline = min(i.Timeout, d), begun
	}
}

// failed ends the task that was open when the guest ended. If no task was open, the earlier
// tasks have their results already, and the later ones run in another call.
func (b *batch) failed(c *call, r runtime.Result) {
	if b.open {
		c.look() // the budget is unreliable after a trap, so read the clock
		b.settle(c, r)
	}
}

// between charges the time between two tasks to the next task, so that a guest that hangs
// there is ended. The guest can access neither task during this time.
func (c *call) between() {
	if b := c.batch; b.next < len(b.items) {
		c.next(b.items[b.next])
		return
	}
	c.face(context.Background(), &noTask)
	c.deadline = c.seen + moment(batchGrace)
}

// next makes the task of an item the next one, starting at c.seen.
func (c *call) next(item *runtime.Item) {
	if item.Timeout > 0 {
		item.Begin(c.seen.time())
	}
	c.face(item.Ctx, &item.Task)
}

// noTask is the task of a call after the last task of its batch. It is never changed.
var noTask runtime.Task

type discard struct{}

func (discard) Log(runtime.Level, []byte)     {}
func (discard) Progress(int64, int64, string) {}

// hear ends the open task if its end was stored in BatchGlobal and not yet reported when
// the guest's call returned.
func (b *batch) hear(c *call, inst *instance) {
	if inst.taken == nil {
		return
	}
	if v := inst.taken.Get(); v != meter.NoTask {
		if v >= meter.TaskEnded && b.open {
			b.done(c, v, b.budget.Get())
		}
		inst.taken.Set(meter.NoTask)
	}
}

// done ends the open task. The lower half of status is the handler's status, and budget is
// the rest of the guest's budget.
func (b *batch) done(c *call, status, budget uint64) {
	if status := abi.Status(int32(status)); status == abi.StatusOK { // in place: a result is large
		b.item.Result = runtime.Result{Outcome: runtime.Succeeded, Output: c.output}
	} else {
		b.item.Result = c.statusResult(status)
	}
	b.end(c, budget)
}

// settle ends the open task with a result.
func (b *batch) settle(c *call, r runtime.Result) {
	b.item.Result = r
	b.end(c, b.budget.Get())
}

// end ends the open task, whose result lacks only the duration.
func (b *batch) end(c *call, budget uint64) {
	b.look(c, budget)
	b.item.Result.Duration = time.Duration(c.seen - b.start)
	c.close()
	b.open = false
	c.between()
}

// shortWork is the fuel that a guest uses within a few microseconds.
const shortWork = 2000

// look reads the clock, unless the guest has done very little since the last read and has
// made the host do as little. A read costs as much as all other work of the host for a
// task. If the clock is not read, the time is counted for the next task.
func (b *batch) look(c *call, budget uint64) {
	left, _ := meter.SplitBudget(budget)
	if uint32(b.fuel-left) >= shortWork || c.log.touched || c.progress.heard {
		c.look()
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

// nextTask ends the current task if the guest has ended it, and opens the next one. It
// serves a guest's calls of job_done and job_next together. See meter.Batch.
func (c *call) nextTask(taken, budget uint64) uint64 {
	b := c.batch
	if b == nil {
		return errno(abi.ErrnoInvalid)
	}
	if taken >= meter.TaskEnded {
		b.done(c, taken, budget)
	}
	return b.openNext(c)
}

// openNext opens the next task. A batch is complete when it begins, so openNext never waits
// for a task.
func (b *batch) openNext(c *call) uint64 {
	for b.next < len(b.items) {
		item := b.items[b.next]
		if b.next++; c.task != &item.Task { // an earlier task was overdue
			c.next(item)
		}
		if err := c.overdue(); err != nil {
			item.Result = c.ended(err)
			continue
		}
		c.take(item.Sink, &b.items[0].Task.Limits) // all items have the same limits
		b.item, b.open, b.start = item, true, c.seen
		return result(abi.NextReady)
	}
	c.between()
	return result(abi.NextEnd)
}

// jobNext serves modules that never call job_done, and calls of job_next that are not
// allowed.
func jobNext(c *call, _ memory, stack []uint64) {
	if b := c.batch; b == nil || b.open {
		stack[0] = errno(abi.ErrnoInvalid)
	} else {
		stack[0] = b.openNext(c)
	}
}

func jobDone(c *call, _ memory, stack []uint64) {
	b := c.batch
	if b == nil {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	b.done(c, stack[0], b.budget.Get())
	stack[0] = 0
}
