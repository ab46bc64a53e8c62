package segment

import "sync"

// reader holds the buffers for reading, and is reused. Allocating a block's buffers for
// each look-up would let the look-up assist the garbage collector, which takes longer
// than the disk.
type reader struct {
	raw             []byte   // a block
	keys            []uint64 // keys of a block
	postings, spans page
}

// page is a page of an index. A search often reads the same page again.
type page struct {
	of      *disk // nil: no page was read
	off     int64
	content []byte
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// maxKept is the size, in bytes, of the largest block whose buffer is retained.
const maxKept = 1 << 20

func newReader() *reader { return readers.Get().(*reader) }

// free returns the reader to the pool. Nothing that was read with it may be used
// afterwards.
func (r *reader) free() {
	r.postings.of, r.spans.of = nil, nil // drop the references to files
	if cap(r.raw) <= maxKept && cap(r.keys) <= maxKept/8 {
		readers.Put(r)
	}
}
