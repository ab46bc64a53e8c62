package mq

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Read calls fn, in order, for every record from the sequence from on that was durable
// when Read was called. An error of fn ends the Read and is returned unchanged. fn may
// use the log, including Append and Trim. A Trim that overtakes the Read ends it with
// ErrTrimmed, or lets it finish its current segment first.
//
// If from is below First, Read returns ErrTrimmed; if it is above Next, ErrBeyondEnd.
// Damage is a *CorruptError, and records that a Repair gave up are a *LostError. All
// records before them have been delivered. A reader that can do without the lost records
// continues at LostError.End.
func (l *Log) Read(from uint64, fn func(Entry) error) error {
	l.mu.Lock()
	next, end := l.next, l.durable.Load()
	l.mu.Unlock()
	if from > next {
		return fmt.Errorf("read from %d, next is %d: %w", from, next, ErrBeyondEnd)
	}
	for {
		s, r, err := l.pin(from)
		if err != nil {
			return err
		}
		if from >= end {
			l.unpin(s)
			return nil
		}
		r.end = min(r.end, end)
		err = l.readSegment(s, r, from, fn)
		l.unpin(s)
		if err != nil {
			return err
		}
		from = r.end
	}
}

// extent is the part of a segment to read.
type extent struct {
	start   mark
	end     uint64 // sequence behind the last record
	dataEnd int64
}

// pin finds the segment that contains or will contain seq. Its file is not recycled until
// unpin.
func (l *Log) pin(seq uint64) (*segment, extent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, extent{}, ErrClosed
	}
	if first := l.segs[0].base; seq < first {
		return nil, extent{}, fmt.Errorf("read from %d, first is %d: %w", seq, first, ErrTrimmed)
	}
	i := len(l.segs) - 1
	for l.segs[i].base > seq {
		i--
	}
	s := l.segs[i]
	s.pins++
	return s, extent{s.seek(seq), s.end, s.dataEnd}, nil
}

func (l *Log) unpin(s *segment) {
	l.mu.Lock()
	s.pins--
	l.mu.Unlock()
}

// readSegment delivers the records of s from the sequence from up to the end of r.
func (l *Log) readSegment(s *segment, r extent, from uint64, fn func(Entry) error) error {
	f, err := l.disk.open(s.name(), accessRead)
	if errors.Is(err, fs.ErrNotExist) && l.First() > from {
		return fmt.Errorf("read from %d: %w", from, ErrTrimmed)
	}
	if err != nil {
		return fmt.Errorf("mq: read: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	sc := newScanner(f, s.seed, r.start.off, r.dataEnd)
	marked := r.start.off
	var e frame
	for want := r.start.seq; want < r.end; {
		at := sc.off
		err := sc.into(&e)
		if err == nil && e.flags == 0 && e.seq == want { // the usual case
			want++
			if e.seq < from {
				continue
			}
			if err := fn(Entry{Seq: e.seq, Queue: e.queue, Type: e.kind, Body: e.body}); err != nil {
				return err
			}
			continue
		}
		switch {
		case err == io.EOF:
			return l.corrupt(s, at, "the segment ends before record %d", want)
		case err == errBadRecord:
			return l.corrupt(s, at, "record %d is not intact", want)
		case err != nil:
			return fmt.Errorf("mq: read %s: %w", s.name(), err)
		case e.isCommit():
			if sc.off-marked >= indexSpacing { // so that the next Read need not scan
				marked = sc.off
				l.mu.Lock()
				s.addMark(want, sc.off) // a group starts behind each commit
				l.mu.Unlock()
			}
			continue
		}
		if h, ok := takeHole(e); ok && h.first == want {
			if want = h.end; from < want {
				return &LostError{First: max(from, h.first), End: h.end, Repaired: time.Unix(0, h.at)}
			}
			continue
		}
		return l.corrupt(s, at, "the segment has record %d instead of %d", e.seq, want)
	}
	return nil
}

// corrupt returns an error about damage at an offset of s.
func (l *Log) corrupt(s *segment, off int64, why string, args ...any) error {
	return &CorruptError{Dir: l.cfg.Dir, Segment: s.name(), Offset: off, Why: fmt.Sprintf(why, args...)}
}
