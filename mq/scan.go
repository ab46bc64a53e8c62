package mq

import (
	"errors"
	"fmt"
	"io"
)

// scanner walks the records of one segment in order. It reads through the file, not through a mapping: catching up
// then never stalls on page faults, and damage is an error and not a signal.
type scanner struct {
	r     io.ReaderAt
	seed  uint32
	off   int64 // offset of the next record
	limit int64 // nothing at or behind it is read
	buf   []byte
	have  []byte // the part of buf that holds the bytes from off on
}

const scanChunk = 256 << 10

func newScanner(r io.ReaderAt, seed uint32, off, limit int64) *scanner {
	return &scanner{r: r, seed: seed, off: off, limit: limit}
}

// errBadRecord means that there is no intact record at the scanner's offset.
var errBadRecord = errors.New("no intact record")

// next returns the record at s.off and steps behind it. It returns io.EOF at the limit, errBadRecord when there is
// no intact record, and any error of the disk as it is. The body is valid until the next call.
func (s *scanner) next() (frame, error) {
	if s.off >= s.limit {
		return frame{}, io.EOF
	}
	if err := s.need(recordHeaderSize); err != nil {
		return frame{}, err
	}
	n := bodyLen(s.have)
	if n > s.limit-s.off-recordHeaderSize {
		return frame{}, errBadRecord
	}
	size := frameSize(int(n))
	if err := s.need(size); err != nil {
		return frame{}, err
	}
	f, ok := takeFrame(s.have, s.seed, s.off)
	if !ok {
		return frame{}, errBadRecord
	}
	s.have = s.have[size:]
	s.off += int64(size)
	return f, nil
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

// tail is the state of an unsealed segment behind its last complete group.
type tail struct {
	off    int64  // where the next group goes
	next   uint64 // sequence of the next record
	commit int64  // offset of the last commit, 0 if there is none
	epoch  uint16 // of the last commit, or of the header
	groups []mark // a sparse list of group starts
}

// findTail walks the groups of s from its first record and stops in front of the first group that is not complete.
// A group counts only as a whole: its records in dense sequence, closed by a commit that names them.
func findTail(r io.ReaderAt, s *segment, epoch uint16) (tail, error) {
	t := tail{off: headerSize, next: s.base, epoch: epoch}
	sc := newScanner(r, s.seed, headerSize, s.limit())
	g := group{first: s.base, epoch: epoch}
	for {
		at := sc.off
		f, err := sc.next()
		if err == io.EOF || err == errBadRecord {
			return t, nil
		}
		if err != nil {
			return t, err
		}
		if !f.isCommit() {
			if !g.add(f) {
				return t, nil
			}
			continue
		}
		if !g.closedBy(f, t.commit) {
			return t, nil
		}
		if n := len(t.groups); n == 0 || t.off-t.groups[n-1].off >= indexSpacing {
			t.groups = append(t.groups, mark{t.next, t.off})
		}
		t.off, t.next, t.commit, t.epoch = sc.off, f.seq, at, f.epoch
		g = group{first: f.seq, epoch: f.epoch}
	}
}

// group collects what a commit must confirm.
type group struct {
	first uint64
	count uint32
	crcs  uint32
	epoch uint16 // never goes back along a segment
}

// add takes the next record and reports false when it cannot belong to the group.
func (g *group) add(f frame) bool {
	if f.flags != 0 || f.seq != g.first+uint64(g.count) || int16(f.epoch-g.epoch) < 0 {
		return false
	}
	g.count++
	g.crcs = foldCRC(g.crcs, f.crc)
	g.epoch = f.epoch
	return true
}

// closedBy reports whether f is the commit of exactly this group and follows the commit at prev.
func (g *group) closedBy(f frame, prev int64) bool {
	c, ok := takeCommit(f)
	return ok && c.first == g.first && c.count == g.count && c.crcs == g.crcs && c.prev == uint64(prev) &&
		int16(f.epoch-g.epoch) >= 0
}

// laterProof looks behind a bad place for a commit that was written when records from next on were already
// durable. Finding one means that the bad place is rot in acknowledged data and no torn tail. Records are aligned,
// so that every place where a commit can be is looked at.
func laterProof(r io.ReaderAt, s *segment, from int64, next uint64) (offset int64, found bool, err error) {
	const step = 1 << 20
	buf := make([]byte, step+commitSize)
	for at := from; at+commitSize <= s.limit(); at += step {
		want := buf[:min(int64(len(buf)), s.limit()-at)]
		if n, err := r.ReadAt(want, at); n < len(want) {
			if errors.Is(err, io.EOF) {
				want = want[:n]
			} else {
				return 0, false, fmt.Errorf("read at %d: %w", at, err)
			}
		}
		for i := 0; i+commitSize <= len(want); i += recordAlign {
			if c, ok := commitAt(want[i:i+commitSize], s.seed, at+int64(i)); ok && c.durable > next {
				return at + int64(i), true, nil
			}
		}
	}
	return 0, false, nil
}

// commitAt decodes a commit record at b. Looking at its constant bytes first spares nearly all checksums.
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
