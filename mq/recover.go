package mq

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Open opens the log in cfg.Dir, or creates it. It fails with ErrLocked while the
// directory is open elsewhere, with a *CorruptError if acknowledged data is damaged, and
// with ErrFull if an empty log finds no space. It cuts a torn tail that a crash has left:
// records that were not acknowledged are removed, or retained as complete units.
func Open(cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("mq: open: %w", err)
	}
	unlock, err := lockDir(cfg.Dir)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, err
		}
		return nil, fmt.Errorf("mq: lock %s: %w", cfg.Dir, err)
	}
	l, err := open(cfg, dir(cfg.Dir), unlock)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return l, nil
}

// open opens the log on d and starts its goroutines. On success the log owns unlock.
func open(cfg Config, d disk, unlock func() error) (*Log, error) {
	l := &Log{
		cfg: cfg, disk: d, unlock: unlock,
		wake: make(chan struct{}, 1), prepare: make(chan struct{}, 1), stopping: make(chan struct{}),
		flushed: make(chan struct{}), prepared: make(chan struct{}), watched: make(chan struct{}),
	}
	l.changed = sync.NewCond(&l.mu)
	l.scrub = newScrubber(l, cfg.ScrubBytesPerSecond, cfg.OnCorrupt)
	if err := l.load(); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	l.open = l.newChunk()
	var err error
	if l.flusher, err = l.newFlusher(); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	go l.flusher.run()
	go l.runPreparer()
	go l.scrub.run()
	go l.runWatcher()
	signal(l.prepare)
	return l, nil
}

// load prepares the directory: it removes unfinished files, retains spares, checks the
// segments, cuts a torn tail and sets the stage behind the last complete group.
func (l *Log) load() error {
	names, err := l.disk.names()
	if err != nil {
		return fmt.Errorf("mq: open: %w", err)
	}
	if slices.Contains(names, repairName) {
		return fmt.Errorf("%w: run `wheelwork mq repair %s` again with the choice that %s names", ErrUnfinished, l.cfg.Dir, repairName)
	}
	ids, err := l.tidy(names)
	if err != nil {
		return fmt.Errorf("mq: open: %w", err)
	}
	if err := l.chooseAccess(); err != nil {
		return fmt.Errorf("mq: choose the writer: %w", err)
	}
	if err := l.adoptSpares(names); err != nil {
		return fmt.Errorf("mq: open a spare segment: %w", err)
	}
	if len(ids) == 0 {
		return l.begin()
	}
	return l.resume(ids)
}

