package store

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// JobRow sets or deletes a job.
type JobRow struct {
	App, Name string
	Value     []byte // nil: delete
}

// RunRow sets or deletes a live run, that is, a run that has not ended.
type RunRow struct {
	App   string
	ID    [16]byte
	Value []byte // nil: delete
}

// ModuleRow sets or deletes a version of a module.
type ModuleRow struct {
	App, Name, Version string
	Value              []byte // nil: delete
}

// Row sets or deletes a small row, such as a counter. The caller chooses the key, for
// example "minute/default/00029384".
type Row struct {
	Key   string
	Value []byte // nil: delete
}

// Finished is a run that has ended. Commit appends it to the history.
type Finished struct {
	App, Job, Host, State string
	ID                    [16]byte // begins with its planned time, Unix ms, in 48 bits: a look-up starts there
	PlannedMs, FinishedMs int64    // Unix ms
	// The value of the run is Shared followed by Value. A block stores Shared once for
	// all its runs that have the identical slice.
	Shared, Value []byte
}

// A Batch is the content of one [Store.Commit]. The store neither retains nor changes its
// slices.
type Batch struct {
	Applied  uint64 // journal sequence that the rows include
	Jobs     []JobRow
	Stats    []JobRow // of jobs that exist
	Runs     []RunRow
	Modules  []ModuleRow
	Rows     []Row
	Finished []Finished // in the order in which they ended
	Removals []Removal
	// Settled is a position in the history: the caller passes no lower one to Since from
	// now on, also after a restart with these rows. It never decreases. Before it, the bytes of
	// removed runs may be erased.
	Settled int64
	Keys    []Keys // oldest first
	// Forgotten is a position in the log of keys: the caller no longer needs the keys
	// before it. It never decreases.
	Forgotten int64
	Revisions []Revision   // oldest first
	Audit     []AuditEntry // oldest first
}

// row is a key and a value of badger. A nil value deletes the key.
type row struct{ key, value []byte }

func (b *Batch) rows() []row {
	rows := make([]row, 0, len(b.Jobs)+len(b.Stats)+len(b.Runs)+len(b.Modules)+len(b.Rows)+1)
	for i := range b.Jobs {
		rows = append(rows, row{jobKey(b.Jobs[i].App, b.Jobs[i].Name), b.Jobs[i].Value})
	}
	for i := range b.Runs {
		rows = append(rows, row{runKey(b.Runs[i].App, b.Runs[i].ID), b.Runs[i].Value})
	}
	for i := range b.Modules {
		r := &b.Modules[i]
		rows = append(rows, row{moduleKey(r.App, r.Name, r.Version), r.Value})
	}
	for i := range b.Stats {
		rows = append(rows, row{statsKey(b.Stats[i].App, b.Stats[i].Name), b.Stats[i].Value})
	}
	for i := range b.Rows {
		rows = append(rows, row{rowKey(b.Rows[i].Key), b.Rows[i].Value})
	}
	return rows
}

// maxValue is the size limit of a value, in bytes.
const maxValue = 32 << 20

// rowOverhead is the largest number of bytes that badger adds to a row in its log.
const rowOverhead = 64

// checkRows returns the size of the rows in bytes, or an error if they cannot be written.
// Commit calls it before it writes anything, so a bad row cannot make it fail half way.
func checkRows(rows []row) (size int64, err error) {
	size = rowOverhead // the meta row
	for _, r := range rows {
		if len(r.key) > maxKey {
			return 0, fmt.Errorf("a key of %d bytes is over the limit of %d: %.60q", len(r.key), maxKey, r.key)
		}
		if len(r.value) > maxValue {
			return 0, fmt.Errorf("a value of %d bytes is over the limit of %d: %.60q", len(r.value), maxValue, r.key)
		}
		size += int64(len(r.key) + len(r.value) + rowOverhead)
	}
	return size, nil
}

// Commit writes the batch. It appends the finished runs to the history, and keys, revisions
// and audit events to their logs. Then it writes the rows, with the sequence up to which they include the
// journal, to badger. A large batch takes several transactions. After a crash between two
// of them Open rebuilds the rows from snapshots, so a batch is never visible in part.
//
// After [ErrFull] nothing was written and the same batch may be tried again. After any
// other error from badger the store accepts no further commits until it is opened again.
func (s *Store) Commit(b *Batch) error {
	if err := s.commit(b); err != nil {
		return fmt.Errorf("store: commit: %w", err)
	}
	return nil
}

