package mq

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// flusher owns everything between the staged chunks and the disk. The holder of role is
// the flusher. That is the flusher's goroutine, or a lone producer that flushes its own
// record, which saves two goroutine switches.
type flusher struct {
	l    *Log
	role sync.Mutex
	// lone means that the last group had one unit. The next producer may then try to take
	// the role.
	lone atomic.Bool
	// armed means that timer runs.
	armed atomic.Bool
	timer *time.Timer // wakes an idle log; used by the goroutine alone

	// The holder of role owns the fields below.

	// target is the number of units that gather waits for before the next group is cut.
	target int64
	// marked is the durable sequence in the last commit that was sent to the disk.
	marked uint64
	// page holds the bytes, up to the start of the next chunk, of the page in which that
	// chunk starts.
	page [pageSize]byte
	// dirty is the start of the unsynced bytes of the active segment, -1 if there are
	// none.
	dirty      int64
	dirtySince time.Time
	last       time.Time // start of the last flush
	failed     bool
}

// newFlusher returns the flusher of a loaded log.
func (l *Log) newFlusher() (*flusher, error) {
	f := &flusher{l: l, marked: l.durable.Load(), dirty: -1, timer: time.NewTimer(lazyDelay)}
	f.armed.Store(true)
	return f, f.readPage()
}

func (f *flusher) run() {
	defer close(f.l.flushed)
	defer f.timer.Stop()
	for {
		why := f.wait()
		f.role.Lock()
		f.flush(why)
		failed := f.failed
		f.role.Unlock()
		if failed || why == flushClose {
			return
		}
	}
}

// flush writes the staged chunks and calls back. The caller must hold role.
func (f *flusher) flush(why reason) {
	if f.failed {
		return
	}
	chunks, err := f.next(why)
	for i, c := range chunks {
		if err = f.persist(c, why); err != nil {
			chunks = chunks[i:]
			break
		}
		f.acknowledge(c)
	}
	if err != nil {
		f.failed = true
		f.l.fail(err, chunks)
	}
}

// lead lets a lone producer flush its own record. It reports false if the goroutine must
// flush, because other producers write too or because the role is taken.
func (f *flusher) lead() bool {
	if !f.lone.Load() || f.l.queued.Load() != 1 || !f.role.TryLock() {
		return false
	}
	f.flush(flushUnits)
	failed := f.failed
	f.role.Unlock()
	// Producers that arrived meanwhile found the role taken. And the goroutine must later
	// note that this group is durable.
	if failed || f.l.queued.Load() > 0 || !f.armed.Load() {
		signal(f.l.wake)
	}
	return true
}

// readPage reads the last used page of the active segment after Open. Later the flusher
// knows its bytes, because only it writes.
func (f *flusher) readPage() error {
	f.l.mu.Lock()
	s, end := f.l.live[0], f.l.segs[len(f.l.segs)-1].dataEnd
	f.l.mu.Unlock()
	if _, err := s.file.ReadAt(f.page[:end%pageSize], end&^(pageSize-1)); err != nil {
		return fmt.Errorf("read the last page of %s: %w", s.name(), err)
	}
	return nil
}

// next prepares a flush and returns its chunks.
func (f *flusher) next(why reason) ([]*chunk, error) {
	if why == flushUnits {
		f.gather()
	} else if err := f.syncRemaining(why); err != nil {
		return nil, err
	}
	return f.cut(why), nil
}

// reason says why a flush happens.
type reason uint8

const (
	flushUnits reason = iota // an append waits
	flushIdle                // lazy records, a pending empty commit or a pending sync have waited long enough
	flushClose               // the last flush
)

