package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// Removal removes a finished run with its lines, or only its payload and its lines. A commit may have
// the run and its removal.
type Removal struct {
	App string
	ID  [16]byte
	// PayloadMs is the time at which the payload was deleted, Unix ms; 0: the run is removed.
	PayloadMs int64
}

// A removal is a mark in the view, and readers hide what is marked. After a snapshot the store rewrites
// the sealed segments that have the bytes of marked runs, and deletes the marks (ADR 64).
//
// In a rewritten block a removed run is a tombstone: its id, the key of its app in all four columns, and no
// value. The rows keep their places, so cursors stay valid.

// removals has the marks. It is safe for concurrent use.
type removals struct {
	n       atomic.Int64 // marks: readers that find 0 take no lock
	settled atomic.Int64 // see Batch.Settled
	purge   atomic.Pointer[func(value []byte, atMs int64) ([]byte, error)]

	mu    sync.RWMutex
	marks map[removedKey]mark
}

type removedKey struct {
	app uint64 // the key of the app
	id  [16]byte
}

type mark struct {
	app       string
	payloadMs int64
	pending   bool // no commit has it yet: nothing is erased
	// tight: the value without its payload is longer than before, as it has the time of the
	// deletion. The mark stays for as long as the run.
	tight bool
}

// SetPurge sets the function that returns the value of a finished run, or of the part of it that is not
// [Finished.Shared], without its payload. Without it a run whose payload is deleted is not shown. It is called before the first
// read or commit.
func (s *Store) SetPurge(fn func(value []byte, atMs int64) ([]byte, error)) {
	s.removed.purge.Store(&fn)
}

// removedRow returns the key in badger of a mark. Its value is the time of the deletion of the payload, 0
// for a removed run, as a varint.
func removedRow(app string, id [16]byte) []byte {
	return append(appendText([]byte{kindRemoved}, app), id[:]...)
}

func (s *Store) loadRemoved() error {
	k := &s.removed
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marks = map[removedKey]mark{}
	err := s.db.View(func(txn *badger.Txn) error {
		return scan(txn, []byte{kindRemoved}, []byte{kindRemoved}, func(key, value []byte) error {
			app, id, err := parseRunKey(key)
			ms, n := binary.Varint(value)
			if err != nil || n <= 0 {
				return errKey
			}
			k.marks[removedKey{lookup{byApp, app, "", ""}.hash(), id}] = mark{app: app, payloadMs: ms}
			return nil
		})
	})
	k.n.Store(int64(len(k.marks)))
	return err
}

// removalRows returns the rows of removals. A removed run stays removed.
func (s *Store) removalRows(all []Removal) []row {
	var rows []row
	for i := range all {
		r := &all[i]
		if m, ok := s.mark(lookup{byApp, r.App, "", ""}.hash(), r.ID); ok && m.payloadMs == 0 && r.PayloadMs != 0 && !m.pending {
			continue
		}
		rows = append(rows, row{removedRow(r.App, r.ID), binary.AppendVarint(nil, r.PayloadMs)})
	}
	return rows
}

// add adds marks that badger has now.
func (k *removals) add(all []Removal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range all {
		r := &all[i]
		at := removedKey{lookup{byApp, r.App, "", ""}.hash(), r.ID}
		if m, ok := k.marks[at]; !ok || m.payloadMs != 0 || m.pending && r.PayloadMs == 0 {
			k.marks[at] = mark{app: r.App, payloadMs: r.PayloadMs}
		}
	}
	k.n.Store(int64(len(k.marks)))
}

// Hide hides a run, or its payload, whose removal a later commit will have.
func (s *Store) Hide(r Removal) {
	k := &s.removed
	at := removedKey{lookup{byApp, r.App, "", ""}.hash(), r.ID}
	k.mu.Lock()
	defer k.mu.Unlock()
	if m, ok := k.marks[at]; ok && (!m.pending || m.payloadMs == 0) && (m.payloadMs == 0 || r.PayloadMs != 0) {
		return // it hides as much
	}
	k.marks[at] = mark{app: r.App, payloadMs: r.PayloadMs, pending: true}
	k.n.Store(int64(len(k.marks)))
}

// Shown returns the value of a run that has ended and is not in the store yet, as readers see it; nil: it is
// removed.
func (s *Store) Shown(app string, id [16]byte, value []byte) ([]byte, error) {
	if s.removed.n.Load() == 0 {
		return value, nil
	}
	switch m, ok := s.mark(lookup{byApp, app, "", ""}.hash(), id); {
	case !ok:
		return value, nil
	case m.payloadMs == 0:
		return nil, nil
	default:
		return s.purged(value, m.payloadMs)
	}
}

