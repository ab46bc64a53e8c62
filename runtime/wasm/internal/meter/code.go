package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// Opcodes of the inserted code.
const (
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opElse        = 0x05
	opEnd         = 0x0b
	opBrIf        = 0x0d
	opCall        = 0x10
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opMemorySize  = 0x3f
	opI32Const    = 0x41
	opI64Const    = 0x42
	opI32GtU      = 0x4b
	opI32LeU      = 0x4d
	opI64LtS      = 0x53
	opI64LeU      = 0x58
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opI32And      = 0x71
	opI64Add      = 0x7c
	opI64Sub      = 0x7d
	opI64Or       = 0x84
	opI64Shl      = 0x86
	opI64ShrU     = 0x88
	opI64ExtendU  = 0xad
	blockTypeVoid = 0x40
)

const (
	// foldBelow is the cost under which an arm or continuation is charged where
	// its surroundings start: a separate charge costs about as much.
	foldBelow = 48
	// frameBytes is what a native frame takes besides its locals.
	frameBytes = 64
)

// A point is a place where cost is charged.
type point struct {
	at    int   // offset in the body's code
	cost  int64 // of what runs when the point is reached
	check bool  // a loop head: the counter is compared as well
	// dominator is the point that always runs before this one in the same
	// iteration of the innermost loop. Invariant: dominator < own index.
	dominator int
}

func (w *rewriter) codeSection() []byte {
	size := 0
	for _, body := range w.m.Bodies {
		size += len(body.Code)
	}
	bodies := make([]byte, 0, size+size/4)
	var b []byte // one function's new body; the next overwrites it
	for i, body := range w.m.Bodies {
		b = w.body(b[:0], body, w.m.Types[w.m.Funcs[i]])
		bodies = binary.AppendU32(bodies, uint32(len(b)))
		bodies = append(bodies, b...)
	}
	n := uint32(len(w.m.Bodies))
	if w.usesBulk {
		for _, b := range [][]byte{w.fillBody(), w.copyBody()} {
			bodies = binary.AppendU32(bodies, uint32(len(b)))
			bodies = append(bodies, b...)
			n++
		}
	}
	return append(binary.AppendU32(make([]byte, 0, len(bodies)+5), n), bodies...)
}

// body appends one rewritten function to out. A function that calls others is wrapped in a
// block with the function's own label, so that every branch out of it lands
// where the frame is given back.
func (w *rewriter) body(out []byte, body binary.Body, t binary.FuncType) []byte {
	points, calls := w.points(body)
	var frame int64
	if calls {
		frame = frameBytes + 8*int64(len(t.Params)+body.LocalCount)
	}
	out = append(out, body.RawLocals...)
	out = w.appendCheck(out, points[0].cost, frame)
	if calls {
		out = append(out, opBlock)
		out = w.appendBlockType(out, t.Results)
	}
	out = w.appendInstructions(out, body, points[1:], frame)
	if calls {
		out = w.appendAdd(out, w.stack, frame)
		out = append(out, opEnd)
	}
	return out
}

// points finds where a body is charged, and whether it calls a function that
// could call it back.
func (w *rewriter) points(body binary.Body) (points []point, calls bool) {
	points = []point{{cost: 1}}
	open := []int{0} // for each open block: the point of the segment being read
	add := func(p point) int {
		points = append(points, p)
		return len(points) - 1
	}
	for in := range body.Instructions {
		top := len(open) - 1
		points[open[top]].cost += w.cost(in)
		switch in.Op {
		case binary.OpBlock, binary.OpIf:
			open = append(open, add(point{at: in.End, dominator: open[top]}))
		case binary.OpLoop:
			open = append(open, add(point{at: in.End, cost: 1, check: true}))
		case binary.OpElse:
			open[top] = add(point{at: in.End, dominator: open[top-1]})
		case binary.OpEnd:
			if open = open[:top]; top > 0 {
				open[top-1] = add(point{at: in.End, dominator: open[top-1]})
			}
		case binary.OpCall, binary.OpReturnCall:
			calls = calls || in.Index >= w.tick
		case binary.OpCallIndirect, binary.OpReturnCallIndirect:
			calls = true
		}
	}
	return fold(points), calls
}

