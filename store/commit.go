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

// RunRow sets or deletes a live run, one that has not finished.
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

// Row sets or deletes a small row: a counter, a minute. The key
// is the caller's, for example "minute/default/00029384".
type Row struct {
	Key   string
	Value []byte // nil: delete
}

// Finished is a run that has ended. It goes to the history.
type Finished struct {
	App, Job, Host, State string
	ID                    [16]byte // begins with its planned time, Unix ms, in 48 bits: where looking for it begins
	PlannedMs, FinishedMs int64    // Unix ms
	// The value of the run is Shared and then Value. The bytes of Shared are written once for
	// all runs of a block that have the very same slice.
	Shared, Value []byte
}

// A Batch is what [Store.Commit] writes at once. The store does not keep or
// change its slices.
type Batch struct {
	Applied  uint64 // journal sequence that the rows include
	Jobs     []JobRow
	Stats    []JobRow // of jobs that are there
	Runs     []RunRow
	Modules  []ModuleRow
	Rows     []Row
	Finished []Finished // in the order in which they ended
	Keys     []Keys     // the oldest first
	// Forgotten is a position in the log of keys: none before it is needed any more. It never goes back.
	Forgotten int64
}

// row is a key of badger with its value; nil deletes.
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

// maxValue is how large a value may be, bytes.
const maxValue = 32 << 20

// rowOverhead is what badger adds to a row in its log, at most.
const rowOverhead = 64

// checkRows returns how many bytes the rows take, or why they cannot be written.
// It comes before anything is written, so that a commit does not fail half way.
func checkRows(rows []row) (size int64, err error) {
	size = rowOverhead // the row with what they include
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

// Commit writes the batch: first its finished runs to the history and its keys to
// their log, then the rows, together with what they include, to badger. A large batch takes several
// transactions; after a crash between two of them the store is opened from its
// snapshots, so that there are never some rows of a batch without the others.
//
// [ErrFull]: nothing was written, the same batch may be tried again later. After
// any other error from badger the store accepts no more commits: it has to be
// opened again.
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
	if err := s.guard.check(size + blocksSize(blocks) + blocksSize(keys)); err != nil {
		return err
	}
	m := meta{applied: b.Applied, history: s.history.Length(), keys: s.KeysLength()}
	if len(keys) > 0 { // first: if the history then fails, some keys stand there twice, which does no harm
		if m.keys, err = s.remembered.Append(keys...); err != nil {
			return fullOr(err)
		}
	}
	if len(blocks) > 0 {
		if m.history, err = s.history.Append(blocks...); err != nil {
			return fullOr(err)
		}
	}
	// From here on the history is ahead of badger: only success may be followed by
	// another commit, or runs would stand in the history twice.
	if err := s.write(rows, size, m); err != nil {
		s.failed = err
		return err
	}
	s.applied.Store(b.Applied)
	s.forgotten.Store(max(b.Forgotten, s.forgotten.Load()))
	s.written.Add(size)
	if s.pinned.Add(size) > pinLimit && s.snapshot.TryLock() {
		s.releasePin()
		s.snapshot.Unlock()
	}
	return nil
}

// A batch up to this size fits into one transaction, however badger counts.
const (
	oneRows  = 1000
	oneBytes = 256 << 10
)

// write sets the rows, and what the view includes then. While that takes several
// transactions, a row says so: see errTorn.
func (s *Store) write(rows []row, size int64, m meta) error {
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
	return w.commit()
}

// errTorn says that a process ended between two transactions of a commit: some
// rows are newer than the others, and what a replay adds to them would count
// twice.
var errTorn = errors.New("a commit was under way when the process ended")

// checkTorn returns errTorn if it holds.
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

// fullOr turns the system's word for a full disk into ours.
func fullOr(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
