package mq

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	defaultScrubRate = 32 << 20
	// scrubDelay is the time from Open to the first pass, scrubPause the time between two
	// passes.
	scrubDelay = time.Minute
	scrubPause = time.Hour
	// scrubWindow is the number of bytes that the scrubber reads at a time.
	scrubWindow = 256 << 10
)

// scrubber slowly rereads the sealed segments of an open log, so that damage is found
// while there still is a copy to restore from. A pass starts at a random segment. A
// process that is always restarted before a pass ends therefore still covers all segments
// in time.
//
// Damage in a sealed segment does not stop the log. Appends go to another segment, and
// refusing them would not bring lost records back.
type scrubber struct {
	log  *Log
	rate int64 // bytes per second
	// onCorrupt, if set, is called once per damaged segment, on the scrubber's goroutine.
	onCorrupt func(*CorruptError)
	ended     chan struct{} // closed when run has ended

	mu    sync.Mutex // locked after Log.mu
	found map[uint64]*CorruptError
	bytes uint64
	done  uint64
}

func newScrubber(l *Log, rate int64, onCorrupt func(*CorruptError)) *scrubber {
	return &scrubber{log: l, rate: rate, onCorrupt: onCorrupt, ended: make(chan struct{}), found: map[uint64]*CorruptError{}}
}

// run scrubs until the log is closed.
func (s *scrubber) run() {
	defer close(s.ended)
	if s.rate <= 0 {
		return
	}
	for pause := scrubDelay; s.log.sleep(pause); pause = scrubPause {
		s.pass()
	}
}

// sleep waits, and reports false if the log is being closed.
func (l *Log) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stopping:
		return false
	}
}

// pass checks each segment that is sealed at its start once.
func (s *scrubber) pass() {
	l := s.log
	l.mu.Lock()
	var sealed []*segment
	for _, seg := range l.segs {
		if seg.sealed {
			sealed = append(sealed, seg)
		}
	}
	l.mu.Unlock()
	if len(sealed) == 0 {
		return
	}
	start := rand.IntN(len(sealed))
	for _, seg := range slices.Concat(sealed[start:], sealed[:start]) {
		if isClosed(l.stopping) {
			return
		}
		s.look(seg)
	}
	s.mu.Lock()
	s.done++
	s.mu.Unlock()
}

// look checks one segment. Damage must be found twice, so a single misread raises no
// alarm.
func (s *scrubber) look(seg *segment) {
	damage := s.damageIn(seg)
	if len(damage) > 0 {
		damage = s.damageIn(seg)
	}
	// A segment that was trimmed meanwhile may have been recycled during the check.
	if len(damage) > 0 && s.log.holds(seg) {
		s.report(seg, damage[0])
	}
}

func (s *scrubber) damageIn(seg *segment) []Damage {
	s.log.mu.Lock()
	p := s.log.pieceOf(seg)
	s.log.mu.Unlock()
	c := checker{disk: slowDisk{s.log.disk, s}}
	if err := c.checkOne(p); err != nil { // it was trimmed, or the log is being closed
		return nil
	}
	return p.damage
}

func (s *scrubber) report(seg *segment, d Damage) {
	e := &CorruptError{Dir: s.log.cfg.Dir, Segment: d.Segment, Offset: d.Offset, Why: d.Why}
	s.mu.Lock()
	_, known := s.found[seg.id]
	s.found[seg.id] = e
	s.mu.Unlock()
	if known {
		return
	}
	s.log.cfg.Logger.Error("acknowledged data is damaged", "segment", d.Segment, "offset", d.Offset, "damage", d.String(), "error", e)
	if s.onCorrupt != nil {
		s.onCorrupt(e)
	}
}

// forget removes a trimmed segment from the list and logs that. A file that damages data
// is not reused.
func (s *scrubber) forget(id uint64) (damaged bool) {
	s.mu.Lock()
	e := s.found[id]
	delete(s.found, id)
	s.mu.Unlock()
	if e == nil {
		return false
	}
	s.log.cfg.Logger.Warn("a damaged segment was trimmed; its lost records had been given up by all readers", "segment", e.Segment, "error", e)
	return true
}

// corruption returns the damage in segments of the log, in their order.
func (s *scrubber) corruption() []*CorruptError {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*CorruptError, 0, len(s.found))
	for _, id := range slices.Sorted(maps.Keys(s.found)) {
		all = append(all, s.found[id])
	}
	return all
}

// counts returns the number of bytes read and of complete passes.
func (s *scrubber) counts() (bytes, passes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.done
}

// uncached is a disk that can read around the page cache. Scrubbing must see the data on
// the device, and must neither fill nor empty the cache.
type uncached interface {
	// openUncached opens a file for reads of whole pages into aligned memory. It fails if
	// the system cannot do that.
	openUncached(name string) (file, error)
}

// slowDisk opens files for scrubbing.
type slowDisk struct {
	disk
	s *scrubber
}

func (d slowDisk) open(name string, how access) (file, error) {
	var f file
	err := errors.ErrUnsupported
	if u, ok := d.disk.(uncached); ok {
		f, err = u.openUncached(name)
	}
	if err != nil {
		if f, err = d.disk.open(name, how); err != nil {
			return nil, err
		}
	}
	return &slowFile{file: f, s: d.s, buf: alignedBytes(scrubWindow)}, nil
}

// slowFile reads at the rate of the scrubber, in whole windows.
type slowFile struct {
	file
	s    *scrubber
	buf  []byte
	from int64  // offset of have
	have []byte // the part of buf that was read
}

func (f *slowFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at < f.from || at >= f.from+int64(len(f.have)) {
			if err := f.fill(at &^ (pageSize - 1)); err != nil {
				return n, err
			}
			if at >= f.from+int64(len(f.have)) {
				return n, io.EOF
			}
		}
		n += copy(p[n:], f.have[at-f.from:])
	}
	return n, nil
}

// fill waits as the rate requires and then reads the window at from.
func (f *slowFile) fill(from int64) error {
	if !f.s.log.sleep(time.Duration(len(f.buf)) * time.Second / time.Duration(f.s.rate)) {
		return ErrClosed
	}
	n, err := f.file.ReadAt(f.buf, from)
	f.from, f.have = from, f.buf[:n]
	f.s.mu.Lock()
	f.s.bytes += uint64(n)
	f.s.mu.Unlock()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
