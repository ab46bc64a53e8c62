package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// Opcodes of the inserted code.
const (
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opElse        = 0x05
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opCall        = 0x10
	opDrop        = 0x1a
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opLocalTee    = 0x22
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opMemorySize  = 0x3f
	opI32Const    = 0x41
	opI64Const    = 0x42
	opI32Eq       = 0x46
	opI32LtS      = 0x48
	opI32LeU      = 0x4d
	opI32GeU      = 0x4f
	opI32GeS      = 0x4e
	opI64Eqz      = 0x50
	opI64Eq       = 0x51
	opI64LtU      = 0x54
	opI64LeU      = 0x58
	opI64GeU      = 0x5a
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opI32Mul      = 0x6c
	opI32And      = 0x71
	opI32ShrU     = 0x76
	opI64Add      = 0x7c
	opI64Sub      = 0x7d
	opI64Mul      = 0x7e
	opI64And      = 0x83
	opI64Or       = 0x84
	opI64Shl      = 0x86
	opI64ShrU     = 0x88
	opI64Rotl     = 0x89
	opI32Wrap     = 0xa7
	opI64ExtendU  = 0xad
	blockTypeVoid = 0x40
)

// frameBytes is the size of a native frame without its locals.
const frameBytes = 64

// stackShift is the position of the stack's bytes in the budget, above the fuel.
const stackShift = 32

// spent has the sign bits of both parts of a budget.
const spent = -1<<63 | 1<<31

func (w *rewriter) codeSection() []byte {
	size := 0
	for _, body := range w.m.Bodies {
		size += len(body.Code)
	}
	bodies := make([]byte, 0, size+size/4)
	bodies = binary.AppendU32(bodies, uint32(len(w.m.Bodies)+len(w.helpers)))
	w.oldEnd = len(binary.AppendU32(nil, uint32(len(w.m.Bodies))))
	add := func(b []byte) (at, size int) {
		at = len(bodies)
		bodies = binary.AppendU32(bodies, uint32(len(b)))
		size = len(bodies) - at
		bodies = append(bodies, b...)
		return at, size
	}
	f := &function{w: w}
	for i, body := range w.m.Bodies {
		at, size := add(f.rewrite(i, body))
		w.moved(body, f, at, size)
	}
	if w.opts.Moves {
		w.moves.add(w.oldEnd, len(bodies))
	}
	for _, h := range w.helpers {
		add(h.body)
	}
	return bodies
}

// noLocal means that a function has no local for some purpose.
const noLocal = ^uint32(0)

// A function holds the state while one function is rewritten. Its buffers are reused for
// the next function.
//
// A function without loops takes its charge from the budget's global once. A function with
// loops holds the budget in a local, because a global is memory: it loads the budget at its
// entry, stores it around calls and stores it at its exit. It does not use the local if its
// loops contain more calls that change the budget than there are loops: the stores would
// cost more than the local saves.
type function struct {
	w      *rewriter
	body   binary.Body
	code   []byte // the new instructions
	out    []byte // the new function: locals and code
	params int
	added  []byte // types of the added locals, which follow the function's own

	budget  uint32 // local that holds the budget; noLocal: the budget stays in its global
	scratch uint32 // local for a budget that is checked; noLocal until needed
	answer  uint32 // local for calls of a batch's functions; noLocal until needed
	frame   int64  // bytes of stack taken while it runs; 0: it cannot be part of a recursion
	marks   marker
	wraps   bool  // its code is in a block with the function's own label; behind the block the frame is returned
	moves   Moves // of its instructions, as offsets in its old and new code
	open    int   // number of open blocks around the next instruction, without the function and the wrapping block
}

// local adds a local and returns its index.
func (f *function) local(typ byte) uint32 {
	f.added = append(f.added, typ)
	return uint32(f.params + f.body.LocalCount + len(f.added) - 1)
}

