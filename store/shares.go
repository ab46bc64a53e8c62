package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// shares counts the bytes of revisions that each app shows in each segment. An app shows at
// most its limit: when a commit exceeds that, the app's oldest segments are hidden from its
// readers. A segment in which no app shows anything can be removed. It is safe for concurrent
// use.
//
// A row of the view holds the shares in a sealed segment. It is written with the first
// commit behind the segment and deleted after the segment was removed. Open reads the
// segments without a row, usually the active one alone.
type shares struct {
	limit int64      // of an app that has none of its own
	of    *retention // the limits of apps

	mu      sync.Mutex
	parts   []part           // oldest first; the last one is of the active segment
	total   map[string]int64 // bytes that an app shows
	gone    []int64          // bases of removed segments whose rows must be deleted
	changed bool             // pending may have rows
}

// part has the shares in one segment.
type part struct {
	base   int64   // position of the segment
	shares []share // sorted by app; without those of apps that show nothing there
	saved  bool    // the row exists
	unread bool    // a block could not be read: the segment stays
}

// share is what one app has in a segment.
type share struct {
	app    string
	bytes  int64
	lastMs int64 // time of its newest revision, Unix ms
}

// find returns the index of the app's share, or where it would be.
func (p *part) find(app string) (i int, ok bool) {
	return slices.BinarySearchFunc(p.shares, app, func(s share, app string) int { return strings.Compare(s.app, app) })
}

// add counts a block of an app in the segment with a base, which is the newest one.
func (k *shares) add(base int64, app string, b *segment.Block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.parts); n == 0 || k.parts[n-1].base != base {
		k.parts, k.changed = append(k.parts, part{base: base}), true
	}
	app = k.parts[len(k.parts)-1].add(app, b)
	k.total[app] += revisionBytes(b)
	k.enforce(app)
}

// add counts a block and returns a copy of the app's name: the caller's may be a part of a
// large text.
func (p *part) add(app string, b *segment.Block) string {
	i, ok := p.find(app)
	if !ok {
		p.shares = slices.Insert(p.shares, i, share{app: strings.Clone(app), lastMs: math.MinInt64})
	}
	s := &p.shares[i]
	s.bytes += revisionBytes(b)
	s.lastMs = max(s.lastMs, b.Max)
	return s.app
}

// revisionBytes returns the bytes of a block in its segment and in the index.
func revisionBytes(b *segment.Block) int64 { return blocksSize([]segment.Block{*b}) }

// enforce hides the app's oldest segments until it shows at most the limit. The newest one in
// which it has something stays, even if a large commit has filled that beyond the limit.
func (k *shares) enforce(app string) {
	limit := cmp.Or(k.of.of(app).RevisionBytes, k.limit)
	if k.total[app] <= limit {
		return
	}
	newest := len(k.parts) - 1
	for ; newest > 0; newest-- {
		if _, ok := k.parts[newest].find(app); ok {
			break
		}
	}
	for i := 0; i < newest && k.total[app] > limit; i++ {
		k.hide(&k.parts[i], app)
	}
}

func (k *shares) hide(p *part, app string) {
	i, ok := p.find(app)
	if !ok {
		return
	}
	if k.total[app] -= p.shares[i].bytes; k.total[app] == 0 {
		delete(k.total, app)
	}
	p.shares = slices.Delete(p.shares, i, i+1)
}

// floor returns the position before which an app shows no revisions.
func (k *shares) floor(app string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enforce(app) // the store was opened before the limit of the app was known
	for i := range k.parts {
		if _, ok := k.parts[i].find(app); ok || k.parts[i].unread {
			return k.parts[i].base
		}
	}
	return segment.End
}

// pending returns the rows that the next commit must write.
func (k *shares) pending() (rows []row) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.changed {
		return nil
	}
	for i := range k.parts[:max(len(k.parts)-1, 0)] {
		if p := &k.parts[i]; !p.saved && !p.unread {
			rows = append(rows, row{sharesKey(p.base), p.encode()})
		}
	}
	for _, base := range k.gone {
		rows = append(rows, row{sharesKey(base), nil})
	}
	return rows
}

// written notes that the view has the rows of pending. Only segments may have been removed
// since then.
func (k *shares) written(rows []row) {
	if len(rows) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range rows {
		base := sharesBase(r.key)
		if r.value == nil {
			k.gone = slices.DeleteFunc(k.gone, func(b int64) bool { return b == base })
		}
		if i, ok := k.find(base); ok {
			k.parts[i].saved = true
		}
	}
	k.changed = len(k.gone) > 0
}

