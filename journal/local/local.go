// Package local is the journal of a single machine: one mq log for all slots,
// so that one flush serves them all and replay is one sequential pass.
//
// A body in the log:
//
//	| slot index (1) | length of the app's name (1) | name | record |
package local

import (
	"errors"
	"fmt"

	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/mq"
)

const recordType = 1

// Journal implements [journal.Journal].
type Journal struct{ log *mq.Log }

var _ journal.Journal = (*Journal)(nil)

// New wraps an open log, which the journal owns from here on.
func New(log *mq.Log) *Journal { return &Journal{log: log} }

func frame(recs []journal.Record) ([]mq.Record, error) {
	size := 0
	for _, r := range recs {
		if len(r.Slot.App) > 255 {
			return nil, fmt.Errorf("journal: the app's name has %d bytes, the limit is 255", len(r.Slot.App))
		}
		size += 2 + len(r.Slot.App) + len(r.Body)
	}
	arena := make([]byte, 0, size)
	out := make([]mq.Record, len(recs))
	for i, r := range recs {
		at := len(arena)
		arena = append(arena, r.Slot.Index, byte(len(r.Slot.App)))
		arena = append(arena, r.Slot.App...)
		arena = append(arena, r.Body...)
		out[i] = mq.Record{Queue: uint32(r.Slot.Index), Type: recordType, Body: arena[at:len(arena):len(arena)]}
	}
	return out, nil
}

func unframe(b []byte) (journal.Slot, []byte, error) {
	if len(b) < 2 || len(b) < 2+int(b[1]) {
		return journal.Slot{}, nil, errors.New("journal: a record is too short for its slot")
	}
	n := 2 + int(b[1])
	return journal.Slot{Index: b[0], App: string(b[2:n])}, b[n:], nil
}

// Append implements [journal.Journal].
func (j *Journal) Append(recs []journal.Record, done func(error)) (uint64, error) {
	framed, err := frame(recs)
	if err != nil {
		return 0, err
	}
	first, err := j.log.Append(framed, done)
	return first + uint64(len(recs)) - 1, translate(err)
}

// AppendLazy implements [journal.Journal].
func (j *Journal) AppendLazy(recs []journal.Record) (uint64, error) {
	framed, err := frame(recs)
	if err != nil {
		return 0, err
	}
	first, err := j.log.AppendLazy(framed)
	return first + uint64(len(recs)) - 1, translate(err)
}

// Read implements [journal.Journal].
func (j *Journal) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	return translate(j.log.Read(from, func(e mq.Entry) error {
		if e.Type != recordType {
			return fmt.Errorf("journal: record %d has the unknown type %d: it was written by a newer version", e.Seq, e.Type)
		}
		slot, body, err := unframe(e.Body)
		if err != nil {
			return fmt.Errorf("record %d: %w", e.Seq, err)
		}
		return fn(e.Seq, slot, body)
	}))
}

// Next implements [journal.Journal].
func (j *Journal) Next() uint64 { return j.log.Next() }

// Trim implements [journal.Journal].
func (j *Journal) Trim(before uint64) error { return j.log.Trim(before) }

// Room implements [journal.Journal].
func (j *Journal) Room() int64 { return j.log.Room() }

// Bytes implements [journal.Journal].
func (j *Journal) Bytes() int64 { return j.log.Stats().DiskBytes }

// Close implements [journal.Journal].
func (j *Journal) Close() error { return j.log.Close() }

func translate(err error) error {
	switch {
	case errors.Is(err, mq.ErrFull):
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	case errors.Is(err, mq.ErrTrimmed):
		return fmt.Errorf("%w: %w", journal.ErrTrimmed, err)
	}
	return err
}