// mark returns the mark of a run.
func (s *Store) mark(app uint64, id [16]byte) (m mark, ok bool) {
	k := &s.removed
	if k.n.Load() == 0 {
		return m, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	m, ok = k.marks[removedKey{app, id}]
	return m, ok
}

// purged returns a value without its payload; nil: it cannot be shown.
func (s *Store) purged(value []byte, atMs int64) ([]byte, error) {
	fn := s.removed.purge.Load()
	if fn == nil {
		return nil, nil
	}
	return (*fn)(value, atMs)
}

// shown returns a copy of the value of row i as readers see it; nil: the run is removed.
func (s *Store) shown(runs *runBlock, i int, app uint64) ([]byte, error) {
	if runs.gone(i) {
		return nil, nil
	}
	m, ok := s.mark(app, runs.id(i))
	switch {
	case !ok:
		return runs.copyValue(i), nil
	case m.payloadMs == 0:
		return nil, nil
	}
	return s.purged(runs.copyValue(i), m.payloadMs)
}

const (
	passMarks    = 4096 // marks that a pass examines
	passTight    = 256  // of which are tight
	passSegments = 4    // segments that a pass rewrites
)

// Removing reports whether there are bytes of removed runs on the disk that a snapshot would delete.
func (s *Store) Removing() bool {
	k := &s.removed
	if k.n.Load() == 0 {
		return false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, m := range k.marks {
		if !m.tight && !m.pending {
			return true
		}
	}
	return false
}

// some returns the marks that a pass examines. The order of a map makes each pass take others.
func (k *removals) some() map[removedKey]mark {
	k.mu.RLock()
	defer k.mu.RUnlock()
	some, tight := map[removedKey]mark{}, 0
	for at, m := range k.marks {
		if len(some) == passMarks {
			break
		}
		if m.pending {
			continue
		}
		if m.tight {
			if tight++; tight > passTight {
				continue
			}
		}
		some[at] = m
	}
	return some
}

// erase rewrites segments with bytes of marked runs before the position settled of the history, and
// deletes the marks of runs that have no bytes left. It does a bounded part of the work.
func (s *Store) erase(ctx context.Context, settled int64) error {
	if s.removed.n.Load() == 0 {
		return nil
	}
	todo := s.removed.some()
	found, err := s.remains(ctx, todo, settled)
	if err != nil {
		return err
	}
	if err := s.forget(found.done); err != nil || len(found.history)+len(found.logs) == 0 {
		return err
	}
	if err := s.rewriteAll(ctx, found, settled); err != nil {
		return err
	}
	for at := range found.done {
		delete(todo, at)
	}
	if found, err = s.remains(ctx, todo, settled); err != nil {
		return err
	}
	return s.forget(found.done)
}

// remains has what is left of marked runs.
type remains struct {
	history, logs map[int64]bool // positions of segments to rewrite
	done          map[removedKey]mark
}

func (s *Store) remains(ctx context.Context, of map[removedKey]mark, settled int64) (remains, error) {
	r := remains{history: map[int64]bool{}, logs: map[int64]bool{}, done: map[removedKey]mark{}}
	for at, m := range of {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		history, err := s.inHistory(at, m, settled)
		if err != nil {
			if isDamage(err) {
				continue
			}
			return r, err
		}
		logs, err := s.inLogs(at, m)
		if err != nil {
			if isDamage(err) {
				continue
			}
			return r, err
		}
		switch {
		case history == clean && len(logs) == 0:
			r.done[at] = m
		case history >= 0:
			r.history[segmentOf(s.history, history)] = true
		}
		for _, pos := range logs {
			r.logs[segmentOf(s.logs, pos)] = true
		}
	}
	return r, nil
}

// The results of inHistory besides a position.
const (
	clean   = -1 // there are no bytes to delete
	waiting = -2 // they cannot be deleted now
)

// inHistory returns the position of the block with bytes of a marked run that can be deleted. Retention,
// which may be changed, hides no run from it.
func (s *Store) inHistory(at removedKey, m mark, settled int64) (pos int64, err error) {
	for b, err := range s.history.FindSince(findRun(at.app, m.app, at.id), bornMs(at.id)) {
		runs, err := readRuns(b, err)
		if err != nil {
			return 0, err
		}
		for i := range runs.n {
			if runs.id(i) != at.id || runs.columns(i).app != at.app || runs.gone(i) {
				continue
			}
			if m.payloadMs != 0 {
				own := runs.own.at(i)
				next, err := s.purged(own, m.payloadMs)
				switch {
				case err != nil:
					return 0, err
				case bytes.Equal(own, next):
					continue
				case next == nil || len(next) > len(own):
					s.removed.setTight(at)
					return waiting, nil
				}
			}
			if b.Pos >= settled {
				return waiting, nil
			}
			return b.Pos, nil
		}
	}
	return clean, nil
}

func (k *removals) setTight(at removedKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m, ok := k.marks[at]; ok && m.payloadMs != 0 {
		m.tight = true
		k.marks[at] = m
	}
}

// inLogs returns the positions of the blocks with lines of a run.
func (s *Store) inLogs(at removedKey, m mark) (all []int64, err error) {
	key := logKey(m.app, at.id)
	for b, err := range s.logs.Find([][]uint64{{key}}, segment.End) {
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(b, key)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			all = append(all, b.Pos)
		}
	}
	return all, nil
}

// segmentOf returns the position of the segment with a block.
func segmentOf(l *segment.Log, pos int64) int64 {
	for _, sp := range l.Segments() {
		if sp.From <= pos && pos < sp.To {
			return sp.From
		}
	}
	return -1
}

func (s *Store) rewriteAll(ctx context.Context, found remains, settled int64) error {
	budget := passSegments
	for _, part := range []struct {
		log   *segment.Log
		bases map[int64]bool
		edit  func() segment.Edit
	}{
		{s.history, found.history, func() segment.Edit { return s.editRuns(settled) }},
		{s.logs, found.logs, s.editLines},
	} {
		if part.bases[part.log.Base()] {
			if err := part.log.Seal(); err != nil {
				return fullOr(err)
			}
		}
		for _, sp := range part.log.Segments() {
			if !part.bases[sp.From] || budget == 0 {
				continue
			}
			budget--
			if err := errors.Join(ctx.Err(), s.guard.check(sp.To-sp.From)); err != nil {
				return err
			}
			if _, err := part.log.Rewrite(sp.From, part.edit()); err != nil {
				return fullOr(err)
			}
		}
	}
	return nil
}

// editRuns deletes the bytes of marked runs from a block of the history.
func (s *Store) editRuns(settled int64) segment.Edit {
	return func(pos int64, keys []uint64, payload []byte) bool {
		if pos >= settled {
			return false
		}
		runs, err := parseRuns(segment.Block{Pos: pos, Keys: keys, Payload: payload})
		if err != nil {
			return false // the block stays as it is
		}
		values, changed := make([][]byte, runs.n), false
		for i := range runs.n {
			own := runs.own.at(i)
			values[i] = own
			m, ok := s.mark(runs.columns(i).app, runs.id(i))
			if !ok || m.pending || runs.gone(i) {
				continue
			}
			if m.payloadMs == 0 {
				runs.bury(i)
				values[i], changed = nil, true
				continue
			}
			next, err := s.purged(own, m.payloadMs)
			if err == nil && next != nil && len(next) <= len(own) && !bytes.Equal(next, own) {
				values[i], changed = next, true
			}
		}
		if changed {
			runs.replace(values)
		}
		return changed
	}
}

// gone reports whether row i is a tombstone.
func (r *runBlock) gone(i int) bool { return r.place(i, 1) == r.place(i, 0) }

// bury makes row i a tombstone, except for its value.
func (r *runBlock) bury(i int) {
	for col := 1; col < r.col/2; col++ {
		to := r.place(i, 0)
		if col == 4 {
			to = 0 // a shared beginning
		}
		binary.LittleEndian.PutUint16(r.cols[r.col*i+2*col:], to)
	}
}

// replace replaces the values, which are together no longer than before, and clears the shared beginnings that no run
// has.
func (r *runBlock) replace(values [][]byte) {
	all := bytes.Join(values, nil)
	end := 0
	for i, v := range values {
		end += len(v)
		binary.LittleEndian.PutUint32(r.own.ends[4*i:], uint32(end))
	}
	clear(r.own.bytes[copy(r.own.bytes, all):])
	used := map[int]bool{}
	for i := range r.n {
		if r.col > 8 && !r.gone(i) {
			used[int(r.place(i, 4))] = true
		}
	}
	for i := range len(r.shared.ends) / 4 {
		if !used[i] {
			clear(r.shared.at(i))
		}
	}
}

// editLines deletes the lines of marked runs from a block of the logs.
func (s *Store) editLines() segment.Edit {
	k := &s.removed
	k.mu.RLock()
	keys := make(map[uint64]bool, len(k.marks))
	for at, m := range k.marks {
		if !m.pending {
			keys[logKey(m.app, at.id)] = true
		}
	}
	k.mu.RUnlock()
	return func(_ int64, _ []uint64, p []byte) (changed bool) {
		le := binary.LittleEndian
		for len(p) >= entryHead && int64(len(p)-entryHead) >= int64(le.Uint32(p[20:])) {
			end := entryHead + int(le.Uint32(p[20:]))
			if keys[le.Uint64(p)] {
				clear(p[:20])
				clear(p[entryHead:end])
				changed = true
			}
			p = p[end:]
		}
		return changed
	}
}

// forget deletes marks that have not changed.
func (s *Store) forget(done map[removedKey]mark) error {
	if len(done) == 0 {
		return nil
	}
	s.writing.Lock() // a commit may replace a mark
	defer s.writing.Unlock()
	k := &s.removed
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(done, func(at removedKey, m mark) bool {
		now, ok := k.marks[at]
		return !ok || now.pending || now.payloadMs != m.payloadMs
	})
	w := newWriter(s.db)
	defer func() { w.discard() }()
	var size int64
	for at, m := range done {
		key := removedRow(m.app, at.id)
		if err := w.set(key, nil); err != nil {
			return fmt.Errorf("delete the mark of a removed run: %w", err)
		}
		size += int64(len(key) + rowOverhead)
	}
	if err := w.commit(); err != nil {
		return fmt.Errorf("delete the marks of removed runs: %w", err)
	}
	for at := range done {
		delete(k.marks, at)
	}
	k.n.Store(int64(len(k.marks)))
	s.written.Add(size)
	s.pinned.Add(size)
	return nil
}