// wait blocks until there is a reason to flush.
func (f *flusher) wait() reason {
	for {
		staged, urgent, later, idle := f.pending()
		if urgent {
			return flushUnits
		}
		if later && !f.armed.Load() {
			if idle >= lazyDelay {
				f.arm(lazyDelay)
			} else {
				f.arm(lazyDelay - idle)
			}
		}
		select {
		case <-f.l.wake:
		case <-f.timer.C:
			f.armed.Store(false)
			if _, _, later, idle := f.pending(); later && idle >= lazyDelay {
				return flushIdle
			}
		case <-f.l.stopping:
			if staged {
				return flushUnits // the last flush then only has the empty commit to write
			}
			return flushClose
		}
	}
}

// pending returns whether records are staged, whether an append waits, and whether other
// work can wait a little, and the time since the start of the last flush.
func (f *flusher) pending() (staged, urgent, later bool, idle time.Duration) {
	f.role.Lock()
	defer f.role.Unlock()
	if f.failed {
		return false, true, false, 0
	}
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	staged = f.l.open.count > 0
	urgent = f.l.queued.Load() > 0 || len(f.l.ready) > 0
	later = staged || f.dirty >= 0 && f.l.cfg.Sync == Interval || f.marked < f.l.synced
	return staged, urgent, later, time.Since(f.last)
}

// arm sets the timer, which must have fired.
func (f *flusher) arm(d time.Duration) {
	f.timer.Reset(d)
	f.armed.Store(true)
}

// maxYields ends gather where the clock stands still, as in a test with fake time.
const maxYields = 2000

// gather waits for the producers that the last flush released, so that they join this
// flush. Otherwise they would miss every second flush.
func (f *flusher) gather() {
	if f.l.queued.Load() >= f.target || f.l.cfg.Gather < 0 {
		return
	}
	start := time.Now()
	for range maxYields {
		if f.l.queued.Load() >= f.target || time.Since(start) >= f.l.cfg.Gather {
			return
		}
		runtime.Gosched()
	}
}

// cut takes all staged chunks.
func (f *flusher) cut(why reason) []*chunk {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	// A later Open needs an empty commit after the last group to distinguish damage in that
	// group from a torn tail.
	mark := why != flushUnits && l.open.count == 0 && f.marked < l.synced && l.stage.fits(commitSize)
	if l.open.count > 0 || why != flushUnits {
		f.marked = l.synced
	}
	if l.open.count > 0 || l.open.awaited() || mark {
		l.closeOpen(mark)
	}
	chunks := l.ready
	l.ready = nil
	l.queued.Store(0)
	return chunks
}

// persist writes c and syncs it if the policy requires that. If c is the last chunk of
// its segment, persist also seals that segment and starts the next.
func (f *flusher) persist(c *chunk, why reason) error {
	start := time.Now()
	f.last = start
	if len(c.buf) > c.head {
		if f.dirty < 0 {
			f.dirty, f.dirtySince = c.off, start
		}
		copy(c.buf[:c.head], f.page[:])
		if _, err := c.seg.file.WriteAt(c.pages(), c.off-int64(c.head)); err != nil {
			return fmt.Errorf("write %s at %d: %w", c.seg.name(), c.off, err)
		}
		copy(f.page[:], c.buf[len(c.buf)&^(pageSize-1):])
	}
	if c.next != nil {
		if err := f.seal(c); err != nil {
			return err
		}
		return f.l.activate(c.next, start)
	}
	if f.dirty < 0 || !f.mustSync(c, why) {
		return nil
	}
	err := f.sync(c.seg, c.end())
	f.l.mu.Lock()
	f.l.counts.lastFlush = time.Since(start)
	f.l.mu.Unlock()
	return err
}

func (f *flusher) mustSync(c *chunk, why reason) bool {
	switch f.l.cfg.Sync {
	case Always:
		return c.count > 0 || why == flushClose // an empty commit alone is not worth a sync
	case Interval:
		return why != flushUnits || time.Since(f.dirtySince) >= lazyDelay
	}
	return why == flushClose
}

