package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// chunkBytes is the number of bytes that are filled or copied between two checks. It takes
// less than 0.3 ms even when every page is touched for the first time.
const chunkBytes = 256 << 10

// Locals of the helpers: fill(dest, value, n) and copy(dest, source, n).
const (
	localDest   = 0
	localSource = 1 // or the value to fill with
	localLen    = 2
)

// fillBody is memory.fill in chunks. A range out of bounds goes directly to the plain
// instruction, which traps before it writes a byte.
func (w *rewriter) fillBody() []byte {
	out := w.appendMarkBulk([]byte{0}) // no locals besides the parameters
	out = w.appendBulkHead(out)
	out = appendLong(out, localDest)
	out = append(out, opIf, blockTypeVoid, opLoop, blockTypeVoid)
	out = appendLocals(out, localDest, localSource)
	out = appendChunk(out)
	out = append(out, 0xfc, 11, 0)
	out = appendAdvance(out, localDest, opI32Add)
	out = w.appendChunkTail(out)
	out = append(out, opEnd, opEnd)
	out = appendLocals(out, localDest, localSource, localLen)
	return append(out, 0xfc, 11, 0, opEnd)
}

// copyBody is memory.copy in chunks: forwards when the destination lies before the source
// and backwards otherwise, so that overlapping ranges give the same result as a single
// copy.
func (w *rewriter) copyBody() []byte {
	out := w.appendMarkBulk([]byte{0}) // no locals besides the parameters
	out = w.appendBulkHead(out)
	out = appendLong(out, localDest, localSource)
	out = append(out, opIf, blockTypeVoid)
	out = appendLocals(out, localDest, localSource)
	out = append(out, opI32LeU, opIf, blockTypeVoid)
	out = w.appendCopyForward(out)
	out = append(out, opElse)
	out = w.appendCopyBackward(out)
	out = append(out, opEnd, opEnd)
	out = appendLocals(out, localDest, localSource, localLen)
	return append(out, 0xfc, 10, 0, 0, opEnd)
}

func (w *rewriter) appendCopyForward(out []byte) []byte {
	out = append(out, opLoop, blockTypeVoid)
	out = appendLocals(out, localDest, localSource)
	out = appendChunk(out)
	out = append(out, 0xfc, 10, 0, 0)
	out = appendAdvance(out, localDest, opI32Add)
	out = appendAdvance(out, localSource, opI32Add)
	out = w.appendChunkTail(out)
	return append(out, opEnd)
}

// appendCopyBackward copies the remaining range from its end. Unlike the forward loop it
// shortens the range before it copies a chunk.
func (w *rewriter) appendCopyBackward(out []byte) []byte {
	out = append(out, opLoop, blockTypeVoid)
	out = appendAdvance(out, localLen, opI32Sub)
	out = appendLocals(out, localDest, localLen)
	out = append(out, opI32Add)
	out = appendLocals(out, localSource, localLen)
	out = append(out, opI32Add)
	out = appendChunk(out)
	out = append(out, 0xfc, 10, 0, 0)
	out = w.appendChunkCharge(out)
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	out = append(out, opI32GeU, opBrIf, 0)
	return append(out, opEnd)
}

// appendMarkBulk marks the whole destination.
func (w *rewriter) appendMarkBulk(out []byte) []byte {
	if w.marks == nil {
		return out
	}
	return appendIndexed(appendLocals(out, localDest, localLen), opCall, w.markRange)
}

// appendBulkHead charges a quarter unit per byte of the length modulo a chunk, for the last
// instruction of the helper. The loop charges its own chunks, and leaves less than a chunk.
func (w *rewriter) appendBulkHead(out []byte) []byte {
	out = appendLocals(out, localLen)
	out = append(out, opI32Const)
	out = binary.AppendS64(out, chunkBytes-1)
	out = append(out, opI32And, opI64ExtendU, opI64Const, 2, opI64ShrU)
	return w.appendTake(out)
}

// appendChunkCharge charges one chunk.
func (w *rewriter) appendChunkCharge(out []byte) []byte {
	return w.appendTake(binary.AppendS64(append(out, opI64Const), chunkBytes/4))
}

// appendTake charges the number of units on the stack and calls tick when the slice is used
// up.
func (w *rewriter) appendTake(out []byte) []byte {
	out = append(out, opI64Const)
	out = binary.AppendS64(out, -1)
	out = append(out, opI64Mul)
	out = appendIndexed(out, opGlobalGet, w.budget)
	out = append(out, opI64Add)
	out = appendIndexed(out, opGlobalSet, w.budget)
	out = appendIndexed(out, opGlobalGet, w.budget)
	out = append(out, opI32Wrap, opI32Const, 0, opI32LtS, opIf, blockTypeVoid)
	out = appendIndexed(out, opGlobalGet, w.budget)
	out = appendIndexed(out, opCall, w.tickFn)
	out = appendIndexed(out, opGlobalSet, w.budget)
	return append(out, opEnd)
}

