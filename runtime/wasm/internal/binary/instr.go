package binary

// An Op is an opcode. An opcode with a prefix byte is prefix<<16 | sub-opcode.
type Op uint32

// The opcodes that callers distinguish.
const (
	OpUnreachable        Op = 0x00
	OpBlock              Op = 0x02
	OpLoop               Op = 0x03
	OpIf                 Op = 0x04
	OpElse               Op = 0x05
	OpEnd                Op = 0x0b
	OpBr                 Op = 0x0c
	OpBrIf               Op = 0x0d
	OpBrTable            Op = 0x0e
	OpReturn             Op = 0x0f
	OpCall               Op = 0x10
	OpCallIndirect       Op = 0x11
	OpReturnCall         Op = 0x12
	OpReturnCallIndirect Op = 0x13
	OpDrop               Op = 0x1a
	OpSelect             Op = 0x1b
	OpSelectType         Op = 0x1c
	OpLocalGet           Op = 0x20
	OpLocalSet           Op = 0x21
	OpLocalTee           Op = 0x22
	OpGlobalGet          Op = 0x23
	OpGlobalSet          Op = 0x24
	OpTableSet           Op = 0x26
	OpI32Store           Op = 0x36
	OpI64Store           Op = 0x37
	OpF32Store           Op = 0x38
	OpF64Store           Op = 0x39
	OpI32Store8          Op = 0x3a
	OpI32Store16         Op = 0x3b
	OpI64Store8          Op = 0x3c
	OpI64Store16         Op = 0x3d
	OpI64Store32         Op = 0x3e
	OpMemoryGrow         Op = 0x40
	OpI32Const           Op = 0x41
	OpRefFunc            Op = 0xd2
	OpMemoryInit         Op = 0xfc0008
	OpDataDrop           Op = 0xfc0009
	OpMemoryCopy         Op = 0xfc000a
	OpMemoryFill         Op = 0xfc000b
	OpTableInit          Op = 0xfc000c
	OpElemDrop           Op = 0xfc000d
	OpTableCopy          Op = 0xfc000e
	OpTableGrow          Op = 0xfc000f
	OpTableFill          Op = 0xfc0011
	OpV128Store          Op = 0xfd000b
	OpV128Store8Lane     Op = 0xfd0058
	OpV128Store16Lane    Op = 0xfd0059
	OpV128Store32Lane    Op = 0xfd005a
	OpV128Store64Lane    Op = 0xfd005b
)

// An Instr is one decoded instruction.
type Instr struct {
	Op         Op
	Start, End int    // its bytes are code[Start:End]
	Index      uint32 // first index immediate: a function, a local, a segment, a label, the type of a block, …
	TypeIndex  bool   // for a block: Index is a type; false: it has no result or a single one
	Offset     uint32 // of a load or store: the offset added to the address; of i32.const: its value
}

// immediate is the form of the bytes after an opcode.
type immediate uint8

const (
	immInvalid     immediate = iota // unknown, or part of a proposal that is not supported
	immNone                         //
	immBlockType                    // s33
	immIndex                        // u32
	immIndex2                       // two u32
	immIndexMemory                  // u32 and a memory
	immMemory                       // a memory: one zero byte
	immMemory2                      // two of them
	immBrTable                      // vector of u32 and one more
	immSelect                       // vector of value types
	immMemArg                       // align, offset
	immByte                         // one byte
	immI32                          // s32
	immI64                          // s64
	immF32                          // 4 bytes
	immF64                          // 8 bytes
	immV128                         // 16 bytes
	immLane                         // memory argument and a lane
)

// immediates is immediateOf as a table. Decoding dominates the time to load a cached
// module. The table is never written to.
var immediates = func() (t [256]immediate) {
	for op := range t {
		t[op] = immediateOf(byte(op))
	}
	return t
}()

// immediateOf classifies the single-byte opcodes: core 2.0 and tail calls.
func immediateOf(op byte) immediate {
	switch {
	case op >= 0x45 && op <= 0xc4, op >= 0xd1 && op <= 0xd1, op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b:
		return immNone
	case op >= 0x02 && op <= 0x04:
		return immBlockType
	case op == 0x0c, op == 0x0d, op == 0x10, op == 0x12, op >= 0x20 && op <= 0x26, op == 0xd2:
		return immIndex
	case op == 0x11, op == 0x13:
		return immIndex2
	case op == 0x0e:
		return immBrTable
	case op == 0x1c:
		return immSelect
	case op >= 0x28 && op <= 0x3e:
		return immMemArg
	case op == 0x3f, op == 0x40, op == 0xd0:
		return immByte
	case op == 0x41:
		return immI32
	case op == 0x42:
		return immI64
	case op == 0x43:
		return immF32
	case op == 0x44:
		return immF64
	}
	return immInvalid
}

