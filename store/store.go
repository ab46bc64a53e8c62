package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// LeastRevisionBytes is the smallest limit for the revisions of an app, in bytes.
const LeastRevisionBytes = 64 << 10

// Config configures a store. The zero value of a field means its default.
type Config struct {
	// Dir is the directory. It is created if it is missing. Required.
	Dir string
	// SegmentBytes is the size of a segment of history or logs, in bytes; default 64 MiB,
	// less than 1 GiB. Retention removes whole segments.
	SegmentBytes int64
	// Retain is the retention of apps without one of their own; default for ever. A store
	// that is opened to look at it removes nothing.
	Retain Retention
	// RevisionBytes is the size, in bytes on disk, of the revisions that an app shows, unless
	// it has a limit of its own: at least LeastRevisionBytes, default 256 MiB. Older revisions
	// are hidden, and removed in whole segments when no app shows one in a segment.
	RevisionBytes int64
	// AuditBytes is the size of the audit log on disk, in bytes; default 1 GiB. The oldest events
	// are removed in whole segments of up to 8 MiB.
	AuditBytes int64
	// MinFreeBytes is the free space of the disk, in bytes, below which writes fail with
	// [ErrFull]. The default is the space that badger might write in the background,
	// which grows with the data from 64 to 760 MiB (guard.go has the sum). With a smaller
	// value a full disk can kill the process.
	MinFreeBytes int64
	// Journal returns the span of the store's journal. Open calls it when the view must
	// be rebuilt, and rebuilds the view only if the journal has all records that the
	// snapshots lack. nil: Open checks nothing, which suits a store with a copy
	// elsewhere.
	Journal func() (Journal, error)
	// Logger receives the messages for operators; default: nothing is logged.
	Logger *slog.Logger

	// stat replaces statDisk in tests.
	stat func(dir string) (free, total int64, err error)
}

func (c *Config) setDefaults() error {
	if c.Dir == "" {
		return errors.New("no directory given")
	}
	c.SegmentBytes = cmp.Or(c.SegmentBytes, 64<<20)
	if c.SegmentBytes < 4<<10 || c.SegmentBytes >= 1<<30 {
		return fmt.Errorf("a segment of %d bytes: want 4 KiB to 1 GiB", c.SegmentBytes)
	}
	c.RevisionBytes = cmp.Or(c.RevisionBytes, 256<<20)
	c.AuditBytes = cmp.Or(c.AuditBytes, 1<<30)
	if c.RevisionBytes < LeastRevisionBytes {
		return fmt.Errorf("%d bytes of revisions for each app: want at least 64 KiB", c.RevisionBytes)
	}
	if c.Retain.Runs < 0 || c.Retain.Logs < 0 || c.MinFreeBytes < 0 {
		return errors.New("retention and free space must not be negative")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.stat == nil {
		c.stat = statDisk
	}
	return nil
}

const (
	lockName      = "lock"
	bootedName    = "booted"
	viewName      = "view"
	newViewName   = "view.new" // a view that is being rebuilt
	oldViewName   = "view.old" // the projection before a rebuild; the next full snapshot removes it
	historyName   = "history"
	keysName      = "keys"
	revisionsName = "revisions"
	auditName     = "audit"
	logsName      = "logs"
	snapshotsDir  = "snapshots"

	quarantineName = "quarantine" // originals that repairs replaced
)

// A Store is an open store. Its methods may be called concurrently, except that only one
// goroutine at a time may call Commit.
type Store struct {
	cfg       Config
	lock      *os.File
	db        *badger.DB
	history   *segment.Log
	logs      *segment.Log
	guard     *guard
	retention retention

	remembered *segment.Log // idempotency keys
	forgotten  atomic.Int64 // position before which no key is needed
	revisions  *segment.Log // of definitions
	audit      *segment.Log // audit events
	shares     shares
	removed    removals

	applied  atomic.Uint64
	recovers int64           // bytes that badger had not written to tables when the store was opened
	written  atomic.Int64    // bytes set in badger since then
	writing  sync.Mutex      // held while a commit writes to badger, which may take several transactions
	failed   error           // of a commit that failed half way: no other may follow; used by Commit only
	removes  bool            // of the last meta; used by Commit only
	encoder  encoder         // used by Commit only
	changes  revisionEncoder // used by Commit only

	pinned   atomic.Int64 // bytes set since the last snapshot
	snapshot sync.Mutex   // held during a snapshot; guards pin and chain
	pin      *badger.Txn  // of the last snapshot, see Snapshot; nil: the next one is full
	chain    chain        // the newest one
}

// ErrCorrupt means that bytes in a file differ from those that were written; the error
// names the file.
var ErrCorrupt = segment.ErrCorrupt

// ErrLocked means that another process has the store open.
var ErrLocked = errors.New("another process uses it")

// Open opens the store in cfg.Dir exclusively.
//
// If the view is missing, damaged, older than the newest snapshot, or in doubt after a
// power cut, Open rebuilds it from the newest complete chain of snapshots. Without a
// snapshot the store starts empty, at Applied() = 0.
func Open(cfg Config) (*Store, error) {
	s, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", cfg.Dir, err)
	}
	return s, nil
}

