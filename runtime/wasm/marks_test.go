package wasm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// program writes the body of a random function (param i32 i32 api.ValueTypeI32). Locals 0 to 2 hold
// addresses below 64 KiB. Local 3 counts down the iterations of all loops. Local 4 holds an
// address minus 64 KiB, and the lower half of local 5 holds an address.
type program struct {
	r    *rand.Rand
	code []byte
}

func (p *program) op(b ...byte) { p.code = append(p.code, b...) }

func (p *program) konst(v int64) { p.code = wasmbinary.AppendS64(append(p.code, 0x41), v) }

func (p *program) pointer() byte { return byte(p.r.IntN(3)) }

// offset returns a small offset, or one larger than a dirty bit covers.
func (p *program) offset() uint32 {
	if p.r.IntN(3) == 0 {
		return uint32(p.r.IntN(6000))
	}
	return uint32(p.r.IntN(600))
}

// store writes one of the nine stores of WebAssembly 1.0, and its value.
func (p *program) store() {
	op := byte(0x36 + p.r.IntN(9))
	switch op {
	case 0x36, 0x3a, 0x3b:
		p.konst(int64(p.r.Int32()))
	case 0x38:
		p.op(0x43, 1, 2, 3, 4)
	case 0x39:
		p.op(0x44, 1, 2, 3, 4, 5, 6, 7, 8)
	default:
		p.code = wasmbinary.AppendS64(append(p.code, 0x42), p.r.Int64())
	}
	p.code = wasmbinary.AppendU32(append(p.code, op, 0), p.offset())
}

// near adds a constant to a pointer.
func (p *program) near(least int64) {
	least += int64(p.r.IntN(4) * p.r.IntN(300))
	if p.r.IntN(2) == 0 {
		p.konst(least)
		p.op(0x6a)
		return
	}
	p.konst(least + 4)
	p.op(0x6a)
	p.konst(-4)
	p.op(0x6a)
}

// statements writes n statements; depth bounds their nesting.
func (p *program) statements(n, depth int) {
	for range n {
		switch p.r.IntN(18) {
		case 0, 1, 2, 3:
			p.op(0x20, p.pointer())
			p.store()
		case 4: // to a constant address, usually near others
			at := p.r.IntN(1 << 16)
			if p.r.IntN(4) > 0 {
				at = p.r.IntN(3)*60 + 500
			}
			p.konst(int64(at))
			p.konst(int64(p.r.Int32()))
			p.op(0x36, 0, 0)
		case 5: // to a computed address
			p.op(0x20, p.pointer(), 0x20, p.pointer(), 0x6a)
			p.konst(0xffff)
			p.op(0x71)
			p.store()
		case 6, 7: // assigns a pointer
			to := p.pointer()
			p.op(0x20, p.pointer())
			p.konst(int64(p.r.IntN(1 << 16)))
			p.op(0x6a)
			p.konst(0xffff)
			p.op(0x71, 0x21, to)
		case 8: // a pointer that is assigned between its read and the store
			local := p.pointer()
			p.op(0x20, local)
			if p.r.IntN(2) == 0 {
				p.near(0)
			}
			p.konst(int64(p.r.IntN(1 << 16)))
			p.op(0x22, local, 0x3a, 0)
			p.code = wasmbinary.AppendU32(p.code, p.offset())
		case 9, 10: // near a pointer
			p.op(0x20, p.pointer())
			p.near(0)
			p.store()
		case 11: // near a pointer that lies before the memory
			p.op(0x20, 4)
			p.near(1 << 16)
			p.store()
		case 12:
			p.op(0x20, 5, 0xa7)
			if p.r.IntN(2) == 0 {
				p.near(0)
			}
			p.store()
		case 13: // assigns locals 4 and 5
			p.op(0x20, p.pointer())
			p.konst(1 << 16)
			p.op(0x6b, 0x21, 4)
			p.op(0x20, p.pointer(), 0xad)
			p.code = wasmbinary.AppendS64(append(p.code, 0x42), p.r.Int64()<<32)
			p.op(0x84, 0x21, 5)
		default:
			if depth > 0 {
				p.nested(depth - 1)
			}
		}
	}
}