// tidy removes unfinished files and returns the numbers of the segments in ascending
// order.
func (l *Log) tidy(names []string) ([]uint64, error) {
	var ids []uint64
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			if err := l.disk.remove(name); err != nil {
				return nil, err
			}
		}
		if id, ok := parseName(name, segmentSuffix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// begin starts an empty log.
func (l *Log) begin() error {
	_, _ = rand.Read(l.store[:]) // never fails
	l.epoch = 1
	l.next, l.synced = l.cfg.First, l.cfg.First
	l.durable.Store(l.cfg.First)
	if len(l.spares) == 0 {
		s, err := l.makeSpare()
		if err != nil {
			return fmt.Errorf("mq: prepare the first segment: %w", err)
		}
		l.spares = append(l.spares, s)
	}
	s := l.spares[0]
	l.spares = l.spares[1:]
	seg := &segment{
		id: 1, base: l.cfg.First, end: l.cfg.First, size: l.cfg.SegmentBytes, seed: segmentSeed(l.store, 1),
		file: s.file, spare: s.name, dataEnd: headerSize,
	}
	l.segs, l.live = []*segment{seg}, []*segment{seg}
	l.stage = stage{seg: seg, off: headerSize}
	if err := l.activate(seg, time.Now()); err != nil {
		return fmt.Errorf("mq: start the first segment: %w", err)
	}
	return nil
}

// activate writes the header of a spare and gives it its segment name. Both are durable
// before it returns, and therefore before the segment holds any record.
func (l *Log) activate(s *segment, now time.Time) error {
	h := header{store: l.store, segment: s.id, epoch: l.epoch, base: s.base, size: s.size, created: now.UnixNano()}
	if _, err := s.file.WriteAt(h.encode(), 0); err != nil {
		return fmt.Errorf("write the header of %s: %w", s.name(), err)
	}
	if err := s.file.sync(0, headerSize); err != nil {
		return fmt.Errorf("sync the header of %s: %w", s.name(), err)
	}
	if err := l.disk.rename(s.spare, s.name()); err != nil {
		return err
	}
	if err := l.disk.sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// resume continues the log in the segments.
func (l *Log) resume(ids []uint64) error {
	var last header
	for i, id := range ids {
		if i > 0 && id != ids[i-1]+1 {
			return l.corrupt(&segment{id: ids[i-1] + 1}, 0, "the segment is missing")
		}
		s, h, err := l.inspect(id, i == len(ids)-1)
		if err != nil {
			return err
		}
		if i == 0 {
			l.store = h.store
		} else if prev := l.segs[i-1]; h.store != l.store || s.base != prev.end {
			return l.corrupt(s, 0, "the segment does not continue %s", prev.name())
		}
		l.segs = append(l.segs, s)
		last = h
	}
	return l.resumeAt(l.segs[len(l.segs)-1], last)
}

// inspect reads the header and the footer of a segment. All segments but the last must be
// sealed.
func (l *Log) inspect(id uint64, last bool) (*segment, header, error) {
	s := &segment{id: id, dataEnd: headerSize}
	name := s.name()
	f, err := l.disk.open(name, accessRead)
	if err != nil {
		return nil, header{}, fmt.Errorf("mq: open segment: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, headerSize)
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, header{}, fmt.Errorf("mq: read %s: %w", name, err)
	} else if n < len(b) {
		b = b[:n]
	}
	h, why := decodeHeader(b)
	size, err := f.size()
	switch {
	case err != nil:
		return nil, h, fmt.Errorf("mq: open segment: %w", err)
	case why != "":
		return nil, h, l.corrupt(s, 0, "%s", why)
	case h.segment != id:
		return nil, h, l.corrupt(s, 0, "the header belongs to %s", segmentName(h.segment))
	case size != h.size:
		return nil, h, l.corrupt(s, 0, "the file has %d bytes instead of %d", size, h.size)
	}
	s.base, s.end, s.size, s.seed = h.base, h.base, h.size, segmentSeed(h.store, id)
	if last {
		return s, h, nil
	}
	ft, ok, err := readFooter(f, s)
	if err != nil {
		return nil, h, fmt.Errorf("mq: read %s: %w", name, err)
	}
	if !ok {
		return nil, h, l.corrupt(s, s.limit(), "the footer of a sealed segment is missing")
	}
	s.end, s.dataEnd, s.sealed = ft.end, ft.dataEnd, true
	return s, h, nil
}

func readFooter(r io.ReaderAt, s *segment) (footer, bool, error) {
	b := make([]byte, footerSize)
	if _, err := r.ReadAt(b, s.limit()); err != nil {
		return footer{}, false, err
	}
	ft, ok := decodeFooter(b, s)
	return ft, ok, nil
}

// resumeAt sets the stage behind the last complete group of the last segment.
func (l *Log) resumeAt(s *segment, h header) (err error) {
	if s.file, err = l.disk.open(s.name(), l.access); err != nil {
		return fmt.Errorf("mq: open segment: %w", err)
	}
	l.live = []*segment{s}
	ft, sealed, err := readFooter(s.file, s)
	if err != nil {
		return fmt.Errorf("mq: read %s: %w", s.name(), err)
	}
	t, err := findTail(s.file, s, uint16(h.epoch))
	if err != nil {
		return fmt.Errorf("mq: read %s: %w", s.name(), err)
	}
	if sealed && (t.next != ft.end || t.off != ft.dataEnd) {
		return l.corrupt(s, t.off, "the segment was sealed behind record %d and only those below %d are intact", ft.end-1, t.next)
	}
	if !sealed {
		if err := l.cutTail(s, t); err != nil {
			return err
		}
	}
	// The groups may be intact without ever having been synced: the process died, but the
	// system did not.
	if err := errors.Join(s.file.sync(0, s.size), l.disk.sync()); err != nil {
		return fmt.Errorf("mq: sync %s: %w", s.name(), err)
	}
	s.end, s.dataEnd, s.index = t.next, t.off, t.groups
	l.next, l.synced = t.next, t.next
	l.durable.Store(t.next)
	l.epoch = epochAfter(h.epoch, t.epoch)
	// The next Append seals a sealed segment again, with the same footer, when it starts
	// the next segment.
	l.stage = stage{seg: s, off: t.off, commit: t.commit, sealed: sealed}
	return nil
}

// epochAfter returns the number of the opening after the one whose low bits are low. That
// one is not before the opening that wrote the segment header.
func epochAfter(header uint32, low uint16) uint32 {
	return header + uint32(low-uint16(header)) + 1
}

// cutTail clears the bytes behind the last complete group, so that none of them is ever
// taken for a record. It refuses if a later commit proves that the records there were
// durable.
func (l *Log) cutTail(s *segment, t tail) error {
	at, rot, err := laterProof(s.file, s, t.off, t.next)
	if err != nil {
		return fmt.Errorf("mq: read %s: %w", s.name(), err)
	}
	if rot {
		return l.corrupt(s, t.off, "record %d was durable, as the commit at offset %d says, and is damaged", t.next, at)
	}
	n, err := clearFrom(s.file, t.off, s.size)
	if err != nil {
		return fmt.Errorf("mq: clear the tail of %s: %w", s.name(), err)
	}
	l.counts.cut = n
	if n > 0 {
		l.cfg.Logger.Info("cleared the bytes behind the last complete group", "segment", s.name(), "offset", t.off, "bytes", n)
	}
	return nil
}

// clearFrom zeroes the pages from off on that are not zero and returns the number of
// bytes written.
func clearFrom(f file, off, size int64) (cleared int64, err error) {
	buf := make([]byte, min(1<<20, max(size-off, 0)))
	for off < size {
		b := buf[:min(int64(len(buf)), size-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			return cleared, err
		}
		for len(b) > 0 {
			page := b[:min(pageSize-off%pageSize, int64(len(b)))]
			if !isZero(page) {
				if _, err := f.WriteAt(zeroPage[:len(page)], off); err != nil {
					return cleared, err
				}
				cleared += int64(len(page))
			}
			b, off = b[len(page):], off+int64(len(page))
		}
	}
	return cleared, nil
}
