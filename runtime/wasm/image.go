package wasm

import (
	"bytes"
	"math/bits"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// A page of pageBytes is the granularity in which memory is compared.
const (
	pageShift = 12
	pageBytes = 1 << pageShift
)

// An image is the state of an initialised instance. It is immutable.
type image struct {
	pages   [][]byte // nil: a page of zeros
	globals []uint64
	marks   uint64        // chunks that may differ from zeros, and from the memory of a new instance
	script  quickjs.State // of the driver of the instance
}

// allMarks are the dirty bits of a memory with unknown changes.
const allMarks = ^uint64(0)

// take copies the pages that overlap a part of the memory.
func (im *image) take(mem []byte, at, end int) {
	for i := at / pageBytes; i*pageBytes < end; i++ {
		if page := mem[i*pageBytes : (i+1)*pageBytes]; im.pages[i] == nil && !bytes.Equal(page, zeros[:]) {
			im.pages[i] = bytes.Clone(page)
		}
	}
}

var zeros [pageBytes]byte // never written

// compare makes a part of the memory equal to the image and writes only the pages that
// differ. Reading is cheaper than writing, and a page that was never written need not
// exist.
func (im *image) compare(mem []byte, at, end int) {
	for at < end {
		have, want := im.piece(mem, at, end)
		if !bytes.Equal(have, want) {
			copy(have, want)
		}
		at += len(have)
	}
}

// copy makes a part of the memory equal to the image without comparing.
func (im *image) copy(mem []byte, at, end int) {
	for at < end {
		page := at >> pageShift
		upTo := min(end, (page+1)<<pageShift)
		if want := im.pages[page]; want == nil {
			clear(mem[at:upTo])
		} else {
			copy(mem[at:upTo], want[at&(pageBytes-1):])
		}
		at = upTo
	}
}

// piece returns the part of the range that lies in its first page, in memory and image.
func (im *image) piece(mem []byte, at, end int) (have, want []byte) {
	page := at / pageBytes
	from := at - page*pageBytes
	to := min(pageBytes, end-page*pageBytes)
	if want = im.pages[page]; want == nil {
		want = zeros[:]
	}
	return mem[at : at+to-from], want[from:to]
}

// marks describes the dirty bits of a module.
type marks meter.Marks

// setBack makes the dirty chunks of the memory equal to the image.
func (m *marks) setBack(mem []byte, im *image, set uint64) {
	if m.Shift > pageShift {
		m.each(set, len(mem), func(at, end int) { im.compare(mem, at, end) })
		return
	}
	for ; set != 0; set &= set - 1 {
		for at := bits.TrailingZeros64(set) << m.Shift; at < len(mem); at += 64 << m.Shift {
			im.copy(mem, at, min(at+1<<m.Shift+m.Slack, len(mem)))
		}
	}
}

// setLines makes the dirty lines of the memory equal to the image. A line may lie outside
// the memory, when the guest passed the host an address that it may not write to.
func (m *marks) setLines(mem []byte, im *image, set uint64) {
	for ; set != 0; set &= set - 1 {
		at := int(m.Lines[bits.TrailingZeros64(set)]) * meter.LineBytes
		if at >= len(mem) {
			continue
		}
		have := (*[meter.LineBytes]byte)(mem[at:])
		if want := im.pages[at>>pageShift]; want == nil {
			*have = [meter.LineBytes]byte{}
		} else {
			*have = [meter.LineBytes]byte(want[at&(pageBytes-1):])
		}
	}
}

// chunks returns the dirty bits of all chunks that the given lines lie in.
func (m *marks) chunks(lines uint64) uint64 { return (*meter.Marks)(m).Chunks(lines) }

// each calls do for each dirty chunk of a memory of size bytes.
func (m *marks) each(set uint64, size int, do func(at, end int)) {
	for ; set != 0; set &= set - 1 {
		for at := bits.TrailingZeros64(set) << m.Shift; at < size; at += 64 << m.Shift {
			do(at, min(at+1<<m.Shift+m.Slack, size))
		}
	}
}
