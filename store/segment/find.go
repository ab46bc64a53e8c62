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

// Find yields the blocks before the position that list, of every group of all,
// at least one key: newest first. No groups: every block. What it yields is
// valid until the next step. A [*DamagedError] stands for a block that cannot be read;
// any other error is the last thing that Find yields.
//
// A segment that [Log.Retain] removes meanwhile is passed over.
func (l *Log) Find(all [][]uint64, before int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		s := newSearch(all)
		defer s.free()
		for _, f := range slices.Backward(*l.files.Load()) {
			if f.base < before && !s.in(f, before, yield) {
				return
			}
		}
	}
}

// FindSince yields what [Log.Find] yields of all blocks, but begins where rows
// are that are a little younger than a time, Unix ms: the segments that have
// rows of then or later come first, the oldest of them first, and then the
// others. It is for who knows what there is only one of, and about when.
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

// search is a question that is asked of one segment after the other.
type search struct {
	*reader
	all [][]asked // of each group
}

// asked is a key with the last answer of a segment. A segment is asked for earlier
// and earlier blocks: an answer holds until it is too late.
type asked struct {
	key   uint64
	block uint32
	ok    bool // there is such a block
	known bool // it was asked
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

// in yields what a segment has before a position, and reports whether to go on.
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

// From yields the blocks that stand at pos or behind it, oldest first, under the
// terms of [Log.Find].
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

// damaged says where a block lies that cannot be read; nil for no error.
func (s *file) damaged(sp span, err error) error {
	if err == nil {
		return nil
	}
	at := s.base + int64(sp.off)
	return &DamagedError{File: s.f.Name(), Span: Span{at, at + int64(sp.len)}, Err: err}
}

// explain names the file in an error.
func (s *file) explain(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.Join(ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return &os.PathError{Op: "segment: read", Path: s.f.Name(), Err: err}
}

// lastBefore returns the last block whose position is before the given one.
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
				at, agreed = b, 0 // the groups before must be asked again
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