func open(cfg Config) (_ *Store, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, lock: lock, retention: retention{all: cfg.Retain}, shares: shares{limit: cfg.RevisionBytes}}
	s.shares.of = &s.retention
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.guard = &guard{dir: cfg.Dir, stat: cfg.stat, need: s.reserve}
	s.recovers = diskUsage(s.path(viewName), ".mem")
	if err := s.guard.check(0); err != nil {
		return nil, err
	}
	if s.chain, err = newestChain(s.path(snapshotsDir)); err != nil {
		return nil, err
	}
	m, err := s.openView()
	if err != nil {
		return nil, err
	}
	s.applied.Store(m.applied)
	if s.logs, err = segment.Open(s.path(logsName), segment.Options{Kind: "logs", SegmentBytes: cfg.SegmentBytes, Length: segment.Tail}); err != nil {
		return nil, err
	}
	s.tellMissing()
	return s, nil
}

// tellMissing logs a warning about files that were removed.
func (s *Store) tellMissing() {
	for name, l := range map[string]*segment.Log{historyName: s.history, keysName: s.remembered, revisionsName: s.revisions, auditName: s.audit, logsName: s.logs} {
		for _, g := range l.Missing() {
			s.cfg.Logger.Warn("store: files are missing and their contents are lost; restore them from a copy, or accept the loss with `wheelwork store repair`",
				"log", name, "from_position", g.From, "to_position", g.To, "between", rowTime(g.After), "and", rowTime(g.Before))
		}
	}
}