func (p *program) nested(depth int) {
	n := 1 + p.r.IntN(5)
	switch p.r.IntN(4) {
	case 0: // a block with a branch out of its middle
		p.op(0x02, 0x40)
		p.statements(n, depth)
		p.op(0x20, p.pointer(), 0x41, 1, 0x71, 0x0d, 0)
		p.statements(n, depth)
		p.op(0x0b)
	case 1:
		p.op(0x20, p.pointer(), 0x41, 2, 0x71, 0x04, 0x40)
		p.statements(n, depth)
		p.op(0x05)
		p.statements(n, depth)
		p.op(0x0b)
	case 2:
		p.op(0x20, p.pointer(), 0x41, 4, 0x71, 0x04, 0x40)
		p.statements(n, depth)
		if p.r.IntN(4) == 0 {
			p.op(0x0f) // return
		}
		p.op(0x0b)
	case 3: // a loop that runs while the count lasts
		p.op(0x03, 0x40)
		p.statements(n, depth)
		p.op(0x20, 3, 0x41, 1, 0x6b, 0x22, 3, 0x41, 0, 0x4a, 0x0d, 0) // signed greater
		p.op(0x0b)
	}
}

// randomProgram returns a module with a memory of 128 KiB and a function "f".
func randomProgram(r *rand.Rand) []byte {
	p := &program{r: r, code: []byte{2, 2, 0x7f, 1, 0x7e, 0x41, 20, 0x21, 3, 0x20, 0}}
	p.konst(1 << 16)
	p.op(0x6b, 0x21, 4)
	if r.IntN(2) == 0 { // code that never runs uses up the dirty bits of all lines
		p.op(0x02, 0x40, 0x0c, 0)
		for i := range 64 {
			p.konst(int64(1<<16 + 64*i))
			p.op(0x41, 0, 0x36, 0, 0)
		}
		p.op(0x0b)
	}
	p.statements(6+r.IntN(20), 3)
	p.op(0x0b)
	code := []byte("\x00asm\x01\x00\x00\x00")
	code = wasmbinary.AppendSection(code, wasmbinary.SectionType, []byte{1, 0x60, 3, 0x7f, 0x7f, 0x7f, 0})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionFunction, []byte{1, 0})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionMemory, []byte{1, 0, 2})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionExport, append([]byte{2, 1, 'f', 0, 0}, append(wasmbinary.AppendName(nil, "memory"), 2, 0)...))
	body := wasmbinary.AppendU32([]byte{1}, uint32(len(p.code)))
	return wasmbinary.AppendSection(code, wasmbinary.SectionCode, append(body, p.code...))
}

// TestStoresAreMarked runs random programs in both forms. They must leave the same memory,
// and every changed byte must have a dirty bit.
func TestStoresAreMarked(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	rt := specRuntime(t)
	changed := 0
	for range 400 {
		p, ok := newPair(t, rt, randomProgram(r))
		if !ok {
			t.Fatal("a program cannot be instantiated")
		}
		for range 3 {
			args := []uint64{r.Uint64N(1 << 16), r.Uint64N(1 << 16), r.Uint64N(1 << 16)}
			before := p.memory()
			plain, metered := p.invoke(p.plain, "f", args), p.invoke(p.metered, "f", args)
			if plain != "[]" || metered != "[]" {
				t.Fatalf("plain %s, metered %s", plain, metered)
			}
			after := p.memory()
			if want, _ := p.plain.Memory().Read(0, uint32(len(after))); !bytes.Equal(want, after) {
				t.Fatal("the forms leave different memories")
			}
			if !bytes.Equal(before, after) {
				changed++
			}
			p.checkMarks(t, "f", before)
		}
		p.plain.Close(p.call)
		p.metered.Close(p.call)
	}
	if changed < 600 {
		t.Errorf("only %d calls changed memory", changed)
	}
}
