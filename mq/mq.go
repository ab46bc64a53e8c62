package mq

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// SyncPolicy says how durable a record is when its Append is acknowledged.
type SyncPolicy uint8

const (
	// Always: the record was synced to the device. It survives a power cut.
	Always SyncPolicy = iota
	// Interval: the record is with the operating system, which the log tells to sync
	// every 100 ms. The record survives the death of the process. A power cut loses up to
	// the last 100 ms.
	Interval
	// OS: the record is with the operating system, which syncs when it chooses. Segments
	// are still synced when they are sealed.
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

	// lazyDelay is the longest time that a lazily appended record waits for other
	// records. It is also the interval of syncs under Interval, and the delay after which
	// the log notes that the last group is durable.
	lazyDelay = 100 * time.Millisecond

	// maxStaged bounds the bytes that wait for the flusher. Append waits above it.
	maxStaged = 32 << 20

	// maxSpares bounds the prepared segments, freshly filled or recycled.
	maxSpares = 2

	lockName = "LOCK"

	autoWriter = "auto"
)

// Config configures a log. The zero value of every field but Dir is usable.
type Config struct {
	// Dir is the directory of the log; other files must not be in it. It is created if it
	// is missing.
	Dir string

	// SegmentBytes is the size of a segment file, 64 KiB to 1 GiB, a multiple of 4 KiB.
	// The default is 64 MiB. The records of one Append must fit into one segment. A log
	// may be reopened with another size; old segments retain theirs.
	SegmentBytes int64

	// First is the sequence of the first record of a new log. A log that continues
	// another one sets it. The default is 1. It has no effect on an existing log.
	First uint64

	// Writer selects how bytes reach the disk: "pwrite" (pwrite and fdatasync), "direct"
	// (the same around the page cache; Linux, and not on every file system), "mmap"
	// (stores to a mapping and msync; Linux) or "auto". "auto", the default, tries all
	// and takes mmap only if it is clearly faster. All write the same format, so a log
	// may be reopened with another writer.
	Writer string

	// Sync defines what an acknowledgement means. The default is Always.
	Sync SyncPolicy

	// MaxRecordBytes bounds the body of one record. The default is 4 MiB, or less if a
	// segment is smaller.
	MaxRecordBytes int

	// Gather bounds the time that a flush waits for producers that the previous flush
	// released, so that they share the next one. It costs a lone producer nothing. The
	// default is 40 µs; a negative value switches it off.
	Gather time.Duration

	// ReserveBytes is the free disk space below which no new segment is prepared. Append
	// then fails with ErrFull before the disk is full. The default is 3 % of the file
	// system, at most 1 GiB and at least two segments; a negative value means none. It
	// has no effect where free space cannot be read (anywhere but on Linux).
	ReserveBytes int64

	// ScrubBytesPerSecond is the rate at which the log rereads sealed segments to detect
	// damage. The default is 32 MiB; a negative value switches it off.
	ScrubBytesPerSecond int64

	// OnCorrupt, if set, is called once for each segment in which scrubbing finds damage,
	// on a goroutine of the log. It must not call Close. See Log.Corruption.
	OnCorrupt func(*CorruptError)

	// OnFail, if set, is called once with the failure that makes the log read-only, on a
	// goroutine of the log or of a producer, before the callbacks of Append. It must not
	// call the log.
	OnFail func(error)

	// Logger receives rare events: a cut tail, a failed sync, a full disk. The default
	// discards them.
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

// reserve returns the free space to leave on a file system of total bytes.
func (c *Config) reserve(total int64) int64 {
	switch {
	case c.ReserveBytes < 0:
		return 0
	case c.ReserveBytes > 0:
		return c.ReserveBytes
	}
	return max(min(total/100*3, defaultReserve), 2*c.SegmentBytes)
}

// Log is an open log. Its methods may be called concurrently.
//
// It owns four goroutines from Open to Close. The flusher writes, syncs and calls back.
// The preparer fills the next segment. The scrubber checks sealed segments for damage.
// The watcher checks that the files still exist.
type Log struct {
	cfg     Config
	disk    disk
	store   storeID
	epoch   uint32
	access  access // the writer in use
	unlock  func() error
	scrub   *scrubber
	flusher *flusher

	wake     chan struct{} // capacity 1: the flusher may have work
	prepare  chan struct{} // capacity 1: the preparer may have work
	stopping chan struct{} // closed by Close

	flushed  chan struct{} // closed when the flusher has ended
	prepared chan struct{} // closed when the preparer has ended
	watched  chan struct{} // closed when the watcher has ended

	// durable is the sequence behind the last acknowledged record. The flusher writes it
	// under mu.
	durable atomic.Uint64
	// queued is the number of units that wait for a flush. It is atomic so that gather
	// needs no lock.
	queued atomic.Int64

	// trim serialises Trims. It is locked before mu.
	trim sync.Mutex

	// mu guards the fields below. No goroutine holds it during disk access.
	mu sync.Mutex
	// changed is broadcast when a waiting Append may continue: a spare arrived or was
	// refused, staged bytes were written, or the log failed or closed.
	changed *sync.Cond
	// segs are the segments that Read sees: ascending, without a gap, never empty, all
	// but the last sealed.
	segs []*segment
	// live are the segments with a writer's handle: the last of segs and the staged ones
	// behind it.
	live []*segment
	// next is the sequence of the next staged record. Invariant: durable <= next.
	next uint64
	// stage is the position of the next staged record. stage.seg may be a segment that is
	// not in segs yet.
	stage stage
	// open takes records; ready holds the closed chunks before it. Invariant: chunks are
	// flushed in order.
	open     *chunk
	ready    []*chunk
	free     []*chunk
	staged   int64 // bytes in open, in ready and with the flusher
	synced   uint64
	spares   []spare
	preparer struct {
		serial uint64 // number of the next spare file
		making int    // number of spares being filled, 0 or 1. Invariant: at most maxSpares including these
		err    error  // reason why there is no spare; nil if none was refused
		failed time.Time
	}
	err    error // the final error, nil while the log is writable
	closed bool
	counts counters

	closing  sync.Once
	closeErr error
}

// stage is the position of the next record in the log.
type stage struct {
	seg    *segment
	off    int64
	commit int64 // offset of the last commit in seg, 0 if there is none
	// sealed means that seg was found with its footer and takes no more records.
	sealed bool
}

// fits reports whether n more bytes can be staged.
func (s *stage) fits(n int64) bool { return !s.sealed && s.off+n <= s.seg.limit() }

// spare is a file of allocated, synced blocks that will become a segment.
type spare struct {
	name string
	file file
}

// First returns the sequence of the oldest readable record. It equals Next if there is
// none.
func (l *Log) First() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segs[0].base
}

