package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// AuditEntry holds audit events that were made together. The events of a store have the
// sequences 1, 2, 3 and so on, over all entries.
type AuditEntry struct {
	First uint64 // sequence of the first event
	Pos   int64  // position in the log; readers set it
	AtMs  int64  // Unix ms
	Value []byte // the events, in the caller's encoding
	// Names are those by which the entry is found, each with a prefix that says what it is, as
	// "app/shop".
	Names []string
}

const (
	// auditKind is in every segment of the audit log.
	auditKind = "audit"

	// auditSegment is the size of a segment of the audit log, in bytes.
	auditSegment = 8 << 20

	// byAudit is the kind of the look-up of audit entries: a name; "" finds all.
	byAudit = 'e'
)

func (s *Store) openAudit(length int64, allowShort bool) (err error) {
	s.audit, err = segment.Open(s.path(auditName), segment.Options{
		Kind: auditKind, SegmentBytes: max(min(s.cfg.SegmentBytes, auditSegment, s.cfg.AuditBytes/16), 4<<10), Length: length, AllowShort: allowShort,
	})
	return err
}

// auditBlocks encodes entries as blocks, one each.
func auditBlocks(entries []AuditEntry) []segment.Block {
	blocks := make([]segment.Block, 0, len(entries))
	for _, e := range entries {
		keys := []uint64{lookup{kind: byAudit}.hash()}
		for _, name := range e.Names {
			keys = append(keys, lookup{kind: byAudit, a: name}.hash())
		}
		slices.Sort(keys)
		blocks = append(blocks, segment.Block{
			Min: e.AtMs, Max: e.AtMs, Keys: slices.Compact(keys),
			Payload: binary.LittleEndian.AppendUint64(nil, e.First), Rest: [][]byte{e.Value},
		})
	}
	return blocks
}

func parseAudit(b segment.Block) (AuditEntry, error) {
	if len(b.Payload) < 8 {
		return AuditEntry{}, fmt.Errorf("an audit entry of %d bytes: %w", len(b.Payload), ErrCorrupt)
	}
	return AuditEntry{Pos: b.Pos, First: binary.LittleEndian.Uint64(b.Payload), AtMs: b.Min, Value: slices.Clone(b.Payload[8:])}, nil
}

// FromEnd is the position at the end of the audit log.
const FromEnd = segment.End - 1

// Audit yields the entries that have all of the names, newest first: from the one at a position on,
// and only those that begin before a sequence; 0 is the end of the log. An entry is yielded if it may have such events: the caller looks at
// each. from and to bound the times of entries, in Unix ms. A damaged part of the log is an error
// ([ErrCorrupt]), after which the iteration continues with older entries.
func (s *Store) Audit(names []string, pos int64, before uint64, from, to int64) iter.Seq2[AuditEntry, error] {
	groups := [][]uint64{{lookup{kind: byAudit}.hash()}}
	for _, name := range names {
		groups = append(groups, []uint64{lookup{kind: byAudit, a: name}.hash()})
	}
	return func(yield func(AuditEntry, error) bool) {
		for b, err := range s.audit.FindBetween(groups, pos+1, from, to) {
			var e AuditEntry
			if err == nil {
				e, err = parseAudit(b)
			}
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					err = fmt.Errorf("store: audit: %w", err)
				}
				if !yield(e, err) {
					return
				}
				continue
			}
			// An entry whose commit was repeated is in the log twice.
			if before != 0 && e.First >= before {
				continue
			}
			before = e.First
			if e.AtMs < from || e.AtMs > to {
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// AuditFromStart yields all entries, oldest first. The error of a damaged part is [ErrCorrupt], after
// which the iteration continues behind it.
func (s *Store) AuditFromStart() iter.Seq2[AuditEntry, error] { return s.auditFrom(0) }

// AuditAfter yields the entries from the one with the event behind a sequence on, oldest first, like
// [Store.AuditFromStart]. Entries before it may come first. near is the position of an entry close to
// that event: of another store, or after a repair, it costs time and no entry.
func (s *Store) AuditAfter(sequence uint64, near int64) iter.Seq2[AuditEntry, error] {
	if s.auditBegins(near, sequence) {
		return s.auditFrom(near)
	}
	for _, at := range slices.Backward(s.audit.Segments()) {
		if s.auditBegins(at.From, sequence) {
			return s.auditFrom(at.From)
		}
	}
	return s.auditFrom(0)
}

// auditBegins reports whether the log from a position on has all events behind a sequence.
func (s *Store) auditBegins(pos int64, sequence uint64) bool {
	for e, err := range s.auditFrom(pos) {
		if err == nil {
			return e.First <= sequence+1
		}
	}
	return false
}

func (s *Store) auditFrom(pos int64) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		last := uint64(0)
		for b, err := range s.audit.From(pos) {
			var e AuditEntry
			if err == nil {
				e, err = parseAudit(b)
			}
			if err == nil && e.First <= last { // its commit was repeated
				continue
			}
			if err == nil {
				last = e.First
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// trimAudit removes the oldest segments of the audit log while it is larger than Config.AuditBytes. A
// segment that a snapshot needs stays.
func (s *Store) trimAudit(kept int64) error {
	excess := s.audit.Bytes() - s.cfg.AuditBytes
	if excess <= 0 {
		return nil
	}
	segments := s.audit.Segments()
	old := map[int64]bool{}
	for _, at := range segments[:max(len(segments)-1, 0)] {
		if excess <= 0 {
			break
		}
		old[at.From] = true
		excess -= at.To - at.From
	}
	if _, err := s.audit.Remove(func(at segment.Span) bool { return old[at.From] && at.To < kept }); err != nil {
		return fmt.Errorf("remove old audit events: %w", err)
	}
	return nil
}