// rewrite returns the new body of the defined function i. The result is valid until the
// next call.
func (f *function) rewrite(i int, body binary.Body) []byte {
	w, s := f.w, f.w.shapes[i]
	t := w.m.Types[w.m.Funcs[i]]
	f.body, f.params, f.added, f.code, f.open = body, len(t.Params), f.added[:0], f.code[:0], 0
	f.moves = f.moves[:0]
	points, loopEnds, handed := w.points(body)
	if s.leaf {
		points = points[:0]
	}
	f.frame = 0
	if w.nests[i] {
		f.frame = frameBytes + 8*int64(f.params+body.LocalCount)
	}
	f.budget, f.scratch, f.answer = noLocal, noLocal, noLocal
	if s.loops && handed <= len(loopEnds) && len(points) > 0 {
		f.budget = f.local(binary.I64)
	}
	f.marks.begin(f, loopEnds, handed == 0)
	f.wraps = f.frame > 0 || f.budget != noLocal || f.marks.local != noLocal
	if len(points) > 0 {
		f.enter(points[0].cost)
		points = points[1:]
	}
	if f.wraps {
		f.code = append(f.code, opBlock)
		f.code = w.appendBlockType(f.code, t.Results)
	}
	f.instructions(points)
	if f.wraps {
		f.leave()
		f.code = append(f.code, opEnd)
	}
	f.out = f.locals(f.out[:0])
	f.out = append(f.out, f.code...)
	return f.out
}

// locals writes the function's local declarations and the added ones.
func (f *function) locals(out []byte) []byte {
	n, groups := binary.SplitCount(f.body.RawLocals)
	out = binary.AppendU32(out, n+uint32(len(f.added)))
	out = append(out, groups...)
	for _, t := range f.added {
		out = append(out, 1, t)
	}
	return out
}

// enter takes a function's charge and frame from the budget and checks both.
func (f *function) enter(cost int64) {
	price := f.frame<<stackShift + cost
	f.code = appendIndexed(f.code, opGlobalGet, f.w.budget)
	f.code = append(f.code, opI64Const)
	f.code = binary.AppendS64(f.code, price)
	f.code = append(f.code, opI64Sub)
	f.setBudgetAndCheck(f.frame > 0, 0)
}

// setBudgetAndCheck pops and stores the budget. When the fuel is used up it calls tick for
// the next slice. With stack set it also calls tick when the stack is used up, and the host
// then stops the guest.
//
// The common path is the first branch of the if, because the engine's compiler assigns
// registers for the code after the if by its first branch, and a branch with a call keeps
// no locals in registers. With the call in the first branch every iteration of a loop would
// load its locals from memory. At the head of a loop (again > 0) the second branch never
// joins the first: it refunds the charge, which is again, and starts the iteration again.
func (f *function) setBudgetAndCheck(stack bool, again int64) {
	get := f.budget
	if get == noLocal { // the value is still on the stack, so the global need not be read
		if f.scratch == noLocal {
			f.scratch = f.local(binary.I64)
		}
		get = f.scratch
		f.code = appendIndexed(f.code, opLocalTee, get)
	}
	f.setBudget()
	f.code = appendIndexed(f.code, opLocalGet, get)
	if stack {
		f.code = append(f.code, opI64Const)
		f.code = binary.AppendS64(f.code, spent)
		f.code = append(f.code, opI64And, opI64Eqz)
	} else {
		f.code = append(f.code, opI32Wrap, opI32Const, 0, opI32GeS)
	}
	f.code = append(f.code, opIf, blockTypeVoid, opElse)
	f.code = appendIndexed(f.code, opLocalGet, get)
	f.code = appendIndexed(f.code, opCall, f.w.tickFn)
	if again > 0 {
		f.code = append(f.code, opI64Const)
		f.code = binary.AppendS64(f.code, again)
		f.code = append(f.code, opI64Add)
	}
	f.setBudget()
	if again > 0 {
		f.code = append(f.code, opBr, 1)
	}
	f.code = append(f.code, opEnd)
}

// getBudget pushes the budget; setBudget pops it.
func (f *function) getBudget() {
	if f.budget != noLocal {
		f.code = appendIndexed(f.code, opLocalGet, f.budget)
	} else {
		f.code = appendIndexed(f.code, opGlobalGet, f.w.budget)
	}
}

func (f *function) setBudget() {
	if f.budget != noLocal {
		f.code = appendIndexed(f.code, opLocalSet, f.budget)
	} else {
		f.code = appendIndexed(f.code, opGlobalSet, f.w.budget)
	}
}

