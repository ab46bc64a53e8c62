package meter

import (
	"sort"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// Moves maps offsets of code in the old module to offsets in the rewritten one. Offsets
// count from the start of the contents of the code section. Invariant: Old and New both
// rise from one move to the next.
type Moves []Move

// A Move means that the code at Old is now at New, as is the code behind it up to the next
// move. Code added to an instruction lies after the instruction's own move and before the
// next one.
type Move struct{ Old, New uint32 }

// To returns the new offset of the code at an old offset.
func (m Moves) To(at uint32) uint32 {
	i := sort.Search(len(m), func(i int) bool { return m[i].Old > at }) - 1
	if i < 0 {
		return at
	}
	to := m[i].New + at - m[i].Old
	if i+1 < len(m) {
		to = min(to, m[i+1].New)
	}
	return to
}

// add appends a move unless it continues the last one.
func (m *Moves) add(old, to int) {
	if n := len(*m); n > 0 {
		last := (*m)[n-1]
		if uint32(to)-last.New == uint32(old)-last.Old {
			return
		}
	}
	*m = append(*m, Move{uint32(old), uint32(to)})
}

// moved records the moves of one function: of its size field, its locals and its
// instructions. at is the offset of the size field in the new section and size is the
// length of that field.
func (w *rewriter) moved(body binary.Body, f *function, at, size int) {
	if !w.opts.Moves {
		return
	}
	w.moves.add(w.oldEnd, at)
	w.moves.add(body.At, at+size)
	code := body.At + len(body.RawLocals)
	to := at + size + len(f.out) - len(f.code)
	for _, m := range f.moves {
		w.moves.add(code+int(m.Old), to+int(m.New))
	}
	w.oldEnd = code + len(body.Code)
}
