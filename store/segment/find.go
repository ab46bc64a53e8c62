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
// valid until the next step; an error is the last thing it yields.
//
// A segment that [Log.Retain] removes meanwhile is passed over.
func (l *Log) Find(all [][]uint64, before int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		var buf []byte
		for _, f := range slices.Backward(*l.files.Load()) {
			if f.base >= before {
				continue
			}
			for b, err := range f.find(all, before, &buf) {
				if errors.Is(err, os.ErrClosed) {
					break
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// From yields the blocks that stand at pos or behind it, oldest first, under the
// terms of [Log.Find].
func (l *Log) From(pos int64) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		var buf []byte
		for _, f := range *l.files.Load() {
			if f.end() <= pos {
				continue
			}
			for b, err := range f.from(pos, &buf) {
				if errors.Is(err, os.ErrClosed) {
					break
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// from is From within one segment.
func (s *file) from(pos int64, buf *[]byte) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		n := s.idx.blocks()
		var err error
		at := uint32(sort.Search(int(n), func(i int) bool {
			sp, e := s.idx.span(uint32(i))
			err = errors.Join(err, e)
			return s.base+int64(sp.off) >= pos
		}))
		for ; at < n && err == nil; at++ {
			var sp span
			if sp, err = s.idx.span(at); err != nil {
				break
			}
			var b Block
			if b, err = readSpan(s.f, s.base, sp, buf); err == nil && !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(Block{}, s.explain(err))
		}
	}
}

// find is Find within one segment.
func (s *file) find(all [][]uint64, before int64, buf *[]byte) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		at, ok, err := s.lastBefore(before)
		for ok && err == nil {
			var sp span
			if at, ok, err = lastOfAll(s.idx, all, at); !ok || err != nil {
				break
			}
			if sp, err = s.idx.span(at); err != nil {
				break
			}
			var b Block
			if b, err = readSpan(s.f, s.base, sp, buf); err != nil {
				break
			}
			if !yield(b, nil) {
				return
			}
			if ok = at > 0; ok {
				at--
			}
		}
		if err != nil {
			yield(Block{}, s.explain(err))
		}
	}
}

// explain names the file in an error.
func (s *file) explain(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.Join(ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return &os.PathError{Op: "segment: read", Path: s.f.Name(), Err: err}
}

// lastBefore returns the last block whose position is before the given one.
func (s *file) lastBefore(before int64) (block uint32, ok bool, err error) {
	lo, hi := uint32(0), s.idx.blocks()
	if before >= s.end() {
		lo = hi // the usual case needs no search
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		sp, err := s.idx.span(mid)
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
func lastOfAll(idx index, all [][]uint64, at uint32) (block uint32, ok bool, err error) {
	for agreed := 0; agreed < len(all); {
		for _, group := range all {
			b, ok, err := lastOfAny(idx, group, at)
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

func lastOfAny(idx index, group []uint64, at uint32) (block uint32, ok bool, err error) {
	for _, key := range group {
		b, found, err := idx.last(key, at)
		if err != nil {
			return 0, false, err
		}
		if found && (!ok || b > block) {
			block, ok = b, true
		}
	}
	return block, ok, nil
}

// End as the position of [Log.Find] starts at the newest block.
const End = math.MaxInt64
