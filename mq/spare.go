package mq

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

const pageSize = 4096

// zeroPage is never written to.
var zeroPage [pageSize]byte

func isZero(page []byte) bool { return bytes.Equal(page, zeroPage[:len(page)]) }

const (
	// prepareAhead is the number of spares that the preparer maintains; recycling may add
	// more.
	prepareAhead = 1
	// refillPause is the time between two attempts to prepare a segment after the disk
	// refused one.
	refillPause = time.Second
)

// runPreparer fills segments before they are needed, so that Append never waits for the
// disk to allocate space.
func (l *Log) runPreparer() {
	defer close(l.prepared)
	for {
		select {
		case <-l.prepare:
			l.prepareSpares()
		case <-l.stopping:
			return
		}
	}
}

func (l *Log) prepareSpares() {
	for l.wantsSpare() {
		s, err := l.makeSpare()
		l.mu.Lock()
		l.preparer.making = 0
		if err != nil {
			l.refuse(err)
			l.mu.Unlock()
			return
		}
		l.spares = append(l.spares, s)
		l.preparer.err = nil
		l.changed.Broadcast()
		l.mu.Unlock()
	}
}

// wantsSpare reports whether the preparer should make a spare, and records that it does.
func (l *Log) wantsSpare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause := l.preparer.err != nil && time.Since(l.preparer.failed) < refillPause
	if len(l.spares) >= prepareAhead || pause || l.closed || l.err != nil {
		return false
	}
	l.preparer.making = 1
	return true
}

// refuse records why there is no spare. mu must be held.
func (l *Log) refuse(err error) {
	if l.preparer.err == nil && !errors.Is(err, ErrClosed) {
		l.cfg.Logger.Warn("no further segment can be prepared", "error", err)
	}
	l.preparer.err, l.preparer.failed = err, time.Now()
	l.changed.Broadcast()
}

// makeSpare fills a new file and opens it with the log's writer. A crash at any point
// leaves a temporary file, which the next Open removes, or a good spare.
func (l *Log) makeSpare() (spare, error) {
	if err := l.checkSpace(); err != nil {
		return spare{}, err
	}
	l.mu.Lock()
	l.preparer.serial++
	name := spareName(l.preparer.serial)
	l.mu.Unlock()
	temp := strings.TrimSuffix(name, spareSuffix) + tempSuffix
	if err := l.disk.fill(temp, l.cfg.SegmentBytes, l.access, l.stopping); err != nil {
		_ = l.disk.remove(temp) // the next Open removes it otherwise
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return spare{}, fmt.Errorf("%w: %w", ErrFull, err)
		}
		return spare{}, fmt.Errorf("prepare a segment: %w", err)
	}
	if err := l.disk.rename(temp, name); err != nil {
		return spare{}, err
	}
	f, err := l.disk.open(name, l.access)
	if err != nil {
		return spare{}, err
	}
	return spare{name, f}, nil
}

func (l *Log) checkSpace() error {
	free, total, err := l.disk.space()
	if err != nil {
		return fmt.Errorf("read the free space: %w", err)
	}
	reserve := l.cfg.reserve(total)
	if total > 0 && free-l.cfg.SegmentBytes < reserve {
		return fmt.Errorf("%w: %d bytes are free in %s, a segment takes %d and %d stay in reserve; free some space",
			ErrFull, free, l.cfg.Dir, l.cfg.SegmentBytes, reserve)
	}
	return nil
}

// adoptSpares opens the spares of an earlier opening and removes unsuitable and
// superfluous ones.
func (l *Log) adoptSpares(names []string) error {
	for _, name := range names {
		serial, ok := parseName(name, spareSuffix)
		if !ok {
			continue
		}
		l.preparer.serial = max(l.preparer.serial, serial)
		size, err := l.sizeOf(name)
		if err != nil {
			return err
		}
		if size != l.cfg.SegmentBytes || len(l.spares) == maxSpares {
			if err := l.disk.remove(name); err != nil {
				return err
			}
			continue
		}
		f, err := l.disk.open(name, l.access)
		if err != nil {
			return err
		}
		l.spares = append(l.spares, spare{name, f})
	}
	return nil
}

// sizeOf returns the size of a file. It does not use the writer, which may be unable to
// open the file: an empty file cannot be mapped.
func (l *Log) sizeOf(name string) (int64, error) {
	f, err := l.disk.open(name, accessRead)
	if err != nil {
		return 0, err
	}
	size, err := f.size()
	return size, errors.Join(err, f.Close())
}

// Trim removes whole sealed segments whose records are all below before. Up to two of
// their files are retained for reuse, others are deleted. The active segment always
// stays.
func (l *Log) Trim(before uint64) error {
	l.trim.Lock()
	defer l.trim.Unlock()
	for {
		s, err := l.dropFirst(before)
		if s == nil || err != nil {
			return err
		}
		if err := l.discard(s); err != nil {
			l.mu.Lock()
			l.segs = slices.Insert(l.segs, 0, s) // later segments must not vanish before it
			l.mu.Unlock()
			return fmt.Errorf("mq: trim %s: %w", s.name(), err)
		}
	}
}

// dropFirst removes the first segment from the log if all its records are below before.
func (l *Log) dropFirst(before uint64) (*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	s := l.segs[0]
	if !s.sealed || s.end > before || len(l.segs) == 1 {
		return nil, nil
	}
	l.segs = l.segs[1:]
	return s, nil
}

// discard recycles or deletes the file of s, which Read no longer finds. It syncs the
// directory each time: segments must vanish from the front, or a crash would leave a gap.
func (l *Log) discard(s *segment) error {
	damaged := l.scrub.forget(s.id)
	l.mu.Lock()
	reuse := !damaged && s.pins == 0 && s.size == l.cfg.SegmentBytes && len(l.spares)+l.preparer.making < maxSpares && l.err == nil
	l.preparer.serial++
	name := spareName(l.preparer.serial)
	l.preparer.failed = time.Time{}
	l.mu.Unlock()
	defer signal(l.prepare)
	if !reuse {
		return l.settleDir(l.disk.remove(s.name()))
	}
	if err := l.settleDir(l.disk.rename(s.name(), name)); err != nil {
		return err
	}
	f, err := l.disk.open(name, l.access)
	if err != nil {
		return nil // the segment is gone, as Trim requires; the next Open may or may not find the spare
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spares = append(l.spares, spare{name, f})
	l.counts.recycled++
	l.preparer.err = nil
	l.changed.Broadcast()
	return nil
}

// settleDir syncs the directory after a removal or rename with the result err. It accepts
// that the file was gone already, because the sync of an earlier attempt may have failed.
func (l *Log) settleDir(err error) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.disk.sync()
}
