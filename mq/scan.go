package mq

import (
	"errors"
	"fmt"
	"io"
)

// scanner reads the records of one segment in order. It uses file reads and not a
// mapping: a reader never stalls on page faults, and damage is an error and not a signal.
type scanner struct {
	r     io.ReaderAt
	seed  uint32
	off   int64 // offset of the next record
	limit int64 // the scanner reads nothing at or behind it
	buf   []byte
	have  []byte // the part of buf with the bytes from off on
}

const scanChunk = 256 << 10

func newScanner(r io.ReaderAt, seed uint32, off, limit int64) *scanner {
	return &scanner{r: r, seed: seed, off: off, limit: limit}
}

// errBadRecord means that there is no intact record at the scanner's offset.
var errBadRecord = errors.New("no intact record")

// next returns the record at s.off and moves behind it. It returns io.EOF at the limit,
// errBadRecord if there is no intact record, and an error of the disk unchanged. The body
// is valid until the next call.
func (s *scanner) next() (frame, error) {
	var f frame
	err := s.into(&f)
	return f, err
}

// into is next without a copy of the frame. f is undefined after an error.
func (s *scanner) into(f *frame) error {
	size := wholeFrame(s.have)
	if size == 0 {
		var err error
		if size, err = s.fill(); err != nil {
			return err
		}
	}
	if !f.take(s.have, s.seed, s.off) {
		return errBadRecord
	}
	s.have = s.have[size:]
	s.off += int64(size)
	return nil
}

// wholeFrame returns the size of the frame at the start of b, 0 if b does not hold all of
// it.
func wholeFrame(b []byte) int {
	if len(b) < recordHeaderSize {
		return 0
	}
	if n := bodyLen(b); n <= int64(len(b)) {
		if size := frameSize(int(n)); size <= len(b) {
			return size
		}
	}
	return 0
}

// fill reads until s.have holds the next frame, and returns the size of the frame.
func (s *scanner) fill() (int, error) {
	if s.off >= s.limit {
		return 0, io.EOF
	}
	if err := s.need(recordHeaderSize); err != nil {
		return 0, err
	}
	n := bodyLen(s.have)
	if n > s.limit-s.off-recordHeaderSize {
		return 0, errBadRecord
	}
	size := frameSize(int(n))
	return size, s.need(size)
}

// need makes the next n bytes available in s.have.
func (s *scanner) need(n int) error {
	if len(s.have) >= n {
		return nil
	}
	if int64(n) > s.limit-s.off {
		return errBadRecord
	}
	if len(s.buf) < n {
		s.buf = make([]byte, max(n, int(min(scanChunk, s.limit-s.off))))
	}
	want := s.buf[:min(int64(len(s.buf)), s.limit-s.off)]
	got, err := s.r.ReadAt(want, s.off)
	s.have = want[:got]
	if got >= n {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errBadRecord // the file is shorter than its header says
	}
	return fmt.Errorf("read at %d: %w", s.off, err)
}

// tail is the state of a segment behind a complete group.
type tail struct {
	off    int64  // position of the next group
	next   uint64 // sequence of the next record
	commit int64  // offset of the last commit, 0 if there is none, anyCommit if it is unknown
	epoch  uint16 // of the last commit, or of the header
	groups []mark // a sparse list of group starts
	// records counts the records in complete groups, lost the records that holes replace.
	records, lost uint64
}

// anyCommit replaces the offset of a damaged commit.
const anyCommit = -1

// findTail reads the groups of s from its first record and stops before the first
// incomplete group.
func findTail(r io.ReaderAt, s *segment, epoch uint16) (tail, error) {
	t := tail{off: headerSize, next: s.base, epoch: epoch}
	_, err := t.follow(newScanner(r, s.seed, headerSize, s.limit()))
	return t, err
}