// fold moves small charges to their dominators, last point first, so that what
// a point collects can be moved on with it.
func fold(points []point) []point {
	for i := len(points) - 1; i > 0; i-- {
		if p := &points[i]; !p.check && p.cost < foldBelow {
			points[p.dominator].cost += p.cost
			p.cost = 0
		}
	}
	kept := points[:1]
	for _, p := range points[1:] {
		if p.cost > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// cost is the price of one instruction in units.
func (w *rewriter) cost(in binary.Instr) int64 {
	switch in.Op {
	case binary.OpCall, binary.OpReturnCall:
		if in.Index < w.tick {
			return 64 // leaves native code for the host
		}
	case binary.OpMemoryGrow:
		return 256
	case binary.OpMemoryInit:
		return 1 + w.dataLen(in.Index)/4
	case binary.OpTableInit, binary.OpTableCopy, binary.OpTableFill, binary.OpTableGrow:
		return 1 + int64(w.opts.TableElements)/4
	}
	return 1
}

func (w *rewriter) dataLen(segment uint32) int64 {
	if int64(segment) >= int64(len(w.m.Data)) {
		return 0 // invalid: the engine refuses it
	}
	return int64(w.m.Data[segment])
}

// appendInstructions copies the body with charges and shifted indices.
func (w *rewriter) appendInstructions(out []byte, body binary.Body, points []point, frame int64) []byte {
	copied := 0 // body.Code[:copied] is in out
	flush := func(upTo int) {
		out = append(out, body.Code[copied:upTo]...)
		copied = upTo
	}
	for in := range body.Instructions {
		switch in.Op {
		case binary.OpCall, binary.OpRefFunc:
			flush(in.Start)
			out = append(out, byte(in.Op))
			out = binary.AppendU32(out, w.shift(in.Index))
			copied = in.End
		case binary.OpReturn, binary.OpReturnCall, binary.OpReturnCallIndirect:
			flush(in.Start)
			out = w.appendLeave(out, in, body.Code, frame)
			copied = in.End
		case binary.OpMemoryFill, binary.OpMemoryCopy:
			flush(in.Start)
			out = w.appendBulk(out, in)
			copied = in.End
		default:
			w.noteState(in.Op)
		}
		for len(points) > 0 && points[0].at == in.End {
			flush(in.End)
			out = w.appendPoint(out, points[0])
			points = points[1:]
		}
	}
	flush(len(body.Code))
	return out
}

func (w *rewriter) appendPoint(out []byte, p point) []byte {
	if p.check {
		return w.appendCheck(out, p.cost, 0)
	}
	return w.appendAdd(out, w.fuel, -p.cost)
}

// appendLeave gives the frame back before an instruction that leaves the function.
func (w *rewriter) appendLeave(out []byte, in binary.Instr, code []byte, frame int64) []byte {
	if frame > 0 {
		out = w.appendAdd(out, w.stack, frame)
	}
	if in.Op != binary.OpReturnCall {
		return append(out, code[in.Start:in.End]...)
	}
	out = append(out, byte(binary.OpReturnCall))
	return binary.AppendU32(out, w.shift(in.Index))
}

func (w *rewriter) appendBulk(out []byte, in binary.Instr) []byte {
	w.usesBulk = true
	index := w.fillFn
	if in.Op == binary.OpMemoryCopy {
		index = w.copyFn
	}
	out = append(out, opCall)
	return binary.AppendU32(out, index)
}

// noteState remembers instructions whose effect a reset of memory and globals
// would not undo.
func (w *rewriter) noteState(op binary.Op) {
	switch op {
	case binary.OpTableSet, binary.OpTableInit, binary.OpTableCopy, binary.OpTableFill, binary.OpTableGrow:
		w.notResettable = "it changes a table"
	case binary.OpDataDrop, binary.OpElemDrop:
		w.notResettable = "it drops a segment"
	}
}

// appendBlockType writes the type of a block without parameters.
func (w *rewriter) appendBlockType(out, results []byte) []byte {
	switch len(results) {
	case 0:
		return append(out, blockTypeVoid)
	case 1:
		return append(out, results[0])
	}
	index, ok := w.blockTypes[string(results)]
	if !ok {
		index = w.addType(nil, results)
		w.blockTypes[string(results)] = index
	}
	return binary.AppendS64(out, int64(index))
}

// appendAdd adds delta to a global.
func (w *rewriter) appendAdd(out []byte, global uint32, delta int64) []byte {
	out = appendIndexed(out, opGlobalGet, global)
	out = append(out, opI64Const)
	out = binary.AppendS64(out, delta)
	out = append(out, opI64Add)
	return appendIndexed(out, opGlobalSet, global)
}

// appendCheck charges cost and frame and calls tick when either is used up.
func (w *rewriter) appendCheck(out []byte, cost, frame int64) []byte {
	out = w.appendAdd(out, w.fuel, -cost)
	if frame > 0 {
		out = w.appendAdd(out, w.stack, -frame)
	}
	out = appendIndexed(out, opGlobalGet, w.fuel)
	if frame > 0 {
		out = appendIndexed(out, opGlobalGet, w.stack)
		out = append(out, opI64Or) // negative when one of them is
	}
	out = append(out, opI64Const, 0, opI64LtS, opIf, blockTypeVoid)
	out = appendIndexed(out, opGlobalGet, w.stack)
	out = appendIndexed(out, opCall, w.tick)
	out = appendIndexed(out, opGlobalSet, w.fuel)
	return append(out, opEnd)
}

func appendIndexed(out []byte, op byte, index uint32) []byte {
	return binary.AppendU32(append(out, op), index)
}
