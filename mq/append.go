package mq

import (
	"fmt"
	"unsafe"
)

// chunk is the data that one flush writes to one segment: the records of some Appends,
// closed by a commit.
type chunk struct {
	seg *segment
	off int64 // offset of the first record
	// buf starts at a page boundary both in the file and in memory, as direct writes
	// require. Its first head bytes repeat the end of the previous chunk; the flusher,
	// which has them, fills them in.
	buf   []byte
	head  int
	first uint64 // sequence of the first record
	count uint32
	crcs  uint32 // see commit.crcs
	units int    // number of appends that wait for the chunk
	done  []func(error)
	wait  *flight // shared by the waiters in Write; nil if there are none

	// next is the following segment if this chunk is the last one of its own, else nil.
	// The flusher then seals seg and starts next.
	next *segment
	// lastCommit is the offset of the last commit in seg after the chunk is closed.
	lastCommit int64
}

// flight is the event that all Writes of one chunk wait for: one wake-up for all of them.
// With a channel for each Write, the flusher spent more time waking producers than the disk
// took to sync. With one channel and whole pages, single messages of 256 producers reach
// 0.6 to 0.8 of a raw loop instead of 0.3 to 0.5 (BenchmarkAppend, ADR 13).
type flight struct {
	landed chan struct{} // closed when err is set
	err    error
}

// end returns the offset behind the last record.
func (c *chunk) end() int64 { return c.off + int64(len(c.buf)-c.head) }

// awaited reports whether an append waits for the chunk.
func (c *chunk) awaited() bool { return c.units > 0 }

// Append stages recs, in order and as one unit, and returns the sequence of the first.
// The others follow without a gap.
//
// Append does not wait for the disk. The log calls done, which may be nil, exactly once,
// in the order of the Appends. The argument is nil when the unit is durable under the
// sync policy. Otherwise it is the error that made the log read-only; the next Open may
// still find the unit. done runs on the goroutine that flushes, which is the log's or
// that of a producer in Write. It must be quick and must not call Append, Trim or Close
// of this log. A caller of Write must not hold a lock that any done takes.
//
// A unit is atomic: after a crash either all of its records are there or none. An empty
// unit is a barrier: its done is called when everything staged before is durable.
//
// An error from Append itself means that nothing was staged: ErrFull, ErrTooLarge,
// ErrClosed or ErrReadOnly. Append copies bodies before it returns. It waits only while
// the next segment is being prepared, or while 32 MiB are staged and not yet written.
func (l *Log) Append(recs []Record, done func(error)) (first uint64, err error) {
	first, _, err = l.append(recs, done, callback)
	return first, err
}

// Write is an Append that waits until the unit is durable under the sync policy.
// Concurrent Writes share flushes and one wake-up. An error that wraps ErrReadOnly leaves
// open whether the next Open finds the unit. Any other error means that nothing was
// staged.
func (l *Log) Write(recs []Record) (first uint64, err error) {
	how := wait
	if l.flusher.lone.Load() {
		how = lead
	}
	first, flight, err := l.append(recs, nil, how)
	if err != nil {
		return 0, err
	}
	if how == lead && !l.flusher.lead() {
		signal(l.wake)
	}
	<-flight.landed
	return first, flight.err
}

// AppendLazy stages recs like Append but requests no flush: they are written with the
// next flush, or after about 100 ms.
func (l *Log) AppendLazy(recs []Record) (first uint64, err error) {
	first, _, err = l.append(recs, nil, lazy)
	return first, err
}

// interest says how the caller of an append learns that it is durable.
type interest uint8

const (
	lazy     interest = iota // not at all, and without hurry
	callback                 // by a call of its done
	wait                     // by waiting for the chunk's flight
	lead                     // by waiting, without a wake-up of the flusher: it may flush by itself
)

func (l *Log) append(recs []Record, done func(error), how interest) (uint64, *flight, error) {
	size, err := l.unitSize(recs)
	if err != nil {
		return 0, nil, err
	}
	l.mu.Lock()
	if err := l.makeRoom(int64(size)); err != nil {
		l.mu.Unlock()
		return 0, nil, err
	}
	c := l.open
	idle := c.count == 0 && !c.awaited()
	first := l.next
	for i := range recs {
		l.put(c, &recs[i])
	}
	l.staged += int64(size)
	l.counts.appends++
	l.counts.records += uint64(len(recs))
	l.counts.bytes += uint64(size)
	rolled := len(l.ready) > 0
	switch how {
	case callback:
		c.done = append(c.done, done)
	case wait, lead:
		if c.wait == nil {
			c.wait = &flight{landed: make(chan struct{})}
		}
	}
	if how != lazy {
		c.units++
		idle = l.queued.Add(1) == 1 || idle
	}
	flight := c.wait
	l.mu.Unlock()
	if how == lazy && l.flusher.armed.Load() {
		idle = false // the flusher's timer will fire, so it needs no wake-up
	}
	if (idle || rolled) && how != lead {
		signal(l.wake)
	}
	return first, flight, nil
}

// signal leaves one token in c, whose capacity is 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// unitSize returns the bytes that recs take in a segment.
func (l *Log) unitSize(recs []Record) (int, error) {
	size := 0
	for i := range recs {
		n := len(recs[i].Body)
		if n > l.cfg.MaxRecordBytes {
			return 0, fmt.Errorf("append: record %d has %d bytes, the limit is %d: %w", i, n, l.cfg.MaxRecordBytes, ErrTooLarge)
		}
		size += frameSize(n)
		if capacity := int(l.cfg.SegmentBytes) - headerSize - footerSize - commitSize; size > capacity {
			return 0, fmt.Errorf("append: %d records take more than the %d bytes of one segment: %w", len(recs), capacity, ErrTooLarge)
		}
	}
	return size, nil
}

