package wasm

import (
	"reflect"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

var _ runtime.BatchExecutor = (*Engine)(nil)

// Batches implements runtime.BatchExecutor. A module must export wheelwork_run, and its
// manifest must declare that the handler takes batches, because a task can see the state
// that earlier tasks of its batch left.
func (e *Engine) Batches(digest, handler string) bool {
	m := e.module(digest)
	return m != nil && m.batches(guest.HandlerName(&runtime.Task{Handler: handler}))
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
	c := e.calls.Get().(*guest.Call)
	defer e.release(c)
	c.Begin(first.Ctx, &first.Task, first.Sink, &e.host)
	if err := c.Start(); err != nil {
		first.Result = c.Result(err)
		return 1
	}
	defer c.ReleaseSlot()
	inst, err := e.reactor(c, p.module, p.limit)
	if err != nil {
		first.Result = c.NotStarted(err)
		c.Close()
		return 1
	}
	c.BeginBatch(items)
	inst.arm(c, e.cfg.StackBytes)
	c.SetBudget(inst.budget)
	if inst.run == nil { // api.Function has a stack of its own, so it is only created for instances that run batches
		inst.run = inst.mod.ExportedFunction(abi.ExportRun)
	}
	inst.params[0] = uint64(p.index)
	err = inst.run.CallWithStack(c, inst.params[:])
	opened := c.EndBatch(inst.taken, abi.Status(int32(inst.params[0])), err)
	if err != nil {
		_ = inst.close(c) // its state is unknown
	} else {
		e.recycle(c, inst)
	}
	if opened == 0 { // the guest opened no task: run the first one alone
		c.ReleaseSlot()
		begin(first)
		first.Result = e.Run(first.Ctx, first.Task, first.Sink)
		return 1
	}
	return opened
}

// begin sets the deadline of a task that begins now.
func begin(item *runtime.Item) {
	if item.Timeout > 0 {
		item.Begin(time.Now())
	}
}

// boundItem calls [module.bound] for a task that begins later: its timeout counts from the
// time at which it begins.
func (m *module) boundItem(i *runtime.Item, index int) {
	begun := i.Task.Deadline
	m.bound(&i.Task, index)
	if d := m.limits(index).timeout(); d > 0 && i.Timeout > 0 {
		i.Timeout, i.Task.Deadline = min(i.Timeout, d), begun
	}
}
