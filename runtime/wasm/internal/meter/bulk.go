package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// chunkBytes is how much memory is filled or copied between two checks: below
// 0.3 ms even when every page is touched for the first time.
const chunkBytes = 256 << 10

// Locals of the helpers: fill(dest, value, n) and copy(dest, source, n).
const (
	localDest   = 0
	localSource = 1 // or the value to fill with
	localLen    = 2
)

// fillBody is memory.fill in chunks. A range out of bounds goes to the plain
// instruction at once: it must trap before a byte is written.
func (w *rewriter) fillBody() []byte {
	out := w.appendBulkHead(nil)
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

// copyBody is memory.copy in chunks, forwards when the destination lies before
// the source and backwards otherwise, so that overlapping ranges come out as
// one copy would leave them.
func (w *rewriter) copyBody() []byte {
	out := w.appendBulkHead(nil)
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

// appendCopyBackward copies the last chunk that is left; the loop's tail has
// to shorten the range first.
func (w *rewriter) appendCopyBackward(out []byte) []byte {
	out = append(out, opLoop, blockTypeVoid)
	out = appendAdvance(out, localLen, opI32Sub)
	out = appendLocals(out, localDest, localLen)
	out = append(out, opI32Add)
	out = appendLocals(out, localSource, localLen)
	out = append(out, opI32Add)
	out = appendChunk(out)
	out = append(out, 0xfc, 10, 0, 0)
	out = w.appendCheck(out, chunkBytes/4, 0)
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	out = append(out, opI32GtU, opBrIf, 0)
	return append(out, opEnd)
}

// appendBulkHead charges a quarter unit per byte of what the last instruction
// of the helper may touch: at most a chunk, since the loop charges for itself.
func (w *rewriter) appendBulkHead(out []byte) []byte {
	out = append(out, 0) // no locals besides the parameters
	out = appendIndexed(out, opGlobalGet, w.fuel)
	out = appendLocals(out, localLen)
	out = append(out, opI32Const)
	out = binary.AppendS64(out, chunkBytes-1)
	out = append(out, opI32And, opI64ExtendU, opI64Const, 2, opI64ShrU, opI64Sub)
	return appendIndexed(out, opGlobalSet, w.fuel)
}

// appendLong pushes whether the range is longer than a chunk and within the
// memory from each of the given starts.
func appendLong(out []byte, starts ...byte) []byte {
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	out = append(out, opI32GtU)
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

// appendChunkTail shortens the range, checks, and repeats the loop while more
// than a chunk is left.
func (w *rewriter) appendChunkTail(out []byte) []byte {
	out = appendAdvance(out, localLen, opI32Sub)
	out = w.appendCheck(out, chunkBytes/4, 0)
	out = appendLocals(out, localLen)
	out = appendChunk(out)
	return append(out, opI32GtU, opBrIf, 0)
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