// sync makes the bytes of s up to end durable.
func (f *flusher) sync(s *segment, end int64) error {
	if err := s.file.sync(f.dirty, end-f.dirty); err != nil {
		return fmt.Errorf("sync %s: %w", s.name(), err)
	}
	f.dirty = -1
	f.l.mu.Lock()
	f.l.counts.syncs++
	f.l.mu.Unlock()
	return nil
}

// seal syncs the segment of c, writes its footer and syncs that. The footer promises the
// records before it, so it must not reach the disk before them. With a single sync for
// both, a power cut could leave a footer without its records, which the next Open would
// report as damage. No record goes to the next segment before that.
func (f *flusher) seal(c *chunk) error {
	s := c.seg
	dataEnd := c.end()
	if f.dirty >= 0 {
		if err := f.sync(s, dataEnd); err != nil {
			return err
		}
	}
	ft := footer{base: s.base, end: c.next.base, dataEnd: dataEnd, lastCommit: c.lastCommit}
	if _, err := s.file.WriteAt(ft.encode(s.id, s.seed), s.limit()); err != nil {
		return fmt.Errorf("seal %s: %w", s.name(), err)
	}
	f.dirty = s.limit()
	if err := f.sync(s, s.size); err != nil {
		return err
	}
	err := s.file.Close()
	s.file = nil
	if err != nil {
		return fmt.Errorf("close %s: %w", s.name(), err)
	}
	return nil
}

// acknowledge makes the records of c visible to Read and calls back.
func (f *flusher) acknowledge(c *chunk) {
	l := f.l
	l.mu.Lock()
	end := c.first + uint64(c.count)
	if c.count > 0 {
		c.seg.addMark(c.first, c.off)
		l.counts.flushes++
	}
	c.seg.end, c.seg.dataEnd = end, c.end()
	if c.next != nil {
		c.seg.sealed = true
		l.live = l.live[1:]
		l.segs = append(l.segs, c.next)
	}
	l.durable.Store(end)
	if f.dirty < 0 {
		l.synced = end
	}
	l.staged -= c.end() - c.off
	f.target = l.queued.Load() + int64(c.units*9+9)/10
	f.lone.Store(c.units <= 1 && f.target <= 1)
	l.changed.Broadcast()
	l.mu.Unlock()

	c.call(nil)
	l.mu.Lock()
	l.recycle(c)
	l.mu.Unlock()
}

// call releases all waiters of the chunk with err.
func (c *chunk) call(err error) {
	if c.wait != nil {
		c.wait.err = err
		close(c.wait.landed)
	}
	for _, done := range c.done {
		if done != nil {
			done(err)
		}
	}
}

// syncRemaining syncs the bytes that the policy left unsynced, when the log becomes idle or
// closes.
func (f *flusher) syncRemaining(why reason) error {
	if f.dirty < 0 || why == flushIdle && f.l.cfg.Sync != Interval {
		return nil
	}
	l := f.l
	l.mu.Lock()
	s, end := l.live[0], l.durable.Load()
	dataEnd := s.dataEnd
	l.mu.Unlock()
	if err := f.sync(s, dataEnd); err != nil {
		return err
	}
	l.mu.Lock()
	l.synced = end
	l.mu.Unlock()
	return nil
}

// fail makes the log read-only permanently and releases all waiters. The first failure is
// final: after a failed sync the kernel may have dropped the bytes, and a retry would
// report success for lost data.
func (l *Log) fail(cause error, unwritten []*chunk) {
	l.cfg.Logger.Error("the log is read-only until it is opened again", "error", cause)
	l.mu.Lock()
	l.err = cause
	lost := append(append(unwritten, l.ready...), l.open)
	l.ready, l.open, l.staged = nil, nil, 0
	l.changed.Broadcast()
	l.mu.Unlock()
	if l.cfg.OnFail != nil { // first: the owner learns the reason before a caller exits because of it
		l.cfg.OnFail(cause)
	}
	err := fmt.Errorf("%w: %w", ErrReadOnly, cause)
	for _, c := range lost {
		c.call(err)
	}
}
