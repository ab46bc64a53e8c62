package meter

import (
	"math/bits"
	"slices"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// Marks say which parts of the memory a call may have changed. The memory is
// seen as chunks; bit k%64 of the marks stands for chunk k and the first Slack
// bytes of the one behind it, so that one mark serves for the fields of a
// struct and for a store across a boundary.
type Marks struct {
	Shift uint   // a chunk has 1<<Shift bytes
	Slack int    // invariant: maxStore <= Slack < 1<<Shift
	Start uint64 // marks of what the data segments fill before any code runs
	// Lines are what stores to constant addresses may change, as numbers of pieces of
	// LineBytes: static variables, mostly. Each has a bit of its own, of another number.
	// Invariant: they are at most 64, and inside the largest memory that there may be.
	Lines []uint32
}

const (
	minShift = 9   // 512 bytes, so that a sixteenth of a chunk is more than any store
	maxSlack = 512 // bytes

	lineShift = 6
	// LineBytes is how much of the memory a bit of the lines stands for.
	LineBytes = 1 << lineShift
	maxLines  = 64
)

// marksFor lets 64 chunks cover a memory as it is at the start. One that grew
// has several chunks to a bit, which is as right, only coarser.
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

// bits are the marks of a range of at least one byte.
func (m *Marks) bits(at, n uint64) uint64 {
	first, last := at>>m.Shift, (at+n-1)>>m.Shift
	if last-first >= 63 {
		return ^uint64(0)
	}
	return bits.RotateLeft64(1<<(last-first+1)-1, int(first&63))
}

// Chunks are the marks that say at least as much as those of lines.
func (m *Marks) Chunks(lines uint64) (set uint64) {
	for ; lines != 0; lines &= lines - 1 {
		set |= m.bits(uint64(m.Lines[bits.TrailingZeros64(lines)])<<lineShift, LineBytes)
	}
	return set
}

// lines are the marks of the lines that so many bytes at a constant address are in. There are
// none, and it is not ok, when too many others have one, and where there is never any memory.
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

// A Write says what an imported function may write to the guest's memory: Len
// bytes at Ptr, both of them numbers of parameters, or Size bytes when Len is
// negative; Len counts items of Size bytes.
type Write struct {
	Ptr, Len int
	Size     uint32
}

// A marker adds marks to one function. It follows where addresses come from, so
// that stores behind one pointer are marked once.
//
// A mark may be missing when the function does not return: an instance whose
// call did not return is not used again.
type marker struct {
	f     *function
	on    bool
	local uint32 // holds the function's marks; noLocal: each goes to the global
	lines uint32 // holds those of its lines; noLocal: they do

	address uint32          // local for an address; noLocal until needed
	values  map[byte]uint32 // by type: local for what is stored
	ranges  []uint32        // three locals for the operands of memory.init

	stack   []origin // of the operands on top; what is below is unknown
	known   []marked // marks that every path to here has set
	consts  constants
	blocks  []region
	loopEnd []int            // of the loops still to come, in order
	sets    map[uint32][]int // where each local is assigned, rising
}

// constants are the marks for constant addresses that every path to here has set.
type constants struct{ chunks, lines uint64 }

// origin is where an operand comes from: it is a constant, or the value of a local
// plus another.
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

// local says whether the operand comes from a local.
func (o origin) local() bool { return o.kind == fromLocal || o.kind == fromWide }

// marked says that the chunk of a local's value plus from is marked. A store there
// has succeeded, so that the sum is an address in the memory.
type marked struct {
	local uint32
	from  int64
}

// maxKnown bounds the work for each block.
const maxKnown = 8

// addsUp says whether addresses near the end of the memory and a little beyond do not
// begin again at 0: then a local plus a constant is as good a pointer as a local.
func (w *rewriter) addsUp() bool { return max(w.opts.MemoryPages, w.m.Memory.Min) < 1<<16 }

// region is an open block and what was known where it began.
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

// repeatsLines says whether a loop stores to a constant address. It reads the function
// as it will be read again.
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
	before.stack, before.known, before.blocks = m.stack[:0], m.known[:0], m.blocks[:0] // which may be larger
	*m = before
	return found
}

