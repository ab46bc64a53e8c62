package wheel

const (
	// chunkLen is the number of entries of a chunk. With entries of 16 bytes a chunk has
	// 504 bytes, of which its header takes 8. A slot wastes half a chunk on average.
	chunkLen = 31
	pageLen  = 64
)

// chunk is a part of a list: its first n entries are in use.
type chunk[T any] struct {
	next uint32
	n    uint32
	e    [chunkLen]Entry[T]
}

// list is a linked list of chunks with entries in the order in which they were pushed.
// The links are indexes into the slab and not pointers. The zero value is empty.
type list struct{ first, last uint32 }

// slab is the memory of the lists. Pages never move, so a pointer to a chunk stays valid
// while entries are pushed to other chunks.
type slab[T any] struct {
	pages []*[pageLen]chunk[T]
	free  uint32 // the first of the linked free chunks; 0: there is none
}

// reset makes the slab empty. All lists become invalid.
func (s *slab[T]) reset() {
	s.pages, s.free = nil, 0
	s.grow()
	// Index 0 means no chunk. Chunk 0 is marked as full, so that push to an empty list
	// needs no check of its own.
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

// filter removes the entries of a list for which judge does not report true, keeps the
// order of the others, and frees the chunks at the end. It returns the number of removed
// entries. keep is scratch memory.
func (s *slab[T]) filter(l *list, keep *[chunkLen]bool, judge func(entries []Entry[T], holds []bool)) (gone int) {
	// Invariant: every chunk of a list but the last one is full. The result so far is the
	// chunks up to last, and the first n entries of the chunk to behind it.
	last, to, n := uint32(0), l.first, 0
	dst := s.at(to)
	for c := l.first; c != 0; {
		k := s.at(c)
		// The chunks of a list are scattered over the slab, so the next one is loaded
		// while this one is judged.
		prefetch(&s.at(k.next).e[0].Due)
		// judge gets all entries of a chunk before one is moved, so that the cache misses
		// of its look-ups overlap.
		judge(k.e[:k.n], keep[:k.n])
		for i, e := range k.e[:k.n] {
			if n == chunkLen {
				last, to, n = to, dst.next, 0
				dst = s.at(to)
			}
			// The write is unconditional, because the processor would mispredict a branch
			// here for every other entry.
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
