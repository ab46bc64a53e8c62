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
	// chainLinks is the number of links of a chain, after which the next snapshot is
	// full.
	chainLinks = 16

	// pinLimit is the number of bytes of changes retained for the next link, see
	// Snapshot. If more has changed, the next snapshot is full.
	pinLimit = 512 << 20
)

// Snapshot writes a snapshot of the rows. It holds the changes since the last one, or all
// rows if there is no last one or if the chain has 16 files. It first syncs history,
// keys and revisions up to the same point. It returns the journal sequence up to which the
// journal may now be trimmed. It also syncs the logs, removes segments past their
// retention, and removes segments of forgotten keys and of
// hidden revisions. [ErrFull] means that the disk has no
// room for it.
//
// Badger forgets a deletion when no transaction can see an older version of the row. A
// later link would then lack the deletion, and a rebuild would bring the row back. The
// read transaction of a snapshot therefore stays open until the next snapshot: it makes
// badger retain all changes since then. It does not survive a restart, so the first
// snapshot of a process is full.
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
	changed := s.pinned.Load() // read before the transaction starts, which may see more changes but never fewer
	settled := s.removed.settled.Load()
	if s.pin != nil && changed == 0 {
		s.eraseAfter(ctx, settled)
		return s.chain.applied(), s.retain()
	}
	s.writing.Lock() // so that no commit of several transactions is visible in part
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
	if err := errors.Join(err, s.logs.Sync(), s.retain(), s.trimKeys(k.meta.keys), s.trimRevisions(k.meta.revisions), s.trimAudit(k.meta.audit)); err != nil {
		s.cfg.Logger.Warn("store: clean up after a snapshot", "error", err)
	}
	s.eraseAfter(ctx, settled)
	return k.meta.applied, nil
}

// eraseAfter erases removed runs after a snapshot. What fails is tried again with the next one.
func (s *Store) eraseAfter(ctx context.Context, settled int64) {
	if err := s.erase(ctx, settled); err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("store: erase removed runs", "error", err)
	}
}

// releasePin lets badger drop the changes that the next link would need.
func (s *Store) releasePin() {
	if s.pin != nil {
		s.pin.Discard()
		s.pin = nil
	}
	s.pinned.Store(0)
}

// writeSnapshot writes the next link from the rows that txn sees.
func (s *Store) writeSnapshot(ctx context.Context, txn *badger.Txn) (link, error) {
	m, err := readMeta(txn)
	if err != nil {
		return link{}, err
	}
	// The logs include the lengths in m, because commits append to them before they write
	// m.
	if err := errors.Join(s.history.Sync(), s.remembered.Sync(), s.revisions.Sync(), s.audit.Sync()); err != nil {
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

// nextLink returns the next link, the badger version since which it holds changes, and
// about how many bytes it may take.
func (s *Store) nextLink() (k link, since uint64, room int64) {
	n := len(s.chain.links)
	if s.pin == nil || n == chainLinks {
		return link{chain: s.chain.number + 1}, 0, s.RowBytes() + min(s.recovers+s.written.Load(), unflushedLimit)
	}
	return link{chain: s.chain.number, number: uint32(n), since: s.chain.applied()}, s.pin.ReadTs(), s.pinned.Load()
}

// addRows writes the newest version of each row that changed after since.
func addRows(ctx context.Context, w *snapWriter, txn *badger.Txn, since uint64) error {
	it := txn.NewIterator(badger.IteratorOptions{
		PrefetchValues: true,
		PrefetchSize:   100,
		AllVersions:    true, // includes deletions; the newest version of a key comes first
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

// removeOldChains removes all chains but one, and leftover files of crashes.
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

// collectValues lets badger remove value-log files whose values were replaced.
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