func (s *Store) commit(b *Batch) error {
	if s.failed != nil {
		return fmt.Errorf("an earlier commit failed: %w", s.failed)
	}
	if b.Applied < s.Applied() {
		return fmt.Errorf("applied %d is less than the %d that is committed", b.Applied, s.Applied())
	}
	rows := b.rows()
	if len(b.Removals) > 0 {
		rows = append(rows, s.removalRows(b.Removals)...)
	}
	size, err := checkRows(rows)
	if err != nil {
		return err
	}
	blocks, err := s.encoder.encode(b.Finished)
	defer s.encoder.forget()
	if err != nil {
		return err
	}
	keys, err := keyBlocks(b.Keys)
	if err != nil {
		return err
	}
	if b.Forgotten > s.KeysLength() {
		return fmt.Errorf("%w: at %d, and not %d", errForgotten, s.KeysLength(), b.Forgotten)
	}
	changes, err := s.changes.encode(b.Revisions)
	defer s.changes.forget()
	if err != nil {
		return err
	}
	events := auditBlocks(b.Audit)
	if err := s.guard.check(size + blocksSize(blocks) + blocksSize(keys) + blocksSize(changes) + blocksSize(events)); err != nil {
		return err
	}
	m := meta{applied: b.Applied, history: s.history.Length(), keys: s.KeysLength(), revisions: s.revisions.Length(), audit: s.audit.Length(), removes: s.removes || len(b.Removals) > 0}
	if len(keys) > 0 { // first: if the history then fails, the log has some keys twice, which is harmless
		if m.keys, err = s.remembered.Append(keys...); err != nil {
			return fullOr(err)
		}
	}
	if len(changes) > 0 { // second: revisions that are in the log twice are read once
		if m.revisions, err = s.revisions.Append(changes...); err != nil {
			return fullOr(err)
		}
		for i := range changes {
			s.shares.add(s.revisions.Base(), s.changes.apps[i], &changes[i])
		}
	}
	if len(events) > 0 { // likewise
		if m.audit, err = s.audit.Append(events...); err != nil {
			return fullOr(err)
		}
	}
	if len(blocks) > 0 {
		if m.history, err = s.history.Append(blocks...); err != nil {
			return fullOr(err)
		}
	}
	// The history is now ahead of badger. If the rows fail, no commit may follow: it
	// would write the runs to the history a second time.
	counted := s.shares.pending()
	for _, r := range counted {
		size += int64(len(r.key) + len(r.value) + rowOverhead)
	}
	if err := s.write(append(rows, counted...), size, m, b.Removals); err != nil {
		s.failed = err
		return err
	}
	s.removes = m.removes
	s.removed.settled.Store(max(b.Settled, s.removed.settled.Load()))
	s.shares.written(counted)
	s.applied.Store(b.Applied)
	s.forgotten.Store(max(b.Forgotten, s.forgotten.Load()))
	s.written.Add(size)
	if s.pinned.Add(size) > pinLimit && s.snapshot.TryLock() {
		s.releasePin()
		s.snapshot.Unlock()
	}
	return nil
}

// A batch up to this size fits into one transaction by any count of badger.
const (
	oneRows  = 1000
	oneBytes = 256 << 10
)

// write sets the rows and the meta row. While that takes several transactions, another
// row marks the commit as incomplete: see errTorn.
func (s *Store) write(rows []row, size int64, m meta, removals []Removal) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	w := newWriter(s.db)
	defer w.discard()
	several := len(rows) > oneRows || size > oneBytes
	if several {
		if err := w.set(tornKey(), []byte{1}); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if err := w.set(r.key, r.value); err != nil {
			return err
		}
	}
	if err := w.set(viewKey(), m.encode()); err != nil {
		return err
	}
	if several {
		if err := w.set(tornKey(), nil); err != nil {
			return err
		}
	}
	if err := w.commit(); err != nil || len(removals) == 0 {
		return err
	}
	s.removed.add(removals)
	return nil
}

// errTorn means that a process ended between two transactions of a commit. Some rows are
// newer than others, and a replay would add its counts to the newer ones twice.
var errTorn = errors.New("a commit was under way when the process ended")

// checkTorn returns errTorn if the mark of an incomplete commit is present.
func checkTorn(txn *badger.Txn) error {
	_, err := txn.Get(tornKey())
	switch {
	case err == nil:
		return errTorn
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil
	}
	return err
}

// fullOr converts the system's error for a full disk to ErrFull.
func fullOr(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