// storeOf is the size and the value type of a store; size 0 is none.
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

// needs says whether an instruction has to be written in another form.
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

// operand is where the operand so many places below the top comes from.
func (m *marker) operand(below int) origin {
	if i := len(m.stack) - 1 - below; i >= 0 {
		return m.stack[i]
	}
	return origin{}
}

// covered says whether a mark for the local covers the bytes stored.
func (m *marker) covered(local uint32, offset int64, size uint32) bool {
	for _, k := range m.known {
		if k.local == local && offset >= k.from && offset+int64(size) <= k.from+int64(m.f.w.marks.Slack) {
			return true
		}
	}
	return false
}

// constBits are the marks of a store to a constant address; a store out of
// bounds traps, so what its marks are does not matter.
func (m *marker) constBits(address, offset, size uint32) uint64 {
	return m.f.w.marks.bits(uint64(address)+uint64(offset), uint64(size))
}

// mark writes a store with its mark behind it.
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

// from is what is added to a pointer before its chunk is marked: no more than it is
// itself, where the mark reaches that far.
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

// get pushes the marks; set pops them.
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

// markConst sets marks that are known.
func (m *marker) markConst(set uint64) {
	m.get()
	m.f.code = append(m.f.code, opI64Const)
	m.f.code = binary.AppendS64(m.f.code, int64(set))
	m.f.code = append(m.f.code, opI64Or)
	m.set()
	m.consts.chunks |= set
}

// mostWritten is how many bytes the host may write for one call at a constant address
// before chunks are cheaper to set back than lines.
const mostWritten = 8 * LineBytes

// hostWrites says whether a function is an imported one of which it is known that it
// writes to memory, and where.
func (w *rewriter) hostWrites(index uint32) bool {
	if w.marks == nil || index >= w.tick {
		return false
	}
	writes, ok := w.writes(w.functions[index])
	return ok && len(writes) > 0
}

// hostLines are the marks of all lines that the call at hand of an imported function may
// write to, where its operands say it.
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

// linesAhead adds the lines of the stores to constant addresses that come behind one
// whatever happens: they are marked together. What the store marks is known from then on,
// so that no part of a function is read ahead twice.
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

// markLines sets marks of lines.
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

// markChunk marks the chunk of a local's value plus from. A shift by a 64-bit amount
// takes its low six bits, which is the number of the bit.
func (m *marker) markChunk(at origin, from int64) {
	m.get()
	m.f.code = append(m.f.code, opI64Const, 1)
	m.pushChunk(at, from)
	m.f.code = append(m.f.code, opI64ExtendU, opI64Shl, opI64Or)
	m.set()
}

// pushChunk pushes the number of the chunk of a local's value plus from.
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

// markInit marks what memory.init writes: its operands are destination, source
// and length.
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

// flush adds the function's marks to the global ones.
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

// follow brings what is known behind an instruction.
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
			return // of the function
		}
		r := m.blocks[len(m.blocks)-1]
		m.blocks = m.blocks[:len(m.blocks)-1]
		if r.op != binary.OpLoop { // whose end is reached only by falling through
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

// forget drops what is known of a local that is assigned. Operands that were
// read from it before keep its old value.
func (m *marker) forget(local uint32) {
	m.known = slices.DeleteFunc(m.known, func(k marked) bool { return k.local == local })
	for i, o := range m.stack {
		if o.local() && o.value == local {
			m.stack[i] = origin{}
		}
	}
}

// sum is where the sum of two operands comes from.
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

// unassigned keeps the marks of locals that are not assigned from start to end.
func (m *marker) unassigned(known []marked, start, end int) []marked {
	return slices.DeleteFunc(known, func(k marked) bool {
		sets := m.sets[k.local]
		i, _ := slices.BinarySearch(sets, start)
		return i < len(sets) && sets[i] <= end
	})
}

// arity is how many operands an instruction takes and gives. What is not ok is
// one after which nothing is known: forgetting operands is always right,
// because places are counted from the top.
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
