package store

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// Copied describes a copy of a store.
type Copied struct {
	Applied uint64 // journal sequence that the copy includes
	Bytes   int64  // an estimate in the argument of begin, exact in the result
}

// Copy writes the store as it is at one moment. It first calls begin with the size to
// expect. Then it calls create for each file, with its name in the store's directory and
// its size, or -1 if the size is not known. A directory with these files opens as a store
// that includes the journal up to Applied. The store continues to work meanwhile; only
// its retention waits.
//
// The rows are written as a snapshot with a chain of its own. They are read from badger
// and not from existing snapshots, so nothing has to be flushed before.
func (s *Store) Copy(ctx context.Context, begin func(Copied) error, create func(name string, size int64) (io.Writer, error)) (Copied, error) {
	c, err := s.copyTo(ctx, begin, create)
	if err != nil {
		return c, fmt.Errorf("store: copy: %w", err)
	}
	return c, nil
}

func (s *Store) copyTo(ctx context.Context, begin func(Copied) error, create func(string, int64) (io.Writer, error)) (c Copied, err error) {
	s.writing.Lock() // so that no commit of several transactions is visible in part
	txn := s.db.NewTransaction(false)
	s.writing.Unlock()
	defer txn.Discard()
	m, err := readMeta(txn)
	if err != nil {
		return c, err
	}
	c.Applied = m.applied
	history, release := s.history.Pieces(m.history)
	defer release()
	keys, release := s.remembered.Pieces(m.keys)
	defer release()
	revisions, release := s.revisions.Pieces(m.revisions)
	defer release()
	audit, release := s.audit.Pieces(m.audit)
	defer release()
	logs, release := s.logs.Pieces(segment.Tail)
	defer release()
	c.Bytes = s.tableBytes()
	for _, p := range slices.Concat(history, keys, revisions, audit, logs) {
		c.Bytes += p.Size
	}
	if err := begin(c); err != nil {
		return c, err
	}
	c.Bytes = 0
	k := link{chain: 1}
	w, err := create(path.Join(snapshotsDir, k.filename()), -1)
	if err != nil {
		return c, err
	}
	rows := newSnapWriter(w, k)
	if err := addRows(ctx, rows, txn, 0); err != nil {
		return c, err
	}
	if k, err = rows.finish(m); err != nil {
		return c, err
	}
	c.Bytes += k.size
	for _, part := range []struct {
		dir    string
		pieces []segment.Piece
	}{{historyName, history}, {keysName, keys}, {revisionsName, revisions}, {auditName, audit}, {logsName, logs}} {
		for _, p := range part.pieces {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			w, err := create(path.Join(part.dir, p.Name), p.Size)
			if err != nil {
				return c, err
			}
			n, err := io.Copy(w, p.Open())
			if c.Bytes += n; err == nil && n != p.Size {
				err = fmt.Errorf("%s has %d bytes instead of %d: %w", p.Name, n, p.Size, ErrCorrupt)
			}
			if err != nil {
				return c, err
			}
		}
	}
	return c, nil
}
