package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// Journal is the span of records in the journal of a store: First <= sequence < Next. The
// zero value means that the span is unknown.
type Journal struct{ First, Next uint64 }

// Reach has the last records of the journal that the parts of a store include.
type Reach struct {
	Snapshot uint64 // last record in the newest snapshots; 0: there are none
	View     uint64 // last record in the view
	Unread   error  // reason why the view cannot be read, or is missing; View is 0 then
}

// ShortJournalError means that a view cannot be rebuilt from the snapshots and the
// journal without a loss.
type ShortJournalError struct {
	Reach
	Journal
}

func (e *ShortJournalError) Error() string {
	if e.Unread != nil && !e.startable() {
		return e.gap() + "; the view in between cannot be read: " + e.Unread.Error()
	}
	if !e.startable() {
		return e.gap()
	}
	first, last := e.Lost()
	return fmt.Sprintf("the journal ends with record %d, and the view includes the records up to %d: records %d to %d are in the view alone", e.Next-1, e.View, first, last)
}

func (e *ShortJournalError) gap() string {
	if e.First > e.Snapshot+1 {
		return fmt.Sprintf("the snapshots include the journal up to record %d, and the journal begins with record %d: records %d to %d are in neither", e.Snapshot, e.First, e.Snapshot+1, e.First-1)
	}
	return fmt.Sprintf("the snapshots include the journal up to record %d, and the journal ends with record %d: it is not the journal that belongs to this store", e.Snapshot, e.Next-1)
}

// Lost returns the first and the last record that the readable view includes and a
// rebuilt view would not. 0, 0 means none.
func (e *ShortJournalError) Lost() (first, last uint64) {
	first = e.Snapshot + 1
	if e.startable() {
		first = e.Next
	}
	if e.View < first {
		return 0, 0
	}
	return first, e.View
}

// startable reports whether a server can start on a rebuilt view.
func (e *ShortJournalError) startable() bool { return e.First <= e.Snapshot+1 && e.Snapshot < e.Next }

// Startable reports whether a server can start after the loss.
func (e *ShortJournalError) Startable() bool { return e.startable() }

// Check returns a [*ShortJournalError] if a rebuild of the view would lose records.
func (r Reach) Check(j Journal) error {
	if j == (Journal{}) {
		return nil
	}
	if e := (&ShortJournalError{r, j}); !e.startable() || r.View >= j.Next {
		return e
	}
	return nil
}

// Look returns the reach of the closed store in dir. It changes nothing there.
func Look(dir string) (Reach, error) {
	lock, err := lockDir(dir)
	if err != nil {
		return Reach{}, fmt.Errorf("store: look at %s: %w", dir, err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	c, err := newestChain(filepath.Join(dir, snapshotsDir))
	if err != nil {
		return Reach{}, fmt.Errorf("store: look at %s: %w", dir, err)
	}
	return look(dir, c), nil
}

func look(dir string, c chain) Reach {
	r := Reach{Snapshot: c.applied()}
	m, err := readView(filepath.Join(dir, viewName))
	if err != nil {
		return Reach{Snapshot: r.Snapshot, Unread: err}
	}
	r.View = m.applied
	return r
}

// readView reads the meta row of the closed view in dir. It does not open the database,
// which would write to it. The newest version of the row is in a table or in the log of a
// memtable; readView opens copies of such logs.
func readView(dir string) (meta, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return meta{}, errNoView
	}
	if err := checkTables(dir); err != nil {
		return meta{}, err
	}
	newest, version, err := rowInTables(dir)
	if err != nil {
		return meta{}, err
	}
	inLog, later, err := rowInLogs(dir)
	if err != nil {
		return meta{}, err
	}
	if later > version {
		newest = inLog
	}
	if newest == nil {
		return meta{}, nil // an empty view
	}
	return decodeMeta(newest)
}

// rowInTables returns the newest version of the meta row in the tables.
func rowInTables(dir string) (value []byte, version uint64, err error) {
	tables, err := listTables(dir)
	if err != nil {
		return nil, 0, err
	}
	for id, m := range tables {
		content, err := os.ReadFile(table.NewFilename(id, dir))
		if err != nil {
			return nil, 0, err
		}
		t, err := table.OpenInMemoryTable(content, id, &table.Options{Compression: m.Compression, BlockSize: tableBlock, ChkMode: options.NoVerification})
		if err != nil {
			return nil, 0, err
		}
		it := t.NewIterator(table.NOCACHE)
		it.Seek(y.KeyWithTs(viewKey(), math.MaxUint64))
		if it.Valid() && string(y.ParseKey(it.Key())) == string(viewKey()) && y.ParseTs(it.Key()) > version {
			version, value = y.ParseTs(it.Key()), append([]byte{}, it.Value().Value...)
		}
		if err := it.Close(); err != nil {
			return nil, 0, err
		}
	}
	return value, version, nil
}

// rowInLogs returns the newest version of the meta row in the logs of memtables.
func rowInLogs(dir string) (value []byte, version uint64, err error) {
	logs, err := filesEnding(dir, ".mem")
	if err != nil || len(logs) == 0 {
		return nil, 0, err
	}
	temp, err := os.MkdirTemp("", "wheelwork-view-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	for _, log := range logs {
		if err := copySparse(filepath.Join(temp, log), filepath.Join(dir, log)); err != nil {
			return nil, 0, err
		}
	}
	db, err := openChecked(temp, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(viewKey())
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			version = item.Version()
			value, err = item.ValueCopy(nil)
		}
		return err
	})
	return value, version, err
}

// filesEnding returns the names of the files in dir that end in one of the suffixes.
func filesEnding(dir string, suffixes ...string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if slices.Contains(suffixes, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// copySparse copies a file with holes: badger makes the logs of memtables longer than
// their contents.
func copySparse(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	var size int64
	for err == nil {
		var n int
		n, err = io.ReadFull(in, buf)
		if !isZero(buf[:n]) {
			if _, bad := out.WriteAt(buf[:n], size); bad != nil {
				err = bad
			}
		}
		size += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = out.Truncate(size)
	}
	return errors.Join(err, out.Close())
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
