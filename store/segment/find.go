package segment

import (
	"errors"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"sort"
)

// Find yields the blocks before a position that list at least one key of every group of
// all, newest first. Without groups it yields every block. A block is valid until the
// next step. A [*DamagedError] takes the place of an unreadable block; Find continues
// after it. Any other error ends the iteration.
//
// Find skips a segment that [Log.Retain] removes meanwhile.
func (l *Log) Find(all [][]uint64, before int64) iter.Seq2[Block, error] {
	return l.FindBetween(all, before, math.MinInt64, math.MaxInt64)
}

// FindBetween is [Log.Find] without the segments whose rows are all of times before from
// or after to (Unix ms). Blocks of the other segments may still be of such times.
func (l *Log) FindBetween(all [][]uint64, before, from, to int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		s := newSearch(all)
		defer s.free()
		for _, f := range slices.Backward(*l.files.Load()) {
			if f.base < before && f.max >= from && f.min <= to && !s.in(f, before, yield) {
				return
			}
		}
	}
}

// FindSince yields the blocks that [Log.Find] yields without a bound, in another order.
// Segments with rows of the time ms (Unix ms) or later come first, oldest first. The
// other segments follow. It serves look-ups of a unique row whose time is roughly known.
func (l *Log) FindSince(all [][]uint64, ms int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		s := newSearch(all)
		defer s.free()
		files := *l.files.Load()
		for _, f := range files {
			if f.max >= ms && !s.in(f, End, yield) {
				return
			}
		}
		for _, f := range slices.Backward(files) {
			if f.max < ms && !s.in(f, End, yield) {
				return
			}
		}
	}
}

// search is a query that runs over one segment after the other.
type search struct {
	*reader
	all [][]asked // keys of each group
}

// asked is a key and its last answer in a segment. A search asks for earlier and earlier
// blocks, so an answer is valid until the block in it is too late.
type asked struct {
	key   uint64
	block uint32
	ok    bool // a block was found
	known bool // the segment was searched for the key
}

func newSearch(all [][]uint64) *search {
	s := &search{reader: newReader(), all: make([][]asked, len(all))}
	for i, group := range all {
		s.all[i] = make([]asked, len(group))
		for j, key := range group {
			s.all[i][j].key = key
		}
	}
	return s
}

// in yields the matches of a segment before a position, and reports whether to continue.
func (s *search) in(f *file, before int64, yield func(Block, error) bool) bool {
	for _, group := range s.all {
		for i := range group {
			group[i].known = false
		}
	}
	for b, err := range f.find(s, before) {
		if errors.Is(err, os.ErrClosed) {
			break
		}
		if !yield(b, err) || err != nil && !isDamage(err) {
			return false
		}
	}
	return true
}

func isDamage(err error) bool { return errors.As(err, new(*DamagedError)) }

// From yields the blocks at or behind pos, oldest first. The rules for validity and
// errors are those of [Log.Find].
func (l *Log) From(pos int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		rd := newReader()
		defer rd.free()
		for _, f := range *l.files.Load() {
			if f.end() <= pos {
				continue
			}
			for b, err := range f.from(pos, rd) {
				if errors.Is(err, os.ErrClosed) {
					break
				}
				if !yield(b, err) || err != nil && !isDamage(err) {
					return
				}
			}
		}
	}
}

// from is From within one segment.
func (s *file) from(pos int64, rd *reader) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		n := s.idx.blocks()
		var err error
		at := uint32(sort.Search(int(n), func(i int) bool {
			sp, e := s.idx.span(rd, uint32(i))
			err = errors.Join(err, e)
			return s.base+int64(sp.off) >= pos
		}))
		for ; at < n && err == nil; at++ {
			var sp span
			if sp, err = s.idx.span(rd, at); err != nil {
				break
			}
			var b Block
			b, err = readSpan(s.f, s.base, sp, rd)
			switch {
			case err == nil && b.hole():
			case err == nil || errors.Is(err, ErrCorrupt):
				if !yield(b, s.damaged(sp, err)) {
					return
				}
				err = nil
			}
		}
		if err != nil {
			yield(Block{}, s.explain(err))
		}
	}
}

// find is Find within one segment.
func (s *file) find(q *search, before int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		rd := q.reader
		at, ok, err := s.lastBefore(rd, before)
		for ok && err == nil {
			var sp span
			if at, ok, err = q.lastOfAll(s.idx, at); !ok || err != nil {
				break
			}
			if sp, err = s.idx.span(rd, at); err != nil {
				break
			}
			var b Block
			if b, err = readSpan(s.f, s.base, sp, rd); err != nil && !errors.Is(err, ErrCorrupt) {
				break
			}
			if (err != nil || !b.hole()) && !yield(b, s.damaged(sp, err)) {
				return
			}
			err = nil
			if ok = at > 0; ok {
				at--
			}
		}
		if err != nil {
			yield(Block{}, s.explain(err))
		}
	}
}

// damaged wraps an error about a block into a DamagedError with its position; nil stays
// nil.
func (s *file) damaged(sp span, err error) error {
	if err == nil {
		return nil
	}
	at := s.base + int64(sp.off)
	return &DamagedError{File: s.f.Name(), Span: Span{at, at + int64(sp.len)}, Err: err}
}

// explain adds the name of the file to an error.
func (s *file) explain(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.Join(ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return &os.PathError{Op: "segment: read", Path: s.f.Name(), Err: err}
}

// lastBefore returns the last block before a position.
func (s *file) lastBefore(rd *reader, before int64) (block uint32, ok bool, err error) {
	lo, hi := uint32(0), s.idx.blocks()
	if before >= s.end() {
		lo = hi // the usual case needs no search
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		sp, err := s.idx.span(rd, mid)
		if err != nil {
			return 0, false, err
		}
		if s.base+int64(sp.off) < before {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo, 1) - 1, lo > 0, nil
}

// lastOfAll returns the last block at or before at that lists a key of each group.
func (s *search) lastOfAll(idx index, at uint32) (block uint32, ok bool, err error) {
	for agreed := 0; agreed < len(s.all); {
		for _, group := range s.all {
			b, ok, err := s.lastOfAny(idx, group, at)
			if !ok || err != nil {
				return 0, false, err
			}
			if b < at {
				at, agreed = b, 0 // search the groups before this one again
			}
			agreed++
		}
	}
	return at, true, nil
}

func (s *search) lastOfAny(idx index, group []asked, at uint32) (block uint32, ok bool, err error) {
	for i := range group {
		a := &group[i]
		if !a.known || a.ok && a.block > at {
			if a.block, a.ok, err = idx.last(s.reader, a.key, at); err != nil {
				return 0, false, err
			}
			a.known = true
		}
		if a.ok && (!ok || a.block > block) {
			block, ok = a.block, true
		}
	}
	return block, ok, nil
}

// End as the position of [Log.Find] starts at the newest block.
const End = math.MaxInt64
