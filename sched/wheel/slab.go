package wheel

const (
	// chunkLen makes a chunk of entries of 16 bytes 512 bytes. A slot wastes
	// half a chunk on average, a chunk 8 bytes for its header.
	chunkLen = 31
	pageLen  = 64
)

// chunk is a part of a list.
type chunk[T any] struct {
	next uint32
	n    uint32
	e    [chunkLen]Entry[T]
}

// list is entries in the order in which they were pushed, in chunks that know
// the next one. Chunks are named by their place in the slab and not by
// pointers. The zero list is empty.
type list struct{ first, last uint32 }

// slab is the memory of lists. Pages never move, so a chunk may be read while
// others are pushed to.
type slab[T any] struct {
	pages []*[pageLen]chunk[T]
	free  uint32 // the first chunk that is in no list
}

// reset makes the slab empty and forgets all lists.
func (s *slab[T]) reset() {
	s.pages, s.free = nil, 0
	s.grow()
	// Chunk 0 stands for none. It is full, so that an empty list is one whose
	// last chunk has no room.
	s.free = 1
	none := s.at(0)
	none.next, none.n = 0, chunkLen
}

// grow adds a page of free chunks.
func (s *slab[T]) grow() {
	base := uint32(len(s.pages)) * pageLen
	page := new([pageLen]chunk[T])
	for i := range page[:pageLen-1] {
		page[i].next = base + uint32(i) + 1
	}
	s.pages = append(s.pages, page)
	s.free = base
}

func (s *slab[T]) at(c uint32) *chunk[T] { return &s.pages[c/pageLen][c%pageLen] }

func (s *slab[T]) push(l *list, e Entry[T]) {
	k := s.at(l.last)
	if k.n == chunkLen {
		k = s.extend(l)
	}
	k.e[k.n] = e
	k.n++
}

// extend adds a chunk to the list.
func (s *slab[T]) extend(l *list) *chunk[T] {
	if s.free == 0 {
		s.grow()
	}
	c := s.free
	k := s.at(c)
	s.free, k.next = k.next, 0
	if l.first == 0 {
		l.first = c
	} else {
		s.at(l.last).next = c
	}
	l.last = c
	return k
}

// release frees a chunk and returns the next one of its list.
func (s *slab[T]) release(c uint32) (next uint32) {
	k := s.at(c)
	next = k.next
	clear(k.e[:k.n]) // values may have pointers
	k.n, k.next, s.free = 0, s.free, c
	return next
}

// filter moves the entries of a list that hold, as judge says, to its front, in
// their order, and frees the chunks behind. It returns how many are gone. keep is
// memory that it uses.
func (s *slab[T]) filter(l *list, keep *[chunkLen]bool, judge func(entries []Entry[T], holds []bool)) (gone int) {
	// Only the last chunk of a list is not full. The first n entries of chunk
	// to, and all chunks before it, of which last is the last, are done.
	last, to, n := uint32(0), l.first, 0
	dst := s.at(to)
	for c := l.first; c != 0; {
		k := s.at(c)
		// Chunks of a list are anywhere in the slab: the next one is on its way while
		// this one is judged.
		prefetch(&s.at(k.next).e[0].Due)
		// All of a chunk are judged before one is moved: what the owner looks up
		// for one does not wait for another.
		judge(k.e[:k.n], keep[:k.n])
		for i, e := range k.e[:k.n] {
			if n == chunkLen {
				last, to, n = to, dst.next, 0
				dst = s.at(to)
			}
			// Written whether it is kept or not: a branch here would be guessed
			// wrong for every other entry.
			dst.e[n] = e
			kept := 0
			if keep[i] {
				kept = 1
			}
			n += kept
			gone += 1 - kept
		}
		c = k.next
	}
	behind := to
	if n > 0 {
		clear(dst.e[n:dst.n])
		last, behind = to, dst.next
		dst.n, dst.next = uint32(n), 0
	}
	if last == 0 {
		l.first = 0
	} else {
		s.at(last).next = 0
	}
	l.last = last
	for behind != 0 {
		behind = s.release(behind)
	}
	return gone
}
