package wasm

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// lingering is how long a guest may run on after the last task of a batch.
const lingering = time.Second

// batch is the tasks of one call of wheelwork_run.
type batch struct {
	items []*runtime.Item
	next  int  // how many were opened
	open  bool // whether the last of these has not ended
	start time.Time
}

var _ runtime.BatchExecutor = (*Engine)(nil)

// Batches implements runtime.BatchExecutor: a module must export wheelwork_run
// and its manifest must say that the handler takes batches, because its tasks
// can see what those before them in the batch left.
func (e *Engine) Batches(digest, handler string) bool {
	m := e.module(digest)
	return m != nil && m.batches(handlerName(&runtime.Task{Handler: handler}))
}

func (m *module) batches(handler string) bool {
	if m.info.Kind != Reactor || !slices.Contains(m.info.Exports, abi.ExportRun) {
		return false
	}
	for _, h := range m.info.Manifest.Handlers {
		if h.Name == handler {
			return h.Batch
		}
	}
	return false
}

// RunBatch implements runtime.BatchExecutor. A task that traps or is ended does
// not take along those after it: they go on in another instance.
func (e *Engine) RunBatch(items []*runtime.Item) {
	for len(items) > 0 {
		n := 1
		for n < len(items) && together(&items[0].Task, &items[n].Task) {
			n++
		}
		if n == 1 || !e.Batches(items[0].Task.Digest, items[0].Task.Handler) {
			items[0].Begin(time.Now())
			items[0].Result = e.Run(items[0].Ctx, items[0].Task, items[0].Sink)
			items = items[1:]
			continue
		}
		items = items[e.runBatch(items[:n]):]
	}
}

// together says whether two tasks may share an instance without a reset between
// them. Files are mounted for one task.
func together(a, b *runtime.Task) bool {
	return a.App == b.App && a.Digest == b.Digest && a.Handler == b.Handler && a.Limits == b.Limits &&
		(a.Grants == b.Grants || reflect.DeepEqual(a.Grants, b.Grants)) && (a.Grants == nil || len(a.Grants.Files) == 0)
}

// runBatch runs the first tasks of items and returns how many, at least one.
func (e *Engine) runBatch(items []*runtime.Item) int {
	first := items[0]
	first.Begin(time.Now())
	p, refused := e.prepare(&first.Task)
	if refused != nil {
		first.Result = *refused
		return 1
	}
	for _, i := range items {
		p.module.boundItem(i, p.index)
	}
	c := e.calls.Get().(*call)
	defer e.release(c)
	c.begin(first.Ctx, &first.Task, first.Sink, e.slots)
	c.services = e.cfg.Services
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
	c.batch = &batch{items: items}
	c.between()
	inst.arm(c, e.cfg.StackBytes)
	if inst.run == nil { // it has a stack of its own, so not every instance has one
		inst.run = inst.mod.ExportedFunction(abi.ExportRun)
	}
	inst.params[0] = uint64(p.index)
	err = inst.run.CallWithStack(c, inst.params[:])
	status := abi.Status(int32(inst.params[0]))
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
	if c.batch.next == 0 { // it took none: it is asked again, for one alone
		c.releaseSlot()
		first.Begin(time.Now())
		first.Result = e.Run(first.Ctx, first.Task, first.Sink)
		return 1
	}
	return c.batch.next
}

// boundItem is bound for a task that begins later: its time counts from then.
func (m *module) boundItem(i *runtime.Item, index int) {
	begun := i.Task.Deadline
	m.bound(&i.Task, index)
	if d := m.limits(index).timeout(); d > 0 && i.Timeout > 0 {
		i.Timeout, i.Task.Deadline = min(i.Timeout, d), begun
	}
}

// failed ends the task that was open when the guest ended. A guest that ends
// between two tasks has done those before, and is not asked for the others.
func (b *batch) failed(c *call, r runtime.Result) {
	if b.open {
		b.settle(c, r)
	}
}

// between makes the time between two tasks that of the next one, so that a
// guest that hangs there is ended. It can reach neither task.
func (c *call) between() {
	if b := c.batch; b.next < len(b.items) {
		item := b.items[b.next]
		item.Begin(c.look())
		c.open(item.Ctx, &item.Task, discard{})
		return
	}
	c.open(context.Background(), &runtime.Task{Deadline: c.seen.Add(lingering)}, discard{})
}

type discard struct{}

func (discard) Log(runtime.Level, []byte)     {}
func (discard) Progress(int64, int64, string) {}

// settle ends the open task.
func (b *batch) settle(c *call, r runtime.Result) {
	r.Duration = c.look().Sub(b.start)
	c.close()
	b.items[b.next-1].Result = r
	b.open = false
	c.between()
}

// jobNext opens the next task. The batch is whole when it begins, so that
// there is never a task to wait for.
func jobNext(c *call, _ memory, stack []uint64) {
	b := c.batch
	if b == nil || b.open {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	for b.next < len(b.items) {
		item := b.items[b.next]
		if b.next++; c.task == &item.Task { // between opened it, all but its sink
			c.log, c.progress = newLogWriter(item.Sink, item.Task.Limits), progress{sink: item.Sink}
		} else {
			item.Begin(c.look())
			c.open(item.Ctx, &item.Task, item.Sink)
		}
		if err := c.overdue(); err != nil {
			item.Result = c.ended(err)
			continue
		}
		b.open, b.start = true, c.seen
		stack[0] = result(abi.NextReady)
		return
	}
	c.between()
	stack[0] = result(abi.NextEnd)
}

func jobDone(c *call, _ memory, stack []uint64) {
	if c.batch == nil {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	c.batch.settle(c, c.statusResult(abi.Status(int32(stack[0]))))
	stack[0] = 0
}