// immediateOfFC classifies the opcodes with the prefix 0xfc: saturating conversions and
// bulk operations.
func immediateOfFC(sub uint32) immediate {
	switch {
	case sub <= 7:
		return immNone
	case sub == 8:
		return immIndexMemory
	case sub == 10:
		return immMemory2
	case sub == 11:
		return immMemory
	case sub == 12, sub == 14:
		return immIndex2
	case sub == 9, sub == 13, sub >= 15 && sub <= 17:
		return immIndex
	}
	return immInvalid
}

// immediateOfFD classifies the opcodes with the prefix 0xfd: 128-bit vectors.
func immediateOfFD(sub uint32) immediate {
	switch {
	case sub <= 11, sub == 92, sub == 93:
		return immMemArg
	case sub == 12, sub == 13:
		return immV128
	case sub >= 21 && sub <= 34:
		return immByte
	case sub >= 84 && sub <= 91:
		return immLane
	case sub <= 255:
		return immNone
	}
	return immInvalid
}

// instr decodes the next instruction. It does not check whether a vector opcode exists:
// the engine does, and this package needs only the end of the instruction.
func (r *reader) instr(maxTargets int) Instr {
	in := Instr{Start: r.off}
	op := r.u8()
	in.Op = Op(op)
	imm := immediates[op]
	if op == 0xfc || op == 0xfd {
		sub := r.u32()
		if sub > 0xffff {
			r.failf("unknown instruction 0x%02x %d", op, sub)
			return in
		}
		in.Op = Op(op)<<16 | Op(sub)
		if imm = immediateOfFC(sub); op == 0xfd {
			imm = immediateOfFD(sub)
		}
	}
	if imm != immNone {
		r.immediate(&in, imm, maxTargets)
	}
	in.End = r.off
	return in
}

func (r *reader) immediate(in *Instr, imm immediate, maxTargets int) {
	switch imm {
	case immBlockType:
		in.Index, in.TypeIndex = r.blockType()
	case immI32:
		in.Offset = uint32(r.s32())
	case immIndex:
		in.Index = r.u32()
	case immIndex2:
		in.Index = r.u32()
		r.u32()
	case immIndexMemory:
		in.Index = r.u32()
		r.memory()
	case immMemory2:
		r.memory()
		r.memory()
	case immMemory:
		r.memory()
	case immBrTable:
		for range r.count("targets of one br_table", maxTargets) {
			in.Index = max(in.Index, r.u32())
		}
		in.Index = max(in.Index, r.u32())
	case immSelect:
		for range r.count("types of one select", 1) {
			r.valueType()
		}
	case immMemArg:
		in.Offset = r.memArg()
	case immByte:
		r.u8()
	case immI64:
		r.skipLEB(10)
	case immF32:
		r.bytes(4)
	case immF64:
		r.bytes(8)
	case immV128:
		r.bytes(16)
	case immLane:
		in.Offset = r.memArg()
		r.u8()
	case immInvalid:
		if r.err == nil {
			r.fail(unservedInstr(in.Op))
		}
	}
}

// memory reads a memory index, which must be 0. The check belongs here because the
// rewriter replaces some of these instructions, and must not make an invalid one valid.
func (r *reader) memory() {
	if r.u8() != 0 {
		r.failf("an instruction names another memory than the one there is")
	}
}

// memArg skips an alignment and returns the offset.
func (r *reader) memArg() uint32 {
	r.u32()
	return r.u32()
}

// unservedInstr returns an error that names the proposal of an instruction, if that tells
// the user which compiler flag to remove.
func unservedInstr(op Op) error {
	switch {
	case op == 0xfe:
		return &UnservedError{Feature: "threads (atomic instructions)", Remedy: "compile without -pthread and shared memory"}
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return errExceptions()
	case op == 0xfb, op == 0x14, op == 0x15, op >= 0xd3 && op <= 0xd6:
		return &UnservedError{Feature: "garbage collection or typed function references", Remedy: "compile for WebAssembly 2.0"}
	}
	return &UnservedError{Feature: "an unknown instruction", Remedy: "compile for WebAssembly 2.0"}
}

func errExceptions() error {
	return &UnservedError{Feature: "exception handling", Remedy: "compile without Wasm exceptions (in C++ -fno-exceptions, in Rust panic=abort)"}
}

// An UnservedError reports that a module uses a WebAssembly feature that is not
// supported.
type UnservedError struct{ Feature, Remedy string }

func (e *UnservedError) Error() string {
	return "it uses " + e.Feature + ", which is not served: " + e.Remedy
}
