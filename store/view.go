package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// Badger builds a table in a buffer that starts at twice the table size and grows by
// doubling. It retains eight buffers and returns one of them every two seconds, and none
// while it builds tables all the time. In the buffer a table takes twice the size of its
// rows.
//
// With these two sizes a memtable fits into a buffer of 0.5+1+2+4 MiB, including one
// transaction on top and rows of the largest size. So does a table of the last level,
// whose size counts compressed bytes. A transaction takes 15 % of a memtable and must
// hold the largest value that stays in tables. Level 0 is merged at 27 MiB: it has more
// tables because they are smaller.
const (
	memTableBytes = 3 << 20
	tableBytes    = 256 << 10
	tableBlock    = 16 << 10
	tableValue    = 448 << 10 // larger values go to badger's value log
	levelZero     = 9         // number of tables at which level 0 is merged into the next level
	levelZeroFull = 23        // number of tables at which writes wait for the merge
)

// badgerOptions returns options that were measured for this project; they are not
// badger's defaults.
func badgerOptions(dir string, logger *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(badgerLogger{logger}).
		WithMetricsEnabled(false).
		WithSyncWrites(false). // the journal is synced; the view can be rebuilt from it
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		WithMemTableSize(memTableBytes).
		WithBaseTableSize(tableBytes).
		WithNumMemtables(2).
		WithNumLevelZeroTables(levelZero).
		WithNumLevelZeroTablesStall(levelZeroFull).
		WithNumCompactors(2).
		WithNumGoroutines(2).
		WithCompactL0OnClose(true).
		WithCompression(options.Snappy). // tables are mapped, so their size on disk is their size in memory
		WithBlockSize(tableBlock).       // larger blocks compress better
		WithBlockCacheSize(8 << 20).
		WithIndexCacheSize(8 << 20).
		WithValueThreshold(tableValue). // values stay in the tables; the value log stays small
		WithValueLogFileSize(64 << 20).
		WithVerifyValueChecksum(true).
		WithChecksumVerificationMode(options.NoVerification) // checkTables has verified them
}

// badgerLogger writes badger's messages at a low level, because they are for its
// developers.
type badgerLogger struct{ l *slog.Logger }

func (b badgerLogger) Errorf(format string, args ...any)   { b.l.Warn(message(format, args)) }
func (b badgerLogger) Warningf(format string, args ...any) { b.l.Warn(message(format, args)) }
func (b badgerLogger) Infof(format string, args ...any)    { b.l.Debug(message(format, args)) }
func (b badgerLogger) Debugf(string, ...any)               {} // several per compaction

func message(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}

// openBadger opens the database in dir if its tables are sound.
func openBadger(dir string, logger *slog.Logger) (*badger.DB, error) {
	if err := checkTables(dir); err != nil {
		return nil, err
	}
	return openChecked(dir, logger)
}

// openChecked opens the database in dir. It returns badger's panics on some kinds of
// damage as errors.
func openChecked(dir string, logger *slog.Logger) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("badger: %v", p)
		}
	}()
	options := badgerOptions(dir, logger)
	large, err := largeMemTables(dir)
	if err != nil {
		return nil, err
	}
	if large { // closing flushes them to tables
		db, err = badger.Open(options.WithMemTableSize(largeMemTable).WithCompactL0OnClose(false))
		if err != nil {
			return nil, err
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
	}
	db, err = badger.Open(options)
	if err != nil {
		return nil, err // badger returns a half-open database with the error
	}
	return db, nil
}

// largeMemTable is at least the memtable size of every version of this program.
const largeMemTable = 8 << 20

// largeMemTables reports whether a killed process left a memtable log that may not fit
// into a memtable of the present size; badger would end the process over it. A version
// with larger memtables leaves such a log. So does an Open after a crash, which cuts the
// log to its length. Logs of the present size have the length that badger allocates,
// whatever they hold.
func largeMemTables(dir string) (bool, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".mem" {
			continue
		}
		st, err := file.Info()
		if err != nil {
			return false, err
		}
		if st.Size() != 2*memTableBytes {
			return true, nil
		}
	}
	return false, nil
}