// makeRoom waits until a unit of size bytes can be staged at l.stage. If necessary it
// switches to the next segment. mu must be held; makeRoom releases it while it waits.
func (l *Log) makeRoom(size int64) error {
	for {
		switch {
		case l.closed:
			return ErrClosed
		case l.err != nil:
			return fmt.Errorf("%w: %w", ErrReadOnly, l.err)
		case size == 0:
			return nil
		case l.staged > maxStaged:
			l.changed.Wait()
		case l.stage.fits(size + commitSize):
			return nil
		case len(l.spares) > 0:
			l.changeOver()
		case l.preparer.err != nil:
			signal(l.prepare) // there may be space by now
			return fmt.Errorf("append: %w", l.preparer.err)
		default:
			signal(l.prepare)
			l.changed.Wait()
		}
	}
}

// changeOver closes the open chunk as the last one of its segment and moves the stage to
// a spare. mu must be held.
func (l *Log) changeOver() {
	s := l.spares[0]
	l.spares = append(l.spares[:0], l.spares[1:]...)
	id := l.stage.seg.id + 1
	next := &segment{
		id: id, base: l.next, end: l.next, size: l.cfg.SegmentBytes, seed: segmentSeed(l.store, id),
		file: s.file, spare: s.name, dataEnd: headerSize,
	}
	l.live = append(l.live, next)
	l.open.next = next
	l.closeOpen(false)
	l.stage = stage{seg: next, off: headerSize}
	l.recycle(l.open) // its offset is in the old segment
	l.open = l.newChunk()
	signal(l.prepare)
}

// put frames one record at the stage. mu must be held and makeRoom must have succeeded.
func (l *Log) put(c *chunk, r *Record) {
	n := frameSize(len(r.Body))
	b := c.grow(n)
	crc := putFrame(b, c.seg.seed, l.stage.off, frame{
		kind: r.Type, epoch: uint16(l.epoch), queue: r.Queue, seq: l.next, body: r.Body,
	})
	c.crcs = foldCRC(c.crcs, crc)
	c.count++
	l.next++
	l.stage.off += int64(n)
}

// grow extends the buffer by n bytes and returns these bytes.
func (c *chunk) grow(n int) []byte {
	l := len(c.buf)
	if cap(c.buf)-l < n {
		grown := alignedBytes(max(2*cap(c.buf), l+n, minChunk))
		c.buf = grown[:copy(grown, c.buf)]
	}
	c.buf = c.buf[:l+n]
	return c.buf[l:]
}

// alignedBytes returns at least n bytes that start at a page of memory, as direct writes
// require.
func alignedBytes(n int) []byte {
	n = (n + pageSize - 1) &^ (pageSize - 1)
	b := make([]byte, n+pageSize)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % pageSize)
	return b[skip : skip+n : skip+n]
}

// pages returns the whole pages of a closed chunk. Zeros follow the last record, where
// nothing was written yet. A write of whole pages spares the kernel a read of them first,
// and bypasses its cache where the file allows that. See flight for the gain.
func (c *chunk) pages() []byte {
	n := len(c.buf)
	clear(c.grow(-n & (pageSize - 1)))
	padded := c.buf
	c.buf = c.buf[:n]
	return padded
}

// closeOpen moves the open chunk to ready and opens the next one at the stage. It adds a
// commit if the chunk has records or if mark asks for an empty commit. mu must be held.
func (l *Log) closeOpen(mark bool) {
	c := l.open
	if c.count > 0 || mark {
		l.putCommit(c)
	}
	c.lastCommit = l.stage.commit
	l.ready = append(l.ready, c)
	l.open = l.newChunk()
}

// putCommit frames the commit of c at the stage. mu must be held.
func (l *Log) putCommit(c *chunk) {
	var body [commitBodySize]byte
	cm := commit{first: c.first, count: c.count, crcs: c.crcs, prev: uint64(l.stage.commit), durable: min(l.synced, c.first)}
	putFrame(c.grow(commitSize), c.seg.seed, l.stage.off, frame{
		kind: controlCommit, flags: flagControl, epoch: uint16(l.epoch), seq: l.next, body: cm.append(body[:0]),
	})
	l.stage.commit = l.stage.off
	l.stage.off += commitSize
	l.staged += commitSize
}

// newChunk returns an empty chunk at the stage. mu must be held.
func (l *Log) newChunk() *chunk {
	c := &chunk{}
	if n := len(l.free); n > 0 {
		c = l.free[n-1]
		l.free = l.free[:n-1]
	}
	c.seg, c.off, c.first = l.stage.seg, l.stage.off, l.next
	c.head = int(c.off & (pageSize - 1))
	c.grow(c.head)
	return c
}

// Number of chunks retained for reuse, and the largest and the smallest buffer of such a
// chunk.
const (
	maxFreeChunks = 4
	maxFreeBuffer = 4 << 20
	minChunk      = 32 << 10
)

// recycle retains a flushed chunk for reuse, so that an append allocates nothing
// (BenchmarkAppend). mu must be held.
func (l *Log) recycle(c *chunk) {
	if len(l.free) == maxFreeChunks || cap(c.buf) > maxFreeBuffer {
		return
	}
	clear(c.done)
	*c = chunk{buf: c.buf[:0], done: c.done[:0]}
	l.free = append(l.free, c)
}
