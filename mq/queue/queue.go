package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Config configures a queue. The zero value of every field but Dir is usable.
type Config struct {
	// Dir is the directory of the queue; other files must not be in it. It holds log/,
	// which is the truth, and index/, which may be deleted while the queue is closed. It
	// is created if it is missing.
	Dir string
	// Log configures the log below Dir. Open sets its Dir and Logger.
	Log mq.Config
	// Levels are the delays before the second, third and each later attempt; the last one
	// repeats. The default is 1s 5s 10s 30s 1m 5m 10m 30m 1h 2h.
	Levels []time.Duration
	// MaxAttempts is the number of failed deliveries after which a message is dead. The
	// default is 16.
	MaxAttempts int
	// Visibility is the time for which a consumer may hold a delivery. If the delivery is
	// neither acknowledged nor failed by then, it counts as failed at the next Fetch of
	// the group. The default is 0: as long as the consumer is open.
	Visibility time.Duration
	// DedupWindow is the time for which a deduplication key is remembered, by the wall
	// clock. The default is 10 minutes.
	DedupWindow time.Duration
	// DedupKeys bounds the remembered keys of all topics together; above it the oldest
	// are forgotten early. The default is 65 536, which take about 10 MB with keys of 36
	// bytes.
	DedupKeys int
	// MaxPending bounds the pending messages of one group: delayed, retrying, behind
	// another one of their key, or with a consumer. Each takes about 150 bytes of memory.
	// At the bound the group admits no further message until one is done. The default
	// is 1 048 576.
	MaxPending int
	// MaxDead bounds the dead letters, each of which takes about 150 bytes of memory. At
	// the bound a message that should become dead is retried at the last of the Levels
	// instead; none is lost. The default is 1 048 576.
	MaxDead int
	// RetainDead is the time after which dead letters are removed; default 0: they stay
	// until [Queue.Drop]. They are looked through once a minute.
	RetainDead time.Duration
	// CacheBytes bounds the memory for the most recent messages, from which consumers
	// that are fast enough are served. The default is 32 MiB.
	CacheBytes int

	Retention Retention
	Marks     Marks

	// OnDead is called for every dead letter once it is durable, in the order of ids and
	// from one goroutine. It is called at least once: again if the process died around
	// the call. The first Open with OnDead set reports all letters. It may use the queue.
	OnDead func(Dead)
	// OnMark is called when the use of the disk crosses a watermark in either direction,
	// by Open or by the goroutine of the periodic work. It must not wait for the queue.
	OnMark func(Mark)
	// Space returns the free and total bytes of the file system at a path. A total of 0
	// means unknown; then there are no watermarks. The default asks the operating system
	// (Linux only).
	Space func(path string) (free, total int64, err error)
	// Logger receives rare events. The default discards them.
	Logger *slog.Logger
}

// Retention says when messages are removed. Space is freed in whole segments of the log:
// about 1.5 segments always stay.
type Retention struct {
	// MaxAge removes messages that were published longer ago, including those that no
	// group has consumed; these are counted as lost. A message that is pending in a group
	// (delayed, retrying, with a consumer) stays. 0 means for ever. Then a topic without
	// groups, or a group without active consumers, prevents the trim of the log.
	MaxAge time.Duration
	// MaxBytes removes the oldest messages while the log holds more bytes, like MaxAge. 0
	// means no limit.
	MaxBytes int64
	// KeepConsumed is the time after publishing for which messages stay although every
	// group is done with them, for Peek and for future groups. The default is 0: they are
	// removed at once.
	KeepConsumed time.Duration
}

// Marks are the watermarks of the disk: percentages of the used file system at which the
// queue acts.
type Marks struct {
	Warn   int // a warning; default 75
	Early  int // KeepConsumed is ignored; default 85
	Refuse int // Publish returns ErrFull; default 95
}

// Mark is the use of the file system and its level.
type Mark struct {
	// Used is the used part of the file system, in percent.
	Used int
	// Level is "ok", "warn", "early" or "refuse".
	Level string
}

const (
	levelOK int32 = iota
	levelWarn
	levelEarly
	levelRefuse
)

var levelNames = [...]string{"ok", "warn", "early", "refuse"}