// Next returns the sequence of the next record. The first record of a new log has
// sequence 1 unless Config.First says otherwise.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Durable returns the sequence behind the last record that was acknowledged under the
// sync policy. All records below it are safe. It equals Next when no record waits for the
// disk.
func (l *Log) Durable() uint64 { return l.durable.Load() }

// Err returns the failure that made the log read-only, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Corruption returns the damage that scrubbing found in segments of the log, one entry
// per segment, oldest segment first. The log continues to work; the damaged records are
// lost unless Dir is restored from a copy.
func (l *Log) Corruption() []*CorruptError { return l.scrub.corruption() }

// Room returns the bytes that the active and the prepared segments can still take without
// new disk space. A record takes its body and 24 bytes, rounded up to 8; a flush adds 56.
// The records of one Append are in one segment, so up to the size of one Append per
// segment may remain unused.
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

// Stats describes the activity of a log since Open and its present contents.
type Stats struct {
	Writer    string        // "pwrite", "direct" or "mmap"
	Sync      SyncPolicy    // what an acknowledgement means
	Appends   uint64        // successful calls of Append and AppendLazy
	Records   uint64        // staged records
	Bytes     uint64        // staged bytes with framing
	Flushes   uint64        // groups written
	Syncs     uint64        // syncs of segment data
	LastFlush time.Duration // wall time of the latest group's write and sync
	Recycled  uint64        // trimmed segments that were retained for reuse
	CutBytes  int64         // bytes of a torn tail that Open cleared

	Scrubbed uint64 // bytes that scrubbing read
	Passes   uint64 // complete passes of scrubbing over all sealed segments
	Corrupt  int    // segments in which scrubbing found damage; see Log.Corruption

	First, Next, Durable uint64
	Segments             int   // segments that hold records, including the active one
	Spares               int   // prepared segments
	DiskBytes            int64 // total size of segments and spares
	StagedBytes          int64 // bytes accepted and not acknowledged yet
	Room                 int64 // see Log.Room
}

// Stats returns the current statistics of the log.
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

// Close flushes all staged records, including lazy ones, runs all callbacks and releases
// the directory. It returns the error that made the log read-only, if any. All Reads must
// have ended before. Closing twice is allowed.
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

	l.trim.Lock() // a running Trim may still add a spare
	defer l.trim.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.closeFiles(), l.unlock())
}

// closeFiles closes the writer's handles. mu must be held and no goroutine may use the
// handles.
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
