package mq

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// SyncPolicy says what has happened to a record when its Append is acknowledged.
type SyncPolicy uint8

const (
	// Always: the record was synced to the device. It survives a power cut.
	Always SyncPolicy = iota
	// Interval: the record is with the operating system, which is told to sync every 100 ms. It survives the death
	// of the process; a power cut takes up to the last 100 ms.
	Interval
	// OS: the record is with the operating system, which syncs when it likes. Segments are still synced when they
	// are sealed.
	OS
)

func (p SyncPolicy) String() string {
	switch p {
	case Always:
		return "always"
	case Interval:
		return "interval"
	case OS:
		return "os"
	}
	return fmt.Sprintf("SyncPolicy(%d)", uint8(p))
}

const (
	defaultSegmentBytes   = 64 << 20
	defaultMaxRecordBytes = 4 << 20
	defaultGather         = 40 * time.Microsecond
	defaultReserve        = 1 << 30

	// lazyDelay bounds how long a lazily appended record waits for company, how often Interval syncs, and how long
	// after the last group the log notes that the group is durable.
	lazyDelay = 100 * time.Millisecond

	// maxStaged bounds the bytes that wait for the flusher. Append waits above it.
	maxStaged = 32 << 20

	// maxSpares bounds the segments that are kept ready, freshly filled or recycled.
	maxSpares = 2

	lockName = "LOCK"

	autoWriter = "auto"
)

// Config describes a log. The zero value of every field but Dir is usable.
type Config struct {
	// Dir holds the log and nothing else. It is created when missing.
	Dir string

	// SegmentBytes is the size of a segment file, 64 KiB to 1 GiB; a multiple of 4 KiB. The default is 64 MiB. The records of one Append
	// must fit into one segment. A log may be reopened with another size; old segments keep theirs.
	SegmentBytes int64

	// First is the sequence of the first record of a log that is new: it continues one whose records are elsewhere. The
	// default is 1. A log that is there keeps what it has.
	First uint64

	// Writer chooses how bytes reach the disk: "pwrite" (pwrite and fdatasync), "direct" (the same around the page
	// cache; Linux, and not on every file system), "mmap" (stores through a mapping and msync; Linux) or "auto",
	// which tries all and takes mmap only when it is clearly faster. The default is "auto". All write the same
	// format, so that a log may be reopened with another one.
	Writer string

	// Sync is what an acknowledgement means. The default is Always.
	Sync SyncPolicy

	// MaxRecordBytes bounds the body of one record. The default is 4 MiB, or what fits into a segment.
	MaxRecordBytes int

	// Gather bounds how long a flush waits for producers that the previous flush released, so that they share
	// the next one. It costs a lone producer nothing. The default is 40 µs; a negative value switches it off.
	Gather time.Duration

	// ReserveBytes is the free disk space below which no new segment is prepared; Append then fails with ErrFull
	// before the disk is full. The default is 3 % of the file system, at most 1 GiB and at least two segments; a
	// negative value means none. Where free space cannot be read (not on Linux) it has no effect.
	ReserveBytes int64

	// ScrubBytesPerSecond is the rate at which sealed segments are read again and again to find rot. The default is
	// 32 MiB; a negative value switches it off.
	ScrubBytesPerSecond int64

	// OnCorrupt, when set, is called once for each segment in which scrubbing finds damage, on a goroutine of the
	// log. It must not call Close. See Log.Corruption.
	OnCorrupt func(*CorruptError)

	// OnFail, when set, is called once with the failure that makes the log read-only, on a goroutine of the log or of
	// a producer, before the callers of Append. It must not call the log.
	OnFail func(error)

	// Logger takes rare events: a cut tail, a failed sync, a disk without space. The default discards them.
	Logger *slog.Logger
}