func (c *Config) validate() error {
	setDefault(&c.MaxAttempts, 16)
	setDefault(&c.DedupWindow, 10*time.Minute)
	setDefault(&c.DedupKeys, 1<<16)
	setDefault(&c.MaxPending, 1<<20)
	setDefault(&c.MaxDead, 1<<20)
	setDefault(&c.CacheBytes, 32<<20)
	setDefault(&c.Marks.Warn, 75)
	setDefault(&c.Marks.Early, 85)
	setDefault(&c.Marks.Refuse, 95)
	setDefault(&c.Log.SegmentBytes, 64<<20)
	if len(c.Levels) == 0 {
		c.Levels = []time.Duration{
			time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
			5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
		}
	}
	if c.Space == nil {
		c.Space = diskSpace
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	// All other records must fit as well: a dead letter wraps its message.
	largest := int(c.Log.SegmentBytes) - 8<<10
	setDefault(&c.Log.MaxRecordBytes, min(4<<20, largest))
	c.Log.Dir, c.Log.Logger = filepath.Join(c.Dir, "log"), c.Logger
	for _, l := range c.Levels {
		if l < 0 {
			return fmt.Errorf("%w: Config.Levels has the negative delay %v", ErrInvalid, l)
		}
	}
	r, m := c.Retention, c.Marks
	switch {
	case c.Dir == "":
		return fmt.Errorf("%w: Config.Dir is empty", ErrInvalid)
	case c.MaxAttempts < 0 || c.DedupWindow < 0 || c.DedupKeys < 0 || c.MaxPending < 0 || c.MaxDead < 0 || c.RetainDead < 0 || c.CacheBytes < 0 ||
		c.Visibility < 0 || r.MaxAge < 0 || r.MaxBytes < 0 || r.KeepConsumed < 0:
		return fmt.Errorf("%w: Config has a negative limit; 0 takes the default", ErrInvalid)
	case m.Warn < 0 || m.Warn > m.Early || m.Early > m.Refuse || m.Refuse > 100:
		return fmt.Errorf("%w: Config.Marks are %+v, they must go up and lie within 0 and 100", ErrInvalid, m)
	case c.Log.MaxRecordBytes < 2*overhead:
		return fmt.Errorf("%w: Config.Log.MaxRecordBytes is %d, it must be at least %d", ErrInvalid, c.Log.MaxRecordBytes, 2*overhead)
	}
	return nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// overhead is the largest size of a record of any kind without the body of its message.
const overhead = 8 << 10

// level returns the delay after so many failures.
func (c *Config) level(failures uint32) time.Duration {
	return c.Levels[min(int(failures), len(c.Levels))-1]
}

// Queue is an open message queue. Its methods may be called concurrently. After Close
// only Close may be called.
//
// It owns two goroutines from Open to Close: one does periodic work every second, one
// calls OnDead.
type Queue struct {
	cfg Config
	log *mq.Log

	// staging serialises appends to the log. It is locked before mu. No goroutine holds
	// mu while it appends to the log, because the log's own goroutine takes mu when
	// records have become durable.
	staging sync.Mutex
	names   map[string]*topic
	dedup   dedup
	closed  bool

	mu sync.Mutex
	state
	// live means that the replay is over.
	live   bool
	recent recent
	err    error // error of a record that does not fold: the log and the state disagree
	counts struct {
		published, duplicates, refusedDead uint64
	}

	cold cold
	disk struct {
		level atomic.Int32
		used  atomic.Int32
	}
	buried   chan struct{} // capacity 1: OnDead may be due for a dead letter
	stopping chan struct{}
	workers  sync.WaitGroup
	// trimming is held exclusively by a trim of the log and shared by copies of it.
	// Nothing is trimmed or copied forward during a copy.
	trimming sync.RWMutex
	// reading is held shared by readers of the log and exclusively by Close.
	reading  sync.RWMutex
	closing  sync.Once
	closeErr error

	// For the goroutine of the periodic work.
	kept            time.Time // time of the last snapshot
	keptAt          uint64    // sequence of the last snapshot
	checkpointBytes int64     // size of the last checkpoint
	patience        int64     // number of trims that freed nothing since the last one that did
	restUntil       time.Time // retention pauses until then
	dropped         time.Time // time of the last look for dead letters past their retention
	spaceless       bool      // the free space could not be read
}

// Open opens the queue in cfg.Dir, or creates it. It fails with mq.ErrLocked while
// another process has it open, and with a *mq.CorruptError if acknowledged data is
// damaged. It rebuilds missing or damaged files in index/ from the log, which takes a
// read of the whole log.
//
// To inspect the directory of a stopped server, open it and use Stats, Peek and Dead.
// That takes the lock, and nothing is delivered without a Consumer. Retention should then
// be that of the server, or zero.
func Open(cfg Config) (*Queue, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l, err := mq.Open(cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("queue: open %s: %w", cfg.Dir, err)
	}
	q := &Queue{
		cfg: cfg, log: l, names: map[string]*topic{}, state: newState(),
		recent: recent{limit: cfg.CacheBytes},
		buried: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	q.dedup = newDedup(cfg.DedupWindow, cfg.DedupKeys)
	err = q.load()
	if err == nil {
		err = q.raise(l.First())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("queue: open %s: %w", cfg.Dir, err), l.Close())
	}
	q.start()
	return q, nil
}

func (q *Queue) indexDir() string { return filepath.Join(q.cfg.Dir, "index") }

// start ends the replay.
func (q *Queue) start() {
	now := time.Now()
	for _, t := range q.topics {
		t.staged = t.index.next
		q.names[t.name] = t
	}
	for _, g := range q.groups {
		g.cursor = max(g.cursor, g.topic.base)
		g.start(now.UnixNano())
	}
	q.live = true
	q.kept, q.keptAt = now, q.applied
	q.checkDisk()
	q.workers.Go(q.keep)
	if q.cfg.OnDead != nil {
		wake(q.buried)
		q.workers.Go(q.alarm)
	}
}

// Close ends all waiting calls with ErrClosed, makes staged records durable, writes a
// snapshot and releases the directory. Deliveries that were not acknowledged are
// delivered again after the next Open. Close must not be called from OnDead or OnMark, or
// from a callback of Publish or Ack. Closing twice is allowed.
func (q *Queue) Close() error {
	q.closing.Do(func() { q.closeErr = q.close() })
	return q.closeErr
}

func (q *Queue) close() error {
	close(q.stopping)
	q.workers.Wait()
	_, flushErr := q.write()
	q.staging.Lock()
	q.closed = true
	q.staging.Unlock()
	q.reading.Lock()
	defer q.reading.Unlock()
	if flushErr == nil {
		flushErr = q.snapshot()
	}
	q.mu.Lock()
	if q.err == nil {
		q.err = ErrClosed
	}
	q.mu.Unlock()
	return errors.Join(flushErr, q.log.Close())
}

// read reads the log like mq.Log.Read.
func (q *Queue) read(from uint64, fn func(mq.Entry) error) error {
	q.reading.RLock()
	defer q.reading.RUnlock()
	return q.log.Read(from, fn)
}

// Sync waits until all earlier publishes, acknowledgements and failures are durable.
func (q *Queue) Sync() error {
	_, err := q.write()
	return err
}

// write appends records as one unit, waits until they are durable and folded, and returns
// the sequence of the first.
func (q *Queue) write(recs ...record) (uint64, error) {
	done := make(chan error, 1)
	q.staging.Lock()
	first, err := q.stage(recs, func(err error) { done <- err })
	q.staging.Unlock()
	if err != nil {
		return 0, err
	}
	return first, <-done
}

// stage appends records as one unit, folds them when they are durable, and then calls
// done. staging must be held.
func (q *Queue) stage(recs []record, done func(error)) (uint64, error) {
	if q.closed {
		return 0, ErrClosed
	}
	raw := make([]mq.Record, len(recs))
	for i, r := range recs {
		raw[i] = encode(r)
	}
	return q.stageRaw(recs, raw, done)
}

func (q *Queue) stageRaw(recs []record, raw []mq.Record, done func(error)) (uint64, error) {
	first := q.log.Next()
	_, err := q.log.Append(raw, func(err error) {
		if err == nil {
			err = q.settle(first, recs, raw)
		}
		done(err)
	})
	if err != nil {
		return 0, fmt.Errorf("queue: %w", err)
	}
	return first, nil
}

// settle folds records that have become durable.
func (q *Queue) settle(first uint64, recs []record, raw []mq.Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range recs {
		seq := first + uint64(i)
		if r.kind() == kindMessage {
			q.recent.add(seq, raw[i].Body)
		}
		if err := q.apply(r, seq, len(raw[i].Body)); err != nil {
			return q.broken(err)
		}
	}
	q.applied = max(q.applied, first+uint64(len(recs)))
	return nil
}

// stageEarly appends a record and folds it at once. The record must be one that a crash
// may lose, and that a replay may fold twice. done, which may be nil, is called when the
// record is durable. Without it the record is written with the next flush or after about
// 100 ms. staging must be held.
func (q *Queue) stageEarly(r record, done func(error)) error {
	if q.closed {
		return ErrClosed
	}
	raw := []mq.Record{encode(r)}
	var seq uint64
	var err error
	if done == nil {
		seq, err = q.log.AppendLazy(raw)
	} else {
		seq, err = q.log.Append(raw, done)
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.apply(r, seq, len(raw[0].Body)); err != nil {
		return q.broken(err)
	}
	return nil
}

// broken records that the state no longer follows the log. mu must be held.
func (q *Queue) broken(err error) error {
	if q.err == nil {
		q.err = fmt.Errorf("queue: %w", err)
		q.cfg.Logger.Error("the queue stops because its state and its log differ; open it again", "error", err)
	}
	return q.err
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// prepareIndex creates the directory of the derived files.
func (q *Queue) prepareIndex() error { return os.MkdirAll(q.indexDir(), 0o700) }