// rowTime formats the time of a row; 0 means none.
func rowTime(ms int64) string {
	if ms == 0 {
		return "unknown"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// lockDir creates the directory and locks it.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := lockFile(f)
	if err == nil && !taken {
		err = fmt.Errorf("%w: stop it, or choose another directory", ErrLocked)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// openView opens badger and the logs that belong to it. If the view cannot be used,
// openView first rebuilds it from the snapshots.
func (s *Store) openView() (meta, error) {
	m, err := s.tryView()
	if err == nil {
		return m, nil
	}
	if isTrouble(err) {
		return meta{}, err
	}
	if !errors.Is(err, errNoView) {
		s.cfg.Logger.Warn("store: the projection is rebuilt from the snapshots", "dir", s.cfg.Dir, "reason", err)
	}
	if err := s.closeView(); err != nil {
		s.cfg.Logger.Warn("store: close the old projection", "error", err)
	}
	has := Reach{Snapshot: s.chain.applied(), View: m.applied}
	if m.applied == 0 {
		has.Unread = err
	}
	if s.cfg.Journal != nil {
		j, unknown := s.cfg.Journal()
		if unknown != nil {
			return meta{}, fmt.Errorf("the projection must be rebuilt (%w), but the contents of the journal are unknown: %w", err, unknown)
		}
		if err := has.Check(j); err != nil {
			return meta{}, err
		}
	}
	if err := rebuild(s.cfg, s.chain, nil, s.oldView); err != nil {
		return meta{}, err
	}
	m, err = s.tryView()
	var short *segment.ShortError
	if errors.As(err, &short) {
		// Even the snapshots refer to runs that are in no segment, because files were
		// removed. The rest is sound.
		s.cfg.Logger.Error("store: finished runs, idempotency keys or revisions are missing", "error", err)
		return m, s.openLogs(m, true)
	}
	if errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: restore the file from a copy, or run `wheelwork store repair --dry-run` to list what is lost without it", err)
	}
	return m, err
}

// oldView returns the name to which Open moves the view that it replaces; "": it is
// removed. The moved view stays until the next full snapshot, because the replay that
// follows may fail. If an older view has the name already, that one stays: its
// replacement was made from snapshots alone.
func (s *Store) oldView() (string, error) {
	if _, err := os.Stat(s.path(oldViewName)); err == nil {
		return "", nil
	}
	return oldViewName, nil
}

var errNoView = errors.New("there is no projection yet")

// isTrouble reports whether an error has its cause outside the files, so that a rebuild
// would not help.
func isTrouble(err error) bool {
	for _, reason := range []error{os.ErrPermission, syscall.EIO, syscall.EROFS, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// tryView opens the present view. After an error, which has the reason, the caller closes
// the opened parts with closeView.
func (s *Store) tryView() (m meta, err error) {
	if _, err := os.Stat(s.path(viewName)); errors.Is(err, os.ErrNotExist) {
		return m, errNoView
	}
	if err := markBoot(s.cfg.Dir); err != nil {
		return m, err
	}
	if s.db, err = openBadger(s.path(viewName), s.cfg.Logger); err != nil {
		return m, err
	}
	err = s.db.View(func(txn *badger.Txn) error {
		if err := checkTorn(txn); err != nil {
			return err
		}
		m, err = readMeta(txn)
		return err
	})
	if err != nil {
		return m, err
	}
	if snapshot := s.chain.applied(); snapshot > m.applied {
		return m, fmt.Errorf("it includes the journal up to %d, but the newest snapshot up to %d", m.applied, snapshot)
	}
	return m, s.openLogs(m, false)
}

// openLogs opens the logs whose lengths belong to the view.
func (s *Store) openLogs(m meta, allowShort bool) error {
	if err := s.closeLogs(); err != nil {
		return err
	}
	if err := s.openHistory(m.history, allowShort); err != nil {
		return err
	}
	if err := s.openRemembered(m.keys, allowShort); err != nil {
		return err
	}
	if err := s.openRevisions(m.revisions, allowShort); err != nil {
		return err
	}
	if err := s.openAudit(m.audit, allowShort); err != nil {
		return err
	}
	s.removes = m.removes
	return errors.Join(s.loadShares(), s.loadRemoved())
}

func (s *Store) openHistory(length int64, allowShort bool) (err error) {
	s.history, err = segment.Open(s.path(historyName), segment.Options{
		Kind: "history", SegmentBytes: s.cfg.SegmentBytes, Length: length, AllowShort: allowShort,
	})
	return err
}

func (s *Store) closeLogs() error {
	var errs []error
	for _, l := range []*segment.Log{s.history, s.remembered, s.revisions, s.audit} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	s.history, s.remembered, s.revisions, s.audit = nil, nil, nil, nil
	return errors.Join(errs...)
}

// closeView closes badger and the logs that belong to it.
func (s *Store) closeView() error {
	err := s.closeLogs()
	if s.db != nil {
		err = errors.Join(err, s.closeBadger())
	}
	s.db = nil
	return err
}

// closeBadger closes badger if the disk has room for the tables that badger then writes.
// Without room badger would crash the process.
func (s *Store) closeBadger() error {
	free, _, err := s.cfg.stat(s.cfg.Dir)
	if err != nil {
		return err
	}
	if need := reserveFor(s.tableBytes(), s.recovers+s.written.Load()) - slack + closeSlack; free < need {
		return fmt.Errorf("%w: %s has %s free, and an orderly close may take %s: the store is closed without it, which loses nothing",
			ErrFull, s.cfg.Dir, mebibytes(free), mebibytes(need))
	}
	return s.db.Close()
}

// errBoot means that the machine stopped while the view was open. Badger does not sync
// its writes between tables, so the view may have holes.
var errBoot = errors.New("the machine stopped while it was open")

// markBoot records the boot of the machine during which the view is open. It does nothing
// if the system does not report a boot.
func markBoot(dir string) error {
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil //nolint:nilerr // not Linux
	}
	name := filepath.Join(dir, bootedName)
	switch before, err := os.ReadFile(name); {
	case err == nil && string(before) == string(now):
		return nil // the process was killed, but the machine ran on: the page cache has all writes
	case err == nil:
		return errBoot
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := writeSynced(name, now); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(name string, content []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// Applied returns the journal sequence that the view includes. The caller replays from
// the next one.
func (s *Store) Applied() uint64 { return s.applied.Load() }

// Close makes all commits durable and closes the store. No other method may run or be
// called later. [ErrFull] means that the disk had no room for that: the store is in the
// state after a kill, and the process should end.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// close closes the opened parts.
func (s *Store) close() error {
	s.releasePin()
	opened := s.db != nil && s.history != nil && s.remembered != nil && s.revisions != nil && s.audit != nil
	var err error
	if opened {
		err = errors.Join(s.history.Sync(), s.remembered.Sync(), s.revisions.Sync(), s.audit.Sync())
	}
	err = errors.Join(err, s.closeView())
	if s.logs != nil {
		err = errors.Join(err, s.logs.Close())
	}
	if opened && err == nil {
		err = os.Remove(s.path(bootedName)) // all rows are in tables and synced
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, s.lock.Close())
}

// reserve returns the bytes of the disk that must stay free now.
func (s *Store) reserve() int64 {
	if s.cfg.MinFreeBytes > 0 {
		return s.cfg.MinFreeBytes
	}
	return reserveFor(s.tableBytes(), s.recovers+s.written.Load())
}

// tableBytes returns the size of badger's tables.
func (s *Store) tableBytes() (n int64) {
	if s.db == nil {
		return diskUsage(s.path(viewName), ".sst")
	}
	for _, level := range s.db.Levels() {
		n += level.Size
	}
	return n
}

// RowBytes returns the approximate size of a snapshot of all rows that badger has
// flushed. Badger's tables are compressed, a snapshot is not.
func (s *Store) RowBytes() (n int64) {
	for _, t := range s.db.Tables() {
		n += int64(t.UncompressedSize)
	}
	return n
}

// Stats are sizes in bytes.
type Stats struct {
	History   int64 // finished runs
	Logs      int64 // lines of runs
	Keys      int64 // idempotency keys
	Revisions int64 // of definitions
	Audit     int64 // audit events
	Badger    int64 // the view
	Snapshots int64
	Free      int64 // of the disk, for this process
	Total     int64 // of the disk
	Reserve   int64 // part of Free that must stay free; below it writes fail
}

// Stats measures the disk. It is meant for a page or a scrape, not for a loop.
func (s *Store) Stats() Stats {
	free, total, err := s.cfg.stat(s.cfg.Dir)
	if err != nil {
		s.cfg.Logger.Warn("store: stats", "error", err)
	}
	return Stats{
		History:   s.history.Bytes(),
		Logs:      s.logs.Bytes(),
		Keys:      s.remembered.Bytes(),
		Revisions: s.revisions.Bytes(),
		Audit:     s.audit.Bytes(),
		Badger:    diskUsage(s.path(viewName), ""),
		Snapshots: diskUsage(s.path(snapshotsDir), ""),
		Free:      free,
		Total:     total,
		Reserve:   s.reserve(),
	}
}

func isTemporary(name string) bool { return strings.HasSuffix(name, temporary) }