// meta is the row that changes with every commit.
type meta struct {
	applied   uint64 // journal sequence that the rows include
	history   int64  // length of the history that belongs to the rows
	keys      int64  // length of the log of idempotency keys that belongs to the rows
	revisions int64  // length of the log of revisions that belongs to the rows
	audit     int64  // length of the audit log that belongs to the rows
	removes   bool   // a run was removed, now or before
}

// metaVersion is the format version of the row. Version 1, from when keys were rows, has
// no length of the keys. In version 2 the runs of a history block share no beginnings.
// The row itself is the same in version 3; programs that cannot read the newer blocks
// refuse it. Version 4 adds the length of the revisions; a store of an earlier version has
// none. Version 5 adds the length of the audit log in the same way. Version 6 is the same,
// and there are or were removals of runs, which earlier programs would show again.
const (
	metaVersion    = 5
	removesVersion = 6
)

func (m meta) encode() []byte {
	b := []byte{metaVersion}
	if m.removes {
		b[0] = removesVersion
	}
	b = binary.LittleEndian.AppendUint64(b, m.applied)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.history))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.keys))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.revisions))
	return binary.LittleEndian.AppendUint64(b, uint64(m.audit))
}

func decodeMeta(b []byte) (meta, error) {
	var m meta
	switch {
	case len(b) == 17 && b[0] == 1:
	case len(b) == 25 && (b[0] == 2 || b[0] == 3):
		m.keys = int64(binary.LittleEndian.Uint64(b[17:]))
	case len(b) == 33 && b[0] == 4, len(b) == 41 && (b[0] == metaVersion || b[0] == removesVersion):
		m.keys, m.revisions = int64(binary.LittleEndian.Uint64(b[17:])), int64(binary.LittleEndian.Uint64(b[25:]))
		if m.removes = b[0] == removesVersion; b[0] >= metaVersion {
			m.audit = int64(binary.LittleEndian.Uint64(b[33:]))
		}
	default:
		return meta{}, errors.New("the row with the end of the projection is damaged or of a newer version")
	}
	m.applied, m.history = binary.LittleEndian.Uint64(b[1:]), int64(binary.LittleEndian.Uint64(b[9:]))
	return m, nil
}

// readMeta returns the zero meta for an empty view.
func readMeta(txn *badger.Txn) (m meta, err error) {
	item, err := txn.Get(viewKey())
	if errors.Is(err, badger.ErrKeyNotFound) {
		return meta{}, errIfAny(txn)
	}
	if err != nil {
		return meta{}, err
	}
	err = item.Value(func(v []byte) error {
		m, err = decodeMeta(v)
		return err
	})
	return m, err
}

// errIfAny returns an error if the database has any row.
func errIfAny(txn *badger.Txn) error {
	it := txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	if it.Rewind(); it.Valid() {
		return errors.New("the row with the end of the projection is missing")
	}
	return nil
}

// writer sets rows in as few transactions as badger allows.
type writer struct {
	db  *badger.DB
	txn *badger.Txn
}

func newWriter(db *badger.DB) *writer { return &writer{db: db, txn: db.NewTransaction(true)} }

// set sets a row; a nil value deletes it. The caller must not change the slices until the
// writer is done.
func (w *writer) set(key, value []byte) error {
	err := w.try(key, value)
	if !errors.Is(err, badger.ErrTxnTooBig) {
		return err
	}
	if err := w.txn.Commit(); err != nil {
		return err
	}
	w.txn = w.db.NewTransaction(true)
	return w.try(key, value)
}

func (w *writer) try(key, value []byte) error {
	if value == nil {
		return w.txn.Delete(key)
	}
	return w.txn.Set(key, value)
}

func (w *writer) commit() error { return w.txn.Commit() }

// discard drops uncommitted rows; after commit it does nothing.
func (w *writer) discard() { w.txn.Discard() }

// diskUsage returns the bytes on disk of the files in dir whose names end in suffix. It
// ignores files that vanish meanwhile.
func diskUsage(dir, suffix string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { //nolint:errcheck // the function never fails
		if err != nil || d.IsDir() || !strings.HasSuffix(d.Name(), suffix) {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += allocated(info)
		}
		return nil
	})
	return n
}

// syncDir makes the names of the files in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