func (c *Config) validate() error {
	if c.Dir == "" {
		return errors.New("mq: Config.Dir is empty")
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = defaultSegmentBytes
	}
	if c.SegmentBytes < minSegmentBytes || c.SegmentBytes > maxSegmentBytes || c.SegmentBytes%4096 != 0 {
		return fmt.Errorf("mq: Config.SegmentBytes is %d, it must be a multiple of 4096 from %d to %d",
			c.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	}
	largest := int(c.SegmentBytes) - headerSize - footerSize - commitSize - recordHeaderSize
	if c.MaxRecordBytes == 0 {
		c.MaxRecordBytes = min(defaultMaxRecordBytes, largest)
	}
	if c.MaxRecordBytes < 0 || c.MaxRecordBytes > largest {
		return fmt.Errorf("mq: Config.MaxRecordBytes is %d, a segment of %d bytes holds at most %d",
			c.MaxRecordBytes, c.SegmentBytes, largest)
	}
	if c.First == 0 {
		c.First = 1
	}
	if c.First > 1<<62 {
		return fmt.Errorf("mq: Config.First is %d, sequences end before 2^62", c.First)
	}
	if c.Writer == "" {
		c.Writer = autoWriter
	}
	if _, ok := writers[c.Writer]; !ok && c.Writer != autoWriter {
		return fmt.Errorf(`mq: Config.Writer is %q, it must be "auto", "pwrite", "direct" or "mmap"`, c.Writer)
	}
	if c.Sync > OS {
		return fmt.Errorf("mq: Config.Sync is %v, it must be Always, Interval or OS", c.Sync)
	}
	if c.Gather == 0 {
		c.Gather = defaultGather
	}
	if c.ScrubBytesPerSecond == 0 {
		c.ScrubBytesPerSecond = defaultScrubRate
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// reserve is the free space to leave on a file system of total bytes.
func (c *Config) reserve(total int64) int64 {
	switch {
	case c.ReserveBytes < 0:
		return 0
	case c.ReserveBytes > 0:
		return c.ReserveBytes
	}
	return max(min(total/100*3, defaultReserve), 2*c.SegmentBytes)
}

// Log is an open commit log. Its methods may be called concurrently.
//
// Four goroutines belong to it, from Open to Close: the flusher, which writes, syncs and calls back, the preparer,
// which fills the next segment, the scrubber, which looks for rot in those that are sealed, and the watcher, which
// looks whether the files are still there.
type Log struct {
	cfg     Config
	disk    disk
	store   storeID
	epoch   uint32
	access  access // the writer in use
	unlock  func() error
	scrub   *scrubber
	flusher *flusher

	wake     chan struct{} // capacity 1: there is something for the flusher
	prepare  chan struct{} // capacity 1: there may be something for the preparer
	stopping chan struct{} // closed by Close

	flushed  chan struct{} // closed when the flusher has ended
	prepared chan struct{} // closed when the preparer has ended
	watched  chan struct{} // closed when the watcher has ended

	// durable is the sequence behind the last acknowledged record; written by the flusher under mu.
	durable atomic.Uint64
	// queued counts the units that wait for a flush, so that gathering does not take the lock.
	queued atomic.Int64

	// trim serialises Trims. It is taken before mu.
	trim sync.Mutex

	// mu guards the fields below. It is never held during disk access.
	mu sync.Mutex
	// changed is broadcast when a waiting Append may go on: a spare arrived or was refused, staged bytes were
	// written, the log failed or closed.
	changed *sync.Cond
	// segs are the segments that Read sees: ascending, without a gap, never empty, all but the last sealed.
	segs []*segment
	// live are the segments that have a writer's handle: the last of segs and those staged behind it.
	live []*segment
	// next is the sequence of the next staged record. Invariant: durable <= next.
	next uint64
	// stage is where the next staged record goes. stage.seg may be a segment that is not in segs yet.
	stage stage
	// open takes records; ready are closed chunks in front of it. Invariant: chunks are flushed in order.
	open     *chunk
	ready    []*chunk
	free     []*chunk
	staged   int64 // bytes in open and ready, and in the hands of the flusher
	synced   uint64
	spares   []spare
	preparer struct {
		serial uint64 // number of the next spare file
		making int    // spares that are being filled: 0 or 1. Invariant: with these there are at most maxSpares
		err    error  // why there is no spare; nil while none was refused
		failed time.Time
	}
	err    error // the final error, nil while the log is writable
	closed bool
	counts counters

	closing  sync.Once
	closeErr error
}

// stage is the place of the next record in the log.
type stage struct {
	seg    *segment
	off    int64
	commit int64 // offset of the last commit in seg, 0 if there is none
	// sealed means that seg was found with its footer and takes nothing more.
	sealed bool
}

// fits reports whether n more bytes can be staged.
func (s *stage) fits(n int64) bool { return !s.sealed && s.off+n <= s.seg.limit() }

// spare is a file that is full of allocated, synced blocks and waits to become a segment.
type spare struct {
	name string
	file file
}

// First returns the sequence of the oldest record that can be read; it equals Next when there is none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segs[0].base
}

// Next returns the sequence that the next record will get. The first record of a new log has sequence 1.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Durable returns the sequence behind the last record that was acknowledged under the sync policy: all records
// below it are safe, and Durable equals Next when nothing is on its way.
func (l *Log) Durable() uint64 { return l.durable.Load() }

// Err returns the failure that made the log read-only, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Corruption returns the damage that scrubbing found in segments that the log still has, one for each, oldest segment
// first. The log goes on; the records there are lost unless Dir is restored from a copy.
func (l *Log) Corruption() []*CorruptError { return l.scrub.corruption() }

// Room returns the bytes that the active segment and the prepared ones can still take without new disk space. A record takes
// its body and 24 bytes, rounded up to 8; a flush adds 56. What one Append stages stays in one segment, so that
// changing over may leave up to the size of one Append unused per segment.
func (l *Log) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room()
}

// room is Room. mu must be held.
func (l *Log) room() int64 {
	room := int64(len(l.spares)) * (l.cfg.SegmentBytes - headerSize - footerSize - commitSize)
	if l.stage.fits(commitSize) {
		room += l.stage.seg.limit() - l.stage.off - commitSize
	}
	return room
}

type counters struct {
	appends, records, bytes, flushes, syncs, recycled uint64
	cut                                               int64
	lastFlush                                         time.Duration
}

// Stats is a snapshot of what a log did since Open and of what it holds.
type Stats struct {
	Writer    string        // "pwrite", "direct" or "mmap"
	Sync      SyncPolicy    // what an acknowledgement means
	Appends   uint64        // successful calls of Append and AppendLazy
	Records   uint64        // staged records
	Bytes     uint64        // staged bytes with framing
	Flushes   uint64        // groups written
	Syncs     uint64        // syncs of segment data
	LastFlush time.Duration // wall time of the latest group's write and sync
	Recycled  uint64        // segments that were trimmed and kept for reuse
	CutBytes  int64         // bytes of a torn tail that Open cleared

	Scrubbed uint64 // bytes that scrubbing read
	Passes   uint64 // of scrubbing over all sealed segments
	Corrupt  int    // segments in which it found damage; see Log.Corruption

	First, Next, Durable uint64
	Segments             int   // segments that hold records, the active one included
	Spares               int   // prepared segments
	DiskBytes            int64 // size of all of these
	StagedBytes          int64 // accepted and not yet acknowledged
	Room                 int64 // see Log.Room
}

// Stats returns a snapshot of the log's counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	s := Stats{
		Writer: l.access.String(), Sync: l.cfg.Sync,
		Appends: c.appends, Records: c.records, Bytes: c.bytes, Flushes: c.flushes, Syncs: c.syncs,
		LastFlush: c.lastFlush, Recycled: c.recycled, CutBytes: c.cut,
		First: l.segs[0].base, Next: l.next, Durable: l.durable.Load(),
		Segments: len(l.segs), Spares: len(l.spares),
		DiskBytes:   int64(len(l.spares)) * l.cfg.SegmentBytes,
		StagedBytes: l.staged, Room: l.room(),
	}
	for _, seg := range l.segs {
		s.DiskBytes += seg.size
	}
	s.Scrubbed, s.Passes = l.scrub.counts()
	s.Corrupt = len(l.scrub.corruption())
	return s
}

// Close flushes what was staged, lazily or not, calls all callbacks, and gives the directory back. It returns the
// error that made the log read-only, if there is one. Reads must have ended before. Closing twice is allowed.
func (l *Log) Close() error {
	l.closing.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Log) close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	close(l.stopping)
	<-l.flushed
	<-l.prepared
	<-l.scrub.ended
	<-l.watched

	l.trim.Lock() // a running Trim may still bring a spare
	defer l.trim.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.closeFiles(), l.unlock())
}

// closeFiles closes the writer's handles. mu must be held, and nobody else use them.
func (l *Log) closeFiles() error {
	var errs []error
	for _, s := range l.live {
		if s.file != nil {
			errs = append(errs, s.file.Close())
			s.file = nil
		}
	}
	for _, s := range l.spares {
		errs = append(errs, s.file.Close())
	}
	l.spares = nil
	return errors.Join(errs...)
}