// follow moves t behind the last of the complete groups at sc, which is at t.off. It
// returns the offset of the first frame that makes the next group incomplete. A group is
// complete if its records have consecutive sequences and a commit that names them. A hole
// is valid by itself, between two groups.
func (t *tail) follow(sc *scanner) (stopped int64, err error) {
	g := group{first: t.next, epoch: t.epoch}
	for {
		at := sc.off
		f, err := sc.next()
		if err == io.EOF || err == errBadRecord {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		if f.flags == 0 && g.add(f) {
			continue
		}
		if h, ok := takeHole(f); ok && g.accepts(h, f) {
			t.lost += h.end - h.first
		} else if g.closedBy(f, t.commit) {
			t.commit = at
		} else {
			return at, nil
		}
		if n := len(t.groups); n == 0 || t.off-t.groups[n-1].off >= indexSpacing {
			t.groups = append(t.groups, mark{t.next, t.off})
		}
		t.off, t.next, t.epoch = sc.off, f.seq, f.epoch
		t.records += uint64(g.count)
		g = group{first: f.seq, epoch: f.epoch}
	}
}

// group collects the properties that a commit must confirm.
type group struct {
	first uint64
	count uint32
	crcs  uint32
	epoch uint16 // never decreases along a segment
}

// add adds the next record, which is not a control record. It reports false if the record
// cannot belong to the group.
func (g *group) add(f frame) bool {
	if f.seq != g.first+uint64(g.count) || int16(f.epoch-g.epoch) < 0 {
		return false
	}
	g.count++
	g.crcs = foldCRC(g.crcs, f.crc)
	g.epoch = f.epoch
	return true
}

// closedBy reports whether f is the commit of exactly this group and follows the commit
// at prev.
func (g *group) closedBy(f frame, prev int64) bool {
	c, ok := takeCommit(f)
	return ok && c.first == g.first && c.count == g.count && c.crcs == g.crcs &&
		(c.prev == uint64(prev) || prev == anyCommit) && int16(f.epoch-g.epoch) >= 0
}

// accepts reports whether h, which was read as f, can be at the start of the group.
func (g *group) accepts(h hole, f frame) bool {
	return g.count == 0 && h.first == g.first && int16(f.epoch-g.epoch) >= 0
}

// laterProof searches behind a bad offset for a commit that was written when records from
// next on were already durable. If there is one, the bad bytes are damage in acknowledged
// data and not a torn tail.
func laterProof(r io.ReaderAt, s *segment, from int64, next uint64) (offset int64, found bool, err error) {
	_, offset, found, err = findCommit(r, s.seed, from, s.limit(), func(c commit) bool { return c.durable > next })
	return offset, found, err
}

// findCommit returns the first intact commit in [from, limit) for which wanted returns
// true. Records are aligned, so it checks every possible offset of a commit.
func findCommit(r io.ReaderAt, seed uint32, from, limit int64, wanted func(commit) bool) (c commit, offset int64, found bool, err error) {
	const step = 1 << 20
	buf := make([]byte, min(step+commitSize, max(limit-from, 0)))
	for at := from; at+commitSize <= limit; at += step {
		want := buf[:min(int64(len(buf)), limit-at)]
		if n, err := r.ReadAt(want, at); n < len(want) {
			if errors.Is(err, io.EOF) {
				want = want[:n]
			} else {
				return c, 0, false, fmt.Errorf("read at %d: %w", at, err)
			}
		}
		for i := 0; i+commitSize <= len(want); i += recordAlign {
			// Most bytes behind a torn tail are empty. No commit starts in a page of
			// zeros, because its length is not zero.
			for i%pageSize == 0 && i+pageSize+commitSize <= len(want) && isZero(want[i:i+pageSize]) {
				i += pageSize
			}
			if c, ok := commitAt(want[i:i+commitSize], seed, at+int64(i)); ok && wanted(c) {
				return c, at + int64(i), true, nil
			}
		}
	}
	return c, 0, false, nil
}

// commitAt decodes a commit record at b. It first compares the constant bytes, which
// avoids nearly all checksums when an opening searches a segment (BenchmarkOpen).
func commitAt(b []byte, seed uint32, off int64) (commit, bool) {
	if bodyLen(b) != commitBodySize || b[8] != controlCommit || b[9] != flagControl {
		return commit{}, false
	}
	f, ok := takeFrame(b, seed, off)
	if !ok {
		return commit{}, false
	}
	return takeCommit(f)
}