// charge takes the cost of a point and, if the point has a check, checks the fuel.
func (f *function) charge(p point) {
	f.getBudget()
	f.code = append(f.code, opI64Const)
	f.code = binary.AppendS64(f.code, p.cost)
	f.code = append(f.code, opI64Sub)
	switch {
	case p.again:
		f.setBudgetAndCheck(false, p.cost)
	case p.check:
		f.setBudgetAndCheck(false, 0)
	default:
		f.setBudget()
	}
}

// handOver stores a budget that is in a local into the global for a callee. takeBack loads
// the budget that the callee left.
func (f *function) handOver() {
	if f.budget != noLocal {
		f.code = appendIndexed(f.code, opLocalGet, f.budget)
		f.code = appendIndexed(f.code, opGlobalSet, f.w.budget)
	}
}

func (f *function) takeBack() {
	if f.budget != noLocal {
		f.code = appendIndexed(f.code, opGlobalGet, f.w.budget)
		f.code = appendIndexed(f.code, opLocalSet, f.budget)
	}
}

// leave returns the frame and stores the locals of budget and dirty bits into their
// globals.
func (f *function) leave() {
	f.marks.flush()
	if f.frame == 0 {
		f.handOver()
		return
	}
	f.getBudget()
	f.code = append(f.code, opI64Const)
	f.code = binary.AppendS64(f.code, f.frame<<stackShift)
	f.code = append(f.code, opI64Add)
	f.code = appendIndexed(f.code, opGlobalSet, f.w.budget)
}

// instructions copies the body with charges, dirty bits and shifted indices.
func (f *function) instructions(points []point) {
	w, code := f.w, f.body.Code
	copied := 0 // code[:copied] is copied or replaced
	flush := func(upTo int) {
		f.code = append(f.code, code[copied:upTo]...)
		copied = upTo
	}
	for in := range f.body.Instructions {
		if w.opts.Moves {
			f.moves.add(in.Start, len(f.code)+in.Start-copied)
		}
		switch in.Op {
		case binary.OpBlock, binary.OpLoop, binary.OpIf:
			f.open++
		case binary.OpEnd:
			f.open--
		case binary.OpCall:
			flush(in.Start)
			takes := w.takes(in.Index)
			if takes || in.Index < w.tick { // the host may read the remaining budget
				f.handOver()
			}
			if in.Index < w.tick {
				f.callImport(in.Index)
			} else {
				f.code = appendIndexed(f.code, opCall, w.shift(in.Index))
			}
			if takes {
				f.takeBack()
			}
			copied = in.End
		case binary.OpCallIndirect:
			flush(in.Start)
			f.handOver()
			flush(in.End)
			f.takeBack()
		case binary.OpReturnCall:
			flush(in.Start)
			f.leave()
			f.code = appendIndexed(f.code, byte(binary.OpReturnCall), w.shift(in.Index))
			copied = in.End
		case binary.OpReturnCallIndirect:
			flush(in.Start)
			f.leave()
		case binary.OpReturn:
			if f.wraps {
				flush(in.Start)
				f.code = appendIndexed(f.code, opBr, uint32(f.open))
				copied = in.End
			}
		case binary.OpRefFunc:
			flush(in.Start)
			f.code = appendIndexed(f.code, byte(binary.OpRefFunc), w.shift(in.Index))
			copied = in.End
		case binary.OpMemoryFill:
			flush(in.Start)
			f.callHelper(w.fillFn)
			copied = in.End
		case binary.OpMemoryCopy:
			flush(in.Start)
			f.callHelper(w.copyFn)
			copied = in.End
		}
		if f.marks.on {
			if f.marks.needs(in) {
				flush(in.Start)
				f.marks.mark(in)
				copied = in.End
			}
			f.marks.follow(in)
		}
		for len(points) > 0 && points[0].at == in.End {
			flush(in.End)
			f.charge(points[0])
			points = points[1:]
		}
	}
	flush(len(code))
}

func (f *function) callHelper(index uint32) {
	f.handOver()
	f.code = appendIndexed(f.code, opCall, index)
	f.takeBack()
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

func appendIndexed(out []byte, op byte, index uint32) []byte {
	return binary.AppendU32(append(out, op), index)
}
