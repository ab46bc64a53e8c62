package segment

import "sync"

// reader is the memory that reading takes. It is used again: a look-up that made
// a block's room anew would have to help collect the garbage of the whole
// process, and wait for that longer than for the disk.
type reader struct {
	raw             []byte   // of a block
	keys            []uint64 // of a block
	postings, spans page
}

// page is a page of an index. A search often asks for the same one again.
type page struct {
	of      *disk // nil: none was read
	off     int64
	content []byte
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// maxKept is how large a block may be whose room is kept, bytes.
const maxKept = 1 << 20

func newReader() *reader { return readers.Get().(*reader) }

// free gives the memory back: nothing that was read with it may be used any more.
func (r *reader) free() {
	r.postings.of, r.spans.of = nil, nil // they hold files
	if cap(r.raw) <= maxKept && cap(r.keys) <= maxKept/8 {
		readers.Put(r)
	}
}
