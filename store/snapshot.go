package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

const (
	// chainLinks is how many links a chain has before the next snapshot is full.
	chainLinks = 16

	// pinLimit is how many bytes of changes are kept for the next link, see
	// Snapshot. With more the next snapshot is full.
	pinLimit = 512 << 20
)

// Snapshot writes a snapshot of the rows: what changed since the last one or,
// when there is no other or its chain has 16 files, all. The history and the keys
// up to there are synced first. It returns the journal sequence number up to which the journal
// may be trimmed now. It also syncs the logs and removes segments that are older
// than the configuration keeps, and those with forgotten keys. [ErrFull]: there is no room for it.
//
// badger forgets a deletion as soon as no older version of the row is left that a
// transaction could see; a later link would not know of it, and the row would
// come back with a rebuild. So the transaction that a snapshot was read with
// stays open until the next one: it makes badger keep all that happened since.
// It does not survive a restart: the first snapshot of a process is full.
func (s *Store) Snapshot(ctx context.Context) (applied uint64, err error) {
	s.snapshot.Lock()
	defer s.snapshot.Unlock()
	applied, err = s.makeSnapshot(ctx)
	if err != nil {
		return 0, fmt.Errorf("store: snapshot: %w", err)
	}
	return applied, nil
}

func (s *Store) makeSnapshot(ctx context.Context) (uint64, error) {
	changed := s.pinned.Load() // before the transaction, which may see more, never less
	if s.pin != nil && changed == 0 {
		return s.chain.applied(), s.retain()
	}
	s.writing.Lock() // what it sees is whole
	txn := s.db.NewTransaction(false)
	s.writing.Unlock()
	k, err := s.writeSnapshot(ctx, txn)
	if err != nil {
		txn.Discard()
		return 0, err
	}
	if k.number == 0 {
		s.chain = chain{number: k.chain}
	}
	s.chain.links = append(s.chain.links, k)
	if s.pin != nil {
		s.pin.Discard()
	}
	s.pin = txn
	s.pinned.Add(-changed)
	if k.number == 0 {
		err = errors.Join(s.removeOldChains(k.chain), s.collectValues(), os.RemoveAll(s.path(oldViewName)))
	}
	if err := errors.Join(err, s.logs.Sync(), s.retain(), s.trimKeys(k.meta.keys)); err != nil {
		s.cfg.Logger.Warn("store: clean up after a snapshot", "error", err)
	}
	return k.meta.applied, nil
}

// releasePin lets badger forget what the next link would have needed.
func (s *Store) releasePin() {
	if s.pin != nil {
		s.pin.Discard()
		s.pin = nil
	}
	s.pinned.Store(0)
}

// writeSnapshot writes the next link from what txn sees.
func (s *Store) writeSnapshot(ctx context.Context, txn *badger.Txn) (link, error) {
	m, err := readMeta(txn)
	if err != nil {
		return link{}, err
	}
	// They include what m says: that was appended before m was committed.
	if err := errors.Join(s.history.Sync(), s.remembered.Sync()); err != nil {
		return link{}, err
	}
	k, since, room := s.nextLink()
	if err := s.guard.check(room); err != nil {
		return link{}, err
	}
	dir := s.path(snapshotsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return link{}, err
	}
	name := filepath.Join(dir, k.filename())
	f, err := os.Create(name + temporary)
	if err != nil {
		return link{}, fullOr(err)
	}
	w := newSnapWriter(f, k)
	if err = addRows(ctx, w, txn, since); err == nil {
		k, err = w.finish(m)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return link{}, fullOr(errors.Join(err, os.Remove(f.Name())))
	}
	return k, errors.Join(syncDir(dir), syncDir(s.cfg.Dir))
}

// nextLink says which link comes next, since which version of badger it holds
// what changed, and about how many bytes it may take.
func (s *Store) nextLink() (k link, since uint64, room int64) {
	n := len(s.chain.links)
	if s.pin == nil || n == chainLinks {
		return link{chain: s.chain.number + 1}, 0, s.RowBytes() + min(s.recovers+s.written.Load(), unflushedLimit)
	}
	return link{chain: s.chain.number, number: uint32(n), since: s.chain.applied()}, s.pin.ReadTs(), s.pinned.Load()
}

// addRows writes the newest version of each row that is newer than since.
func addRows(ctx context.Context, w *snapWriter, txn *badger.Txn, since uint64) error {
	it := txn.NewIterator(badger.IteratorOptions{
		PrefetchValues: true,
		PrefetchSize:   100,
		AllVersions:    true, // deletions, too; the newest version of a key comes first
		SinceTs:        since,
	})
	defer it.Close()
	var last []byte
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if bytes.Equal(item.Key(), last) {
			continue
		}
		last = append(last[:0], item.Key()...)
		deleted := item.IsDeletedOrExpired()
		if deleted && since == 0 {
			continue
		}
		err := item.Value(func(value []byte) error {
			w.add(last, value, deleted)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeOldChains removes all chains but one, and what crashes left.
func (s *Store) removeOldChains(keep uint64) error {
	dir := s.path(snapshotsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		k, ok := parseLinkName(e.Name())
		if ok && k.chain != keep || isTemporary(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// collectValues lets badger drop files with large values that were replaced.
func (s *Store) collectValues() error {
	if _, vlog := s.db.Size(); vlog <= 128<<20 {
		return nil
	}
	err := s.db.RunValueLogGC(0.5)
	if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
		return nil
	}
	return err
}
