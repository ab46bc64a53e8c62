package meter

import (
	"sort"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
)

// Moves say where code went that was rewritten, by places counted from the start
// of the code section's contents. Both numbers of a move rise from each to the
// next.
type Moves []Move

// A Move says that what was at Old is at New, and so on up to the next one. What
// was added to an instruction is behind its own move and before the next one's.
type Move struct{ Old, New uint32 }

// To returns where the code from a place went.
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

// add appends a move unless it follows from the last one.
func (m *Moves) add(old, to int) {
	if n := len(*m); n > 0 {
		last := (*m)[n-1]
		if uint32(to)-last.New == uint32(old)-last.Old {
			return
		}
	}
	*m = append(*m, Move{uint32(old), uint32(to)})
}

// moved notes where a function went: its size, which is before it, its locals and its
// instructions. at is where its size is in the new section, size is how long
// that is.
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