// find returns the index of the segment with a base.
func (k *shares) find(base int64) (i int, ok bool) {
	return slices.BinarySearchFunc(k.parts, base, func(p part, base int64) int { return cmp.Compare(p.base, base) })
}

// sharesVersion is the format version of a row with shares.
const sharesVersion = 1

// encode returns the row: the version (1), and for each app its name with the length in
// front, bytes (uvarint) and the time of its newest revision (varint).
func (p *part) encode() []byte {
	b := []byte{sharesVersion}
	for _, s := range p.shares {
		b = appendString(b, s.app)
		b = binary.AppendUvarint(b, uint64(s.bytes))
		b = binary.AppendVarint(b, s.lastMs)
	}
	return b
}

// decode sets the shares from a row. It reports whether the row is sound.
func (p *part) decode(b []byte) bool {
	if len(b) == 0 || b[0] != sharesVersion {
		return false
	}
	in := parser{rest: b[1:]}
	last := ""
	for len(in.rest) > 0 {
		s := share{string(in.text()), int64(in.uvarint()), in.varint()}
		if in.bad || s.bytes < 0 || len(p.shares) > 0 && s.app <= last {
			return false
		}
		p.shares, last = append(p.shares, s), s.app
	}
	return !in.bad
}

// loadShares reads the shares of the segments from their rows, or from the segments.
func (s *Store) loadShares() error {
	k := &s.shares
	rows := map[int64]part{}
	err := s.db.View(func(txn *badger.Txn) error {
		return scan(txn, []byte{kindShares}, []byte{kindShares}, func(key, value []byte) error {
			if len(key) != 9 {
				return errKey
			}
			p := part{base: sharesBase(key), saved: true}
			if p.decode(value) { // otherwise the segment is read, and the row written again
				rows[p.base] = p
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	k.parts, k.total, k.gone, k.changed = nil, map[string]int64{}, nil, true
	segments := s.revisions.Segments()
	for i, at := range segments {
		p, ok := rows[at.From]
		delete(rows, at.From)
		if !ok || i == len(segments)-1 {
			if p, err = s.countShares(at); err != nil {
				return err
			}
		}
		k.parts = append(k.parts, p)
	}
	for base := range rows {
		k.gone = append(k.gone, base)
	}
	for i := range k.parts {
		for j := range k.parts[i].shares {
			sh := &k.parts[i].shares[j]
			k.total[sh.app] += sh.bytes
		}
	}
	return nil // floor and trim enforce the limits: those of apps are not known yet
}

// countShares reads a segment.
func (s *Store) countShares(at segment.Span) (part, error) {
	p := part{base: at.From}
	for b, err := range s.revisions.From(at.From) {
		if isTrouble(err) {
			return p, err
		}
		var damaged *segment.DamagedError
		if err == nil && b.Pos >= at.To || errors.As(err, &damaged) && damaged.Span.From >= at.To {
			break
		}
		var app string
		if err == nil {
			_, app, _, err = cutRevisionHead(b.Payload)
		}
		if err != nil {
			p.unread = true
			continue
		}
		p.add(app, &b)
	}
	return p, nil
}

// trimRevisions removes the segments in which no app shows anything. kept is the length in
// the newest snapshot: a store that is rebuilt from it must find the position where its
// revisions end.
func (s *Store) trimRevisions(kept int64) error {
	if _, err := s.shares.trim(s.revisions, kept); err != nil {
		return fmt.Errorf("remove old revisions: %w", err)
	}
	return nil
}

func (k *shares) trim(l *segment.Log, kept int64) (freed int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, app := range slices.Collect(maps.Keys(k.total)) {
		k.enforce(app)
	}
	empty := map[int64]bool{}
	for i := range k.parts[:max(len(k.parts)-1, 0)] {
		p := &k.parts[i]
		for _, s := range slices.Clone(p.shares) {
			if s.lastMs < k.of.of(s.app).revisionsFrom() {
				k.hide(p, s.app)
			}
		}
		if len(p.shares) == 0 && !p.unread {
			empty[p.base] = true
		}
	}
	if len(empty) == 0 {
		return 0, nil
	}
	freed, err = l.Remove(func(at segment.Span) bool { return empty[at.From] && at.To < kept })
	left := map[int64]bool{}
	for _, at := range l.Segments() {
		left[at.From] = true
	}
	k.parts = slices.DeleteFunc(k.parts, func(p part) bool {
		if !left[p.base] && empty[p.base] {
			k.gone, k.changed = append(k.gone, p.base), true
			return true
		}
		return false
	})
	return freed, err
}
