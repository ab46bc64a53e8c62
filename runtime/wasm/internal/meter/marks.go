package meter

import (
	"math/bits"
	"slices"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// Marks describes the dirty bits, which record the parts of the memory that a call may have
// changed. The memory is divided into chunks. Bit k%64 covers chunk k and the first Slack
// bytes of the chunk behind it, so that one bit suffices for all fields of a struct and for
// a store across a boundary.
type Marks struct {
	Shift uint   // a chunk has 1<<Shift bytes
	Slack int    // invariant: maxStore <= Slack < 1<<Shift
	Start uint64 // dirty bits of the chunks that the data segments fill before any code runs
	// Lines holds the numbers of the lines, pieces of LineBytes, that stores to constant
	// addresses may change: mostly static variables. Line Lines[i] has bit i of a second
	// set of dirty bits. Invariant: there are at most 64 lines, and all lie inside the
	// largest possible memory.
	Lines []uint32
}

const (
	minShift = 9   // bytes, so that a sixteenth of a chunk is larger than any store
	maxSlack = 512 // bytes

	lineShift = 6
	// LineBytes is the number of bytes of a line.
	LineBytes = 1 << lineShift
	maxLines  = 64
)

// marksFor chooses the size of a chunk so that 64 chunks cover the initial memory. In a
// memory that has grown one bit covers several chunks, which is correct but coarser.
func marksFor(module *binary.Module) *Marks {
	m := &Marks{Shift: minShift}
	for int64(64)<<m.Shift < int64(module.Memory.Min)*binary.PageSize {
		m.Shift++
	}
	m.Slack = min(1<<m.Shift/16, maxSlack)
	for _, d := range module.Data {
		if d.Offset == nil || len(d.Bytes) == 0 {
			continue
		}
		at, ok := d.At()
		if !ok {
			m.Start = ^uint64(0)
			break
		}
		m.Start |= m.bits(uint64(at), uint64(len(d.Bytes)))
	}
	return m
}

// bits returns the dirty bits of the chunks in a range of at least one byte.
func (m *Marks) bits(at, n uint64) uint64 {
	first, last := at>>m.Shift, (at+n-1)>>m.Shift
	if last-first >= 63 {
		return ^uint64(0)
	}
	return bits.RotateLeft64(1<<(last-first+1)-1, int(first&63))
}

// Chunks returns the dirty bits of all chunks that the given lines lie in.
func (m *Marks) Chunks(lines uint64) (set uint64) {
	for ; lines != 0; lines &= lines - 1 {
		set |= m.bits(uint64(m.Lines[bits.TrailingZeros64(lines)])<<lineShift, LineBytes)
	}
	return set
}

// lines returns the dirty bits of the lines that contain size bytes at a constant address.
// ok is false when the bytes need another line and all 64 are used, and when the address
// lies outside the largest possible memory.
func (w *rewriter) lines(address, offset, size uint32) (set uint64, ok bool) {
	at := uint64(address) + uint64(offset)
	last := at + uint64(size) - 1
	if last >= uint64(max(w.opts.MemoryPages, w.m.Memory.Min))*binary.PageSize {
		return 0, false
	}
	for line := uint32(at >> lineShift); uint64(line)<<lineShift <= last; line++ {
		bit, known := w.lineBits[line]
		if !known {
			if len(w.marks.Lines) == maxLines {
				return 0, false
			}
			bit = uint64(1) << len(w.marks.Lines)
			w.marks.Lines = append(w.marks.Lines, line)
			w.lineBits[line] = bit
		}
		set |= bit
	}
	return set, true
}

// A Write describes what an imported function may write to the guest's memory. Ptr and Len
// are indices of parameters. The function writes to the address in parameter Ptr: as many
// items of Size bytes as parameter Len says, or one item when Len is negative.
type Write struct {
	Ptr, Len int
	Size     uint32
}

// A marker adds code to one function that sets dirty bits. It tracks the origin of
// addresses, so that several stores through one pointer set the bit once.
//
// A dirty bit may be missing when the function does not return, because an instance whose
// call did not return is not used again.
type marker struct {
	f     *function
	on    bool
	local uint32 // holds the dirty bits of chunks; noLocal: the code sets them in the global
	lines uint32 // holds the dirty bits of lines; noLocal: the code sets them in the global

	address uint32          // local for an address; noLocal until needed
	values  map[byte]uint32 // by type: local for the value of a store
	ranges  []uint32        // three locals for the operands of memory.init

	stack   []origin // of the topmost operands; the origins of operands below them are unknown
	known   []marked // bits of chunks that every path to here has set
	consts  constants
	blocks  []region
	loopEnd []int            // ends of the loops that are not open yet, in order
	sets    map[uint32][]int // for each local the offsets at which it is assigned, rising
}

// constants holds the dirty bits for constant addresses that every path to here has set.
type constants struct{ chunks, lines uint64 }

// origin is the origin of an operand: a constant, or the value of a local plus a constant.
type origin struct {
	kind  byte // 0: unknown
	value uint32
	plus  int64
}

const (
	fromLocal = 1
	fromWide  = 2 // the lower half of a 64-bit local
	fromConst = 3
)

// local reports whether the operand comes from a local.
func (o origin) local() bool { return o.kind == fromLocal || o.kind == fromWide }

// marked means that the dirty bit is set for the chunk at a local's value plus from. A
// store there has succeeded, so the sum does not overflow and is an address in the memory.
type marked struct {
	local uint32
	from  int64
}

// maxKnown bounds the work for each block.
const maxKnown = 8

// addsUp reports whether the largest possible memory is smaller than 4 GiB. Then addresses
// near its end plus a small offset do not wrap around to 0, and a local plus a constant can
// be tracked like a local.
func (w *rewriter) addsUp() bool { return max(w.opts.MemoryPages, w.m.Memory.Min) < 1<<16 }

// region is an open block with the state at its start.
type region struct {
	op     binary.Op
	start  int
	known  []marked
	consts constants
}

func (m *marker) begin(f *function, loopEnds []int, calm bool) {
	*m = marker{f: f, local: noLocal, lines: noLocal, address: noLocal, stack: m.stack[:0], known: m.known[:0], blocks: m.blocks[:0]}
	if f.w.marks == nil {
		return
	}
	stores, loops, tables := 0, 0, 0
	for in := range f.body.Instructions {
		switch size, _ := storeOf(in.Op); {
		case in.Op == binary.OpLoop:
			loops++
		case in.Op == binary.OpBrTable:
			tables++
		case size > 0:
			stores++
		case in.Op == binary.OpMemoryInit, in.Op == binary.OpCall && f.w.hostWrites(in.Index):
			m.on = true
		}
	}
	if stores == 0 {
		return
	}
	m.on, m.loopEnd, m.sets = true, loopEnds, make(map[uint32][]int)
	for in := range f.body.Instructions {
		if in.Op == binary.OpLocalSet || in.Op == binary.OpLocalTee {
			m.sets[in.Index] = append(m.sets[in.Index], in.End)
		}
	}
	if calm && tables == 0 && (loops > 0 || stores > 1) {
		m.local = f.local(binary.I64)
		if loops > 0 && m.repeatsLines() {
			m.lines = f.local(binary.I64)
		}
	}
}

// repeatsLines reports whether a loop stores to a constant address. It follows the whole
// function and then restores the state, because the rewriting follows the function again.
func (m *marker) repeatsLines() (found bool) {
	before := *m
	inLoops := 0
	for in := range m.f.body.Instructions {
		switch size, _ := storeOf(in.Op); {
		case in.Op == binary.OpLoop:
			inLoops++
		case in.Op == binary.OpEnd && len(m.blocks) > 0 && m.blocks[len(m.blocks)-1].op == binary.OpLoop:
			inLoops--
		case size > 0 && inLoops > 0 && m.operand(1).kind == fromConst:
			found = true
		}
		m.follow(in)
	}
	before.stack, before.known, before.blocks = m.stack[:0], m.known[:0], m.blocks[:0] // the buffers may have grown
	*m = before
	return found
}

// storeOf returns the size in bytes and the value type of a store; size is 0 for other
// instructions.
func storeOf(op binary.Op) (size uint32, typ byte) {
	switch op {
	case binary.OpI32Store:
		return 4, binary.I32
	case binary.OpI64Store:
		return 8, binary.I64
	case binary.OpF32Store:
		return 4, binary.F32
	case binary.OpF64Store:
		return 8, binary.F64
	case binary.OpI32Store8:
		return 1, binary.I32
	case binary.OpI32Store16:
		return 2, binary.I32
	case binary.OpI64Store8:
		return 1, binary.I64
	case binary.OpI64Store16:
		return 2, binary.I64
	case binary.OpI64Store32:
		return 4, binary.I64
	case binary.OpV128Store:
		return 16, binary.V128
	case binary.OpV128Store8Lane:
		return 1, binary.V128
	case binary.OpV128Store16Lane:
		return 2, binary.V128
	case binary.OpV128Store32Lane:
		return 4, binary.V128
	case binary.OpV128Store64Lane:
		return 8, binary.V128
	}
	return 0, 0
}

// needs reports whether an instruction must be rewritten to set dirty bits.
func (m *marker) needs(in binary.Instr) bool {
	if in.Op == binary.OpMemoryInit {
		return true
	}
	size, _ := storeOf(in.Op)
	if size == 0 {
		return false
	}
	switch at := m.operand(1); at.kind {
	case fromConst:
		if lines, ok := m.f.w.lines(at.value, in.Offset, size); ok {
			return lines&^m.consts.lines != 0
		}
		return m.constBits(at.value, in.Offset, size)&^m.consts.chunks != 0
	case fromLocal, fromWide:
		return !m.covered(at.value, at.plus+int64(in.Offset), size)
	}
	return true
}

// operand returns the origin of the operand at a depth below the top of the stack.
func (m *marker) operand(below int) origin {
	if i := len(m.stack) - 1 - below; i >= 0 {
		return m.stack[i]
	}
	return origin{}
}

// covered reports whether a known dirty bit for the local covers the stored bytes.
func (m *marker) covered(local uint32, offset int64, size uint32) bool {
	for _, k := range m.known {
		if k.local == local && offset >= k.from && offset+int64(size) <= k.from+int64(m.f.w.marks.Slack) {
			return true
		}
	}
	return false
}

// constBits returns the dirty bits of the chunks of a store to a constant address. A store
// out of bounds traps, so its bits do not matter.
func (m *marker) constBits(address, offset, size uint32) uint64 {
	return m.f.w.marks.bits(uint64(address)+uint64(offset), uint64(size))
}

// mark appends a store and then the code that sets its dirty bits.
func (m *marker) mark(in binary.Instr) {
	f := m.f
	if in.Op == binary.OpMemoryInit {
		m.markInit(in)
		return
	}
	size, typ := storeOf(in.Op)
	store := f.body.Code[in.Start:in.End]
	switch at := m.operand(1); at.kind {
	case fromConst:
		f.code = append(f.code, store...)
		if lines, ok := f.w.lines(at.value, in.Offset, size); ok {
			m.markLines(m.linesAhead(in, lines))
		} else {
			m.markConst(m.constBits(at.value, in.Offset, size))
		}
	case fromLocal, fromWide:
		from := m.from(at.plus, in.Offset, size)
		f.code = append(f.code, store...)
		m.markChunk(at, from)
		m.learn(marked{at.value, from})
	default:
		value := m.value(typ)
		f.code = appendIndexed(f.code, opLocalSet, value)
		f.code = appendIndexed(f.code, opLocalTee, m.addressLocal())
		f.code = appendIndexed(f.code, opLocalGet, value)
		f.code = append(f.code, store...)
		m.markChunk(origin{kind: fromLocal, value: m.address}, m.from(0, in.Offset, size))
	}
}

// from returns the constant that is added to a pointer to find the chunk of a store. It
// leaves out the offset of the store where Slack covers it, so that stores with different
// offsets share a bit.
func (m *marker) from(plus int64, offset, size uint32) int64 {
	if uint64(offset)+uint64(size) > uint64(m.f.w.marks.Slack) {
		plus += int64(offset)
	}
	return plus
}

func (m *marker) addressLocal() uint32 {
	if m.address == noLocal {
		m.address = m.f.local(binary.I32)
	}
	return m.address
}

func (m *marker) value(typ byte) uint32 {
	if m.values == nil {
		m.values = make(map[byte]uint32, 2)
	}
	local, ok := m.values[typ]
	if !ok {
		local = m.f.local(typ)
		m.values[typ] = local
	}
	return local
}

// get pushes the dirty bits of chunks; set pops them.
func (m *marker) get() {
	if m.local != noLocal {
		m.f.code = appendIndexed(m.f.code, opLocalGet, m.local)
	} else {
		m.f.code = appendIndexed(m.f.code, opGlobalGet, m.f.w.marksGlobal)
	}
}

func (m *marker) set() {
	if m.local != noLocal {
		m.f.code = appendIndexed(m.f.code, opLocalSet, m.local)
	} else {
		m.f.code = appendIndexed(m.f.code, opGlobalSet, m.f.w.marksGlobal)
	}
}

// markConst sets dirty bits of chunks that are known at rewriting.
func (m *marker) markConst(set uint64) {
	m.get()
	m.f.code = append(m.f.code, opI64Const)
	m.f.code = binary.AppendS64(m.f.code, int64(set))
	m.f.code = append(m.f.code, opI64Or)
	m.set()
	m.consts.chunks |= set
}

// mostWritten is the largest number of bytes that a host function may write at a constant
// address in one call and still be tracked by lines. Above it a reset by chunks is cheaper.
const mostWritten = 8 * LineBytes

// hostWrites reports whether a function is imported and has known writes to memory.
func (w *rewriter) hostWrites(index uint32) bool {
	if w.marks == nil || index >= w.tick {
		return false
	}
	writes, ok := w.writes(w.functions[index])
	return ok && len(writes) > 0
}

// hostLines returns the dirty bits of all lines that the current call of an imported
// function may write to. ok is false when the operands do not determine the lines.
func (m *marker) hostLines(index uint32) (set uint64, ok bool) {
	w := m.f.w
	if !m.on || !w.hostWrites(index) {
		return 0, false
	}
	writes, _ := w.writes(w.functions[index])
	params := len(w.typeOf(index).Params)
	for _, write := range writes {
		if write.Ptr >= params || write.Len >= params {
			return 0, false
		}
		ptr, size := m.operand(params-1-write.Ptr), uint64(write.Size)
		if write.Len >= 0 {
			n := m.operand(params - 1 - write.Len)
			if n.kind != fromConst {
				return 0, false
			}
			size *= uint64(n.value)
		}
		if ptr.kind != fromConst || size > mostWritten {
			return 0, false
		}
		if size > 0 {
			lines, ok := w.lines(ptr.value, 0, uint32(size))
			if !ok {
				return 0, false
			}
			set |= lines
		}
	}
	return set, true
}

// linesAhead adds the lines of later stores to constant addresses that certainly follow
// this store, up to the next control instruction, so that one operation sets all their
// bits. The caller records the bits as known, so no part of a function is read ahead twice.
func (m *marker) linesAhead(in binary.Instr, set uint64) uint64 {
	ahead := marker{f: m.f, stack: slices.Clone(m.stack)}
	ahead.follow(in)
	for in := range (binary.Body{Code: m.f.body.Code[in.End:]}).Instructions {
		switch size, _ := storeOf(in.Op); {
		case in.Op <= binary.OpReturn, in.Op == binary.OpReturnCall, in.Op == binary.OpReturnCallIndirect:
			return set
		case size > 0 && ahead.operand(1).kind == fromConst:
			lines, _ := m.f.w.lines(ahead.operand(1).value, in.Offset, size)
			set |= lines
		}
		ahead.follow(in)
	}
	return set
}

// markLines sets dirty bits of lines.
func (m *marker) markLines(set uint64) {
	get, put, index := byte(opLocalGet), byte(opLocalSet), m.lines
	if m.lines == noLocal {
		get, put, index = opGlobalGet, opGlobalSet, m.f.w.linesGlobal
	}
	m.f.code = appendIndexed(m.f.code, get, index)
	m.f.code = append(m.f.code, opI64Const)
	m.f.code = binary.AppendS64(m.f.code, int64(set))
	m.f.code = append(m.f.code, opI64Or)
	m.f.code = appendIndexed(m.f.code, put, index)
	m.consts.lines |= set
}

// markChunk sets the dirty bit of the chunk at a local's value plus from. A shift by a
// 64-bit amount uses its low six bits, which are the number of the bit.
func (m *marker) markChunk(at origin, from int64) {
	m.get()
	m.f.code = append(m.f.code, opI64Const, 1)
	m.pushChunk(at, from)
	m.f.code = append(m.f.code, opI64ExtendU, opI64Shl, opI64Or)
	m.set()
}

// pushChunk pushes the number of the chunk at a local's value plus from.
func (m *marker) pushChunk(at origin, from int64) {
	f := m.f
	f.code = appendIndexed(f.code, opLocalGet, at.value)
	if at.kind == fromWide {
		f.code = append(f.code, opI32Wrap)
	}
	if from != 0 {
		f.code = append(f.code, opI32Const)
		f.code = binary.AppendS64(f.code, int64(int32(from)))
		f.code = append(f.code, opI32Add)
	}
	f.code = append(f.code, opI32Const)
	f.code = binary.AppendS64(f.code, int64(f.w.marks.Shift))
	f.code = append(f.code, opI32ShrU)
}

// markInit sets the dirty bits for memory.init, whose operands are destination, source and
// length.
func (m *marker) markInit(in binary.Instr) {
	f := m.f
	if m.ranges == nil {
		m.ranges = []uint32{f.local(binary.I32), f.local(binary.I32), f.local(binary.I32)}
	}
	for i := 2; i >= 0; i-- {
		f.code = appendIndexed(f.code, opLocalSet, m.ranges[i])
	}
	f.code = appendIndexed(f.code, opLocalGet, m.ranges[0])
	f.code = appendIndexed(f.code, opLocalGet, m.ranges[2])
	f.code = appendIndexed(f.code, opCall, f.w.markRange)
	for _, local := range m.ranges {
		f.code = appendIndexed(f.code, opLocalGet, local)
	}
	f.code = append(f.code, f.body.Code[in.Start:in.End]...)
}

// flush adds the function's dirty bits to the globals.
func (m *marker) flush() {
	m.flushTo(m.f.w.marksGlobal, m.local)
	m.flushTo(m.f.w.linesGlobal, m.lines)
}

func (m *marker) flushTo(global, local uint32) {
	if local == noLocal {
		return
	}
	f := m.f
	f.code = appendIndexed(f.code, opGlobalGet, global)
	f.code = appendIndexed(f.code, opLocalGet, local)
	f.code = append(f.code, opI64Or)
	f.code = appendIndexed(f.code, opGlobalSet, global)
}

func (m *marker) learn(k marked) {
	if len(m.known) == maxKnown {
		m.known = append(m.known[:0], m.known[1:]...)
	}
	m.known = append(m.known, k)
}

// follow updates the known state to the state behind an instruction.
func (m *marker) follow(in binary.Instr) {
	switch in.Op {
	case binary.OpBlock, binary.OpLoop, binary.OpIf:
		r := region{in.Op, in.End, slices.Clone(m.known), m.consts}
		if in.Op == binary.OpLoop && m.sets != nil {
			m.known = m.unassigned(m.known, in.End, m.loopEnd[0])
			m.loopEnd = m.loopEnd[1:]
		}
		m.blocks = append(m.blocks, r)
		m.stack = m.stack[:0]
	case binary.OpElse:
		r := &m.blocks[len(m.blocks)-1]
		m.known, m.consts = append(m.known[:0], r.known...), r.consts
		m.stack = m.stack[:0]
	case binary.OpEnd:
		m.stack = m.stack[:0]
		if len(m.blocks) == 0 {
			return // the end of the function
		}
		r := m.blocks[len(m.blocks)-1]
		m.blocks = m.blocks[:len(m.blocks)-1]
		if r.op != binary.OpLoop { // the end of a loop is only reached by falling through, so its state stays valid
			m.known, m.consts = m.unassigned(append(m.known[:0], r.known...), r.start, in.End), r.consts
		}
	case binary.OpLocalGet:
		m.stack = append(m.stack, origin{kind: fromLocal, value: in.Index})
	case binary.OpLocalSet, binary.OpLocalTee:
		m.pop(1)
		m.forget(in.Index)
		if in.Op == binary.OpLocalTee {
			m.stack = append(m.stack, origin{kind: fromLocal, value: in.Index})
		}
	case binary.OpI32Const:
		m.stack = append(m.stack, origin{kind: fromConst, value: in.Offset})
	case opI32Add:
		sum := m.sum(m.operand(0), m.operand(1))
		m.pop(2)
		m.stack = append(m.stack, sum)
	case opI32Wrap:
		at := origin{}
		if o := m.operand(0); o.kind == fromLocal {
			at = origin{kind: fromWide, value: o.value}
		}
		m.pop(1)
		m.stack = append(m.stack, at)
	case binary.OpCall:
		t := m.f.w.typeOf(in.Index)
		m.pop(len(t.Params))
		m.push(len(t.Results))
	default:
		pops, pushes, ok := arity(in.Op)
		if !ok {
			m.stack = m.stack[:0]
			return
		}
		m.pop(pops)
		m.push(pushes)
	}
}

func (m *marker) pop(n int) { m.stack = m.stack[:max(0, len(m.stack)-n)] }

func (m *marker) push(n int) {
	for range n {
		m.stack = append(m.stack, origin{})
	}
}

// forget drops the state of a local that is assigned. Operands that were read from the
// local before hold its old value, so their origins become unknown.
func (m *marker) forget(local uint32) {
	m.known = slices.DeleteFunc(m.known, func(k marked) bool { return k.local == local })
	for i, o := range m.stack {
		if o.local() && o.value == local {
			m.stack[i] = origin{}
		}
	}
}

// sum returns the origin of the sum of two operands.
func (m *marker) sum(a, b origin) origin {
	if a.kind == fromConst {
		a, b = b, a
	}
	if !a.local() || b.kind != fromConst || !m.f.w.addsUp() {
		return origin{}
	}
	a.plus = int64(int32(a.plus + int64(b.value)))
	return a
}

// unassigned returns the known bits of locals that are not assigned from start to end.
func (m *marker) unassigned(known []marked, start, end int) []marked {
	return slices.DeleteFunc(known, func(k marked) bool {
		sets := m.sets[k.local]
		i, _ := slices.BinarySearch(sets, start)
		return i < len(sets) && sets[i] <= end
	})
}

// arity returns how many operands an instruction pops and pushes. ok is false for
// instructions after which the origins of all operands are dropped. That is always correct,
// because depths count from the top of the stack.
func arity(op binary.Op) (pops, pushes int, ok bool) {
	switch {
	case op == 0x01: // nop
		return 0, 0, true
	case op == binary.OpBrIf, op == binary.OpDrop, op == binary.OpGlobalSet:
		return 1, 0, true
	case op == binary.OpSelect, op == binary.OpSelectType:
		return 3, 1, true
	case op == binary.OpGlobalGet, op == 0x3f, op >= 0x42 && op <= 0x44: // memory.size, constants
		return 0, 1, true
	case op >= 0x28 && op <= 0x35, op == binary.OpMemoryGrow: // loads
		return 1, 1, true
	case op >= binary.OpI32Store && op <= binary.OpI64Store32:
		return 2, 0, true
	case op == 0x45, op == 0x50, op >= 0x67 && op <= 0x69, op >= 0x79 && op <= 0x7b,
		op >= 0x8b && op <= 0x91, op >= 0x99 && op <= 0x9f, op >= 0xa7 && op <= 0xc4, op >= 0xfc0000 && op <= 0xfc0007:
		return 1, 1, true // tests, counts, roundings, conversions
	case op >= 0x46 && op <= 0x66, op >= 0x6a && op <= 0x78, op >= 0x7c && op <= 0x8a,
		op >= 0x92 && op <= 0x98, op >= 0xa0 && op <= 0xa6:
		return 2, 1, true // comparisons, arithmetic
	}
	return 0, 0, false
}