// appendLong pushes whether the range has a chunk or more and lies inside the memory at
// each of the given starts.
func appendLong(out []byte, starts ...byte) []byte {
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	out = append(out, opI32GeU)
	for _, start := range starts {
		out = appendLocals(out, start)
		out = append(out, opI64ExtendU)
		out = appendLocals(out, localLen)
		out = append(out, opI64ExtendU, opI64Add)
		out = append(out, opMemorySize, 0, opI64ExtendU, opI64Const, 16, opI64Shl)
		out = append(out, opI64LeU, opI32And)
	}
	return out
}

// appendChunkTail shortens the range, charges and checks, and repeats the loop while a
// chunk or more is left.
func (w *rewriter) appendChunkTail(out []byte) []byte {
	out = appendAdvance(out, localLen, opI32Sub)
	out = w.appendChunkCharge(out)
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	return append(out, opI32GeU, opBrIf, 0)
}

func appendAdvance(out []byte, local, op byte) []byte {
	out = appendLocals(out, local)
	out = appendChunk(out)
	return append(out, op, opLocalSet, local)
}

func appendChunk(out []byte) []byte {
	return binary.AppendS64(append(out, opI32Const), chunkBytes)
}

func appendLocals(out []byte, locals ...byte) []byte {
	for _, l := range locals {
		out = append(out, opLocalGet, l)
	}
	return out
}

// markRangeBody is mark(start, length): it sets the dirty bit of each chunk of the range,
// and all bits when the range has 64 chunks or more.
func (w *rewriter) markRangeBody() []byte {
	const start, length, first, count = 0, 1, 2, 3
	shift := byte(w.marks.Shift)
	out := []byte{1, 2, binary.I64} // locals: first chunk, number of chunks
	out = append(out, opLocalGet, length, opIf, blockTypeVoid)
	out = append(out, opLocalGet, start, opI64ExtendU, opI64Const, shift, opI64ShrU, opLocalSet, first)
	out = append(out, opLocalGet, start, opI64ExtendU, opLocalGet, length, opI64ExtendU, opI64Add, opI64Const, 1, opI64Sub)
	out = append(out, opI64Const, shift, opI64ShrU, opLocalGet, first, opI64Sub, opI64Const, 1, opI64Add, opLocalSet, count)
	out = appendIndexed(out, opGlobalGet, w.marksGlobal)
	out = append(out, opLocalGet, count, opI64Const)
	out = binary.AppendS64(out, 64)
	out = append(out, opI64GeU, opIf, binary.I64, opI64Const)
	out = binary.AppendS64(out, -1)
	out = append(out, opElse, opI64Const, 1, opLocalGet, count, opI64Shl, opI64Const, 1, opI64Sub, opLocalGet, first, opI64Rotl, opEnd)
	out = append(out, opI64Or)
	out = appendIndexed(out, opGlobalSet, w.marksGlobal)
	return append(out, opEnd, opEnd)
}

// importBody calls an import and marks the memory that it may have written.
func (w *rewriter) importBody(index uint32, t binary.FuncType, writes []Write) []byte {
	out := []byte{0}
	for p := range t.Params {
		out = appendIndexed(out, opLocalGet, uint32(p))
	}
	out = appendIndexed(out, opCall, index)
	for _, write := range writes {
		if write.Ptr >= len(t.Params) || write.Len >= len(t.Params) {
			continue // the module defines this function with another type and is refused for it
		}
		out = appendIndexed(out, opLocalGet, uint32(write.Ptr))
		if write.Len >= 0 {
			out = appendIndexed(out, opLocalGet, uint32(write.Len))
		}
		if write.Len < 0 || write.Size > 1 {
			out = binary.AppendS64(append(out, opI32Const), int64(int32(write.Size)))
		}
		if write.Len >= 0 && write.Size > 1 {
			out = append(out, opI32Mul)
		}
		out = appendIndexed(out, opCall, w.markRange)
	}
	return append(out, opEnd)
}

// importAnyBody calls an import whose writes are unknown, and then marks all chunks.
func (w *rewriter) importAnyBody(index uint32, t binary.FuncType) []byte {
	out := w.importBody(index, t, nil)
	out = append(out[:len(out)-1], opI64Const)
	out = binary.AppendS64(out, -1)
	out = appendIndexed(out, opGlobalSet, w.marksGlobal)
	return append(out, opEnd)
}
