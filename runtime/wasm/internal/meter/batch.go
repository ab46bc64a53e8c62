package meter

import (
	"slices"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// A Batch names two functions, imported from one module, with which a guest takes one
// task after another: Done, of a status, ends the task at hand, and Next opens one.
// Both are (i32) -> i32.
//
// A guest calls both for each task, one right after the other, and leaving native code
// for the host costs as much as all that the host does then. So Done only remembers
// the status, and Next hands it over with its own request. Whatever else may happen to
// the guest before comes to the host behind it: each call of another imported
// function, tick among them, tells of the end first, and a host looks at BatchGlobal
// when the guest's call has ended. What the host sees is therefore what it would see
// if Done told it at once, at most a slice later.
type Batch struct{ Module, Done, Next string }

// What BatchGlobal says of the task at hand.
const (
	NoTask    = 0
	TaskOpen  = 1 << 32
	TaskEnded = 2 << 32 // plus its status in the lower half; the host was not told yet
)

// batchFunctions are the indices of imports and helpers that a batch needs.
type batchFunctions struct {
	on     bool
	next   uint32 // imported: hands over BatchGlobal and the budget, and opens a task
	done   uint32 // imported, as the module does
	tell   uint32 // helper: calls done for a task that has ended
	global uint32
}

// planBatch finds out whether the module takes batches.
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

// batchRole is the name of an import that is one of a batch's, or "".
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

// appendTell tells the host of a task that has ended, if it was not told yet.
func (w *rewriter) appendTell(out []byte) []byte {
	if !w.batch.on {
		return out
	}
	out = appendIndexed(out, opGlobalGet, w.batch.global)
	out = append(out, opI64Const)
	out = binary.AppendS64(out, TaskEnded)
	out = append(out, opI64LtU, opIf, blockTypeVoid, opElse) // in this order: see setBudgetAndCheck
	out = appendIndexed(out, opCall, w.batch.tell)
	return append(out, opEnd)
}

// tellBody calls the import for the task that has ended.
func (w *rewriter) tellBody() []byte {
	out := appendIndexed([]byte{0}, opGlobalGet, w.batch.global)
	out = append(out, opI32Wrap)
	out = appendIndexed(out, opCall, w.batch.done)
	out = append(out, opDrop, opI64Const, NoTask)
	out = appendIndexed(out, opGlobalSet, w.batch.global)
	return append(out, opEnd)
}

// batchTickBody is tick behind the end of a task. A function that holds the budget in
// a local has not put it where the host may look.
func (w *rewriter) batchTickBody() []byte {
	out := appendLocals([]byte{0}, 0)
	out = appendIndexed(out, opGlobalSet, w.budget)
	out = w.appendTell(out)
	out = appendLocals(out, 0)
	out = appendIndexed(out, opCall, w.tick)
	return append(out, opEnd)
}

// batchBody calls an import, behind the end of a task.
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

// appendDone is a call of Done, with a local for its parameter. Without an open task it
// is the host's to refuse the call.
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

// appendNext is a call of Next, with a local for its parameter and its result. With an
// open task it is the host's to refuse the call; the answer 1 says that there is one now.
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

// appendIfOpen begins an if that has an i32 as its result.
func (w *rewriter) appendIfOpen(out []byte) []byte {
	out = appendIndexed(out, opGlobalGet, w.batch.global)
	out = append(out, opI64Const)
	out = binary.AppendS64(out, TaskOpen)
	return append(out, opI64Eq, opIf, binary.I32)
}

// callImport calls an imported function. What has to be done before is in the caller
// and not in a function around the import: behind a call of the host the processor
// does not foresee where such a function returns to, and there are few in a task.
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

// batchLocal is a local for what a function of a batch is given and answers.
func (f *function) batchLocal() uint32 {
	if f.answer == noLocal {
		f.answer = f.local(binary.I32)
	}
	return f.answer
}
