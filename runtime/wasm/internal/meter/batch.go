package meter

import (
	"slices"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// A Batch names two functions, imported from one module, with which a guest takes one task
// after another. Done takes the status of the current task and ends it; Next opens a task.
// Both are (i32) -> i32.
//
// A guest calls both for each task, one right after the other, and a transition from native
// code to the host costs as much as the work of the host in these calls. So Done only
// stores the status, and Next passes it to the host with its own request. Any other event
// of the guest reaches the host after the end of the task: each call of another imported
// function, including tick, first reports the end, and a host reads BatchGlobal when the
// guest's call has returned. The host therefore sees the same order as if Done reported at
// once, at most one slice later.
type Batch struct{ Module, Done, Next string }

// The states of the current task in BatchGlobal.
const (
	NoTask    = 0
	TaskOpen  = 1 << 32
	TaskEnded = 2 << 32 // plus the status in the lower half; not reported to the host yet
)

// batchFunctions holds the indices of the imports and helpers that a batch needs.
type batchFunctions struct {
	on     bool
	next   uint32 // imported: passes BatchGlobal and the budget, and opens a task
	done   uint32 // imported by the original module
	tell   uint32 // helper: calls done for a task that has ended
	global uint32
}

// planBatch enables batches if the module imports both functions of a Batch.
func (w *rewriter) planBatch() {
	names, have := w.opts.Batch, make(map[string]bool, 2)
	index := uint32(0)
	for _, im := range w.m.Imports {
		if im.Kind != binary.KindFunc {
			continue
		}
		if role := w.batchRole(im); role != "" {
			have[role] = true
			if role == names.Done {
				w.batch.done = index
			}
		}
		index++
	}
	if !have[names.Done] || !have[names.Next] {
		return
	}
	w.batch.on = true
	w.batch.next = w.tick + w.added
	w.added++
	w.batch.global = w.linesGlobal + 1
	w.nextType = w.addType([]byte{binary.I64, binary.I64}, []byte{binary.I32})
}

// batchRole returns the name of an import that is one of the functions of a Batch, or "".
func (w *rewriter) batchRole(im binary.Import) string {
	b := w.opts.Batch
	one := []byte{binary.I32}
	if t := w.m.Types[im.Type]; im.Module != b.Module || !slices.Equal(t.Params, one) || !slices.Equal(t.Results, one) {
		return ""
	}
	if im.Name == b.Done || im.Name == b.Next {
		return im.Name
	}
	return ""
}

// appendTell reports the end of the current task to the host, unless that is already done.
func (w *rewriter) appendTell(out []byte) []byte {
	if !w.batch.on {
		return out
	}
	out = appendIndexed(out, opGlobalGet, w.batch.global)
	out = append(out, opI64Const)
	out = binary.AppendS64(out, TaskEnded)
	out = append(out, opI64LtU, opIf, blockTypeVoid, opElse) // for the order of the branches see setBudgetAndCheck
	out = appendIndexed(out, opCall, w.batch.tell)
	return append(out, opEnd)
}

// tellBody calls Done of the host for the task that has ended.
func (w *rewriter) tellBody() []byte {
	out := appendIndexed([]byte{0}, opGlobalGet, w.batch.global)
	out = append(out, opI32Wrap)
	out = appendIndexed(out, opCall, w.batch.done)
	out = append(out, opDrop, opI64Const, NoTask)
	out = appendIndexed(out, opGlobalSet, w.batch.global)
	return append(out, opEnd)
}

// batchTickBody reports the end of a task and then calls tick. It first stores its argument
// in the budget global, because a function that holds the budget in a local has not done so
// and the host may read it.
func (w *rewriter) batchTickBody() []byte {
	out := appendLocals([]byte{0}, 0)
	out = appendIndexed(out, opGlobalSet, w.budget)
	out = w.appendTell(out)
	out = appendLocals(out, 0)
	out = appendIndexed(out, opCall, w.tick)
	return append(out, opEnd)
}

// batchBody reports the end of a task and then calls an import.
func (w *rewriter) batchBody(index uint32, im binary.Import) []byte {
	t := w.m.Types[im.Type]
	out := []byte{0}
	switch role := w.batchRole(im); {
	case role != "" && role == w.opts.Batch.Done:
		out = w.appendDone(appendLocals(out, 0), 0, index)
	case role != "" && role == w.opts.Batch.Next:
		out = w.appendNext(appendLocals(out, 0), 0, index)
	default:
		out = w.appendTell(out)
		for p := range t.Params {
			out = appendIndexed(out, opLocalGet, uint32(p))
		}
		out = appendIndexed(out, opCall, index)
	}
	return append(out, opEnd)
}

// appendDone appends a call of Done and uses local for its parameter. Without an open task
// it calls the host, which refuses the call.
func (w *rewriter) appendDone(out []byte, local, index uint32) []byte {
	out = appendIndexed(out, opLocalSet, local)
	out = w.appendIfOpen(out)
	out = appendIndexed(out, opLocalGet, local)
	out = append(out, opI64ExtendU, opI64Const)
	out = binary.AppendS64(out, TaskEnded)
	out = append(out, opI64Or)
	out = appendIndexed(out, opGlobalSet, w.batch.global)
	out = append(out, opI32Const, 0, opElse)
	out = w.appendTell(out)
	out = appendIndexed(out, opLocalGet, local)
	out = appendIndexed(out, opCall, index)
	return append(out, opEnd)
}

// appendNext appends a call of Next and uses local for its parameter and its result. With
// an open task it calls the host, which refuses the call. The result 1 means that a task is
// now open.
func (w *rewriter) appendNext(out []byte, local, index uint32) []byte {
	out = appendIndexed(out, opLocalSet, local)
	out = w.appendIfOpen(out)
	out = appendIndexed(out, opLocalGet, local)
	out = appendIndexed(out, opCall, index)
	out = append(out, opElse)
	out = appendIndexed(out, opGlobalGet, w.batch.global)
	out = appendIndexed(out, opGlobalGet, w.budget)
	out = appendIndexed(out, opCall, w.batch.next)
	out = appendIndexed(out, opLocalTee, local)
	out = append(out, opI32Const, 1, opI32Eq, opI64ExtendU, opI64Const, 32, opI64Shl)
	out = appendIndexed(out, opGlobalSet, w.batch.global)
	out = appendIndexed(out, opLocalGet, local)
	return append(out, opEnd)
}

// appendIfOpen begins an if with an i32 result that tests for an open task.
func (w *rewriter) appendIfOpen(out []byte) []byte {
	out = appendIndexed(out, opGlobalGet, w.batch.global)
	out = append(out, opI64Const)
	out = binary.AppendS64(out, TaskOpen)
	return append(out, opI64Eq, opIf, binary.I32)
}

// callImport calls an imported function. The work before the call is inlined in the caller
// and not in a wrapper function: after a call of the host the processor mispredicts the
// return of such a wrapper. A task makes only few calls of the host.
func (f *function) callImport(index uint32) {
	w, im := f.w, f.w.functions[index]
	role := ""
	if w.batch.on {
		role = w.batchRole(im)
	}
	switch {
	case role == "":
		f.code = w.appendTell(f.code)
		if lines, ok := f.marks.hostLines(index); ok {
			f.code = appendIndexed(f.code, opCall, index)
			if lines &^= f.marks.consts.lines; lines != 0 {
				f.marks.markLines(lines)
			}
		} else {
			f.code = appendIndexed(f.code, opCall, w.direct[index])
		}
	case role == w.opts.Batch.Done:
		f.code = w.appendDone(f.code, f.batchLocal(), w.direct[index])
	default:
		f.code = w.appendNext(f.code, f.batchLocal(), w.direct[index])
	}
}

// batchLocal returns the local for the parameters and results of the functions of a Batch.
func (f *function) batchLocal() uint32 {
	if f.answer == noLocal {
		f.answer = f.local(binary.I32)
	}
	return f.answer
}
