// Package journal holds the ordered, durable records of slots.
//
// A record is bytes that belong to a slot; this package does not interpret the bytes. The
// journal of a standalone server is journal/local, that of a cluster is journal/etcd.
package journal

import (
	"context"
	"errors"
	"time"
)

// Slot names a slot of an app.
type Slot struct {
	App   string
	Index uint8
}

// Record is one record of a slot.
type Record struct {
	Slot Slot
	Body []byte
}

// The errors of a journal.
var (
	// ErrFull is returned when the disk has no room; nothing was written.
	ErrFull = errors.New("the journal's disk is full")
	// ErrFenced is returned when another server has become the owner of the slot.
	ErrFenced = errors.New("another server owns the slot")
	// ErrTrimmed is returned when the requested records were trimmed; a snapshot holds
	// their effects.
	ErrTrimmed = errors.New("the journal was trimmed past this record")
)

// Journal stores the records of a server. Implementations are safe for concurrent use.
// Records have dense sequence numbers from 1 over all slots.
type Journal interface {
	// Append stages the records, in order and as one atomic batch, and returns the
	// sequence of the last one. done is called exactly once, in the order of the appends
	// and from another goroutine: with nil when the records are durable, with an error
	// when they will never be durable; after such an error the journal is dead. An error
	// from Append itself means that nothing was staged. Without records, Append asks only
	// for the durability of all earlier appends. When Append returns, the caller may
	// reuse recs and the bodies.
	Append(recs []Record, done func(error)) (last uint64, err error)
	// AppendLazy is Append without a flush of its own: the records become durable with
	// the next flush, or within a tenth of a second.
	AppendLazy(recs []Record) (last uint64, err error)
	// Read calls fn for every durable record with a sequence of at least from. body is
	// valid until fn returns.
	Read(from uint64, fn func(seq uint64, slot Slot, body []byte) error) error
	// Next returns the sequence of the next record to be appended.
	Next() uint64
	// Trim lets the journal drop the records with a sequence below before.
	Trim(before uint64) error
	// Room returns the number of bytes that Append is certain to accept.
	Room() int64
	// Bytes returns the size of the journal on disk, in bytes.
	Bytes() int64
	Close() error
}

// Refuser is a journal that may be out of reach for a time. Refuses returns why the
// server should start nothing new now, nil when it may. Work that has already started may
// still append its records, as long as Room allows.
type Refuser interface{ Refuses() error }

// Orderly is a journal that may know how its former users ended. Orderly reports that
// every former user closed the journal, so that no appended record is missing, lazy ones
// included, or that the journal never had a durable record. False means that the outcome
// is unknown; a user that determines the missing records by other means then calls
// Settle. If it closes the journal without a call of Settle, the next user gets false
// again. Settle may be called at any time before Close. Opened returns the time at which
// this user opened the journal: work that started later was not started by a former user.
type Orderly interface {
	Orderly() bool
	Settle()
	Opened() time.Time
}

// Follower is a journal that other servers can follow. Follow calls fn for every durable
// record with a sequence of at least from, and for each record that becomes durable
// later, until ctx ends or fn fails.
type Follower interface {
	Follow(ctx context.Context, from uint64, fn func(seq uint64, slot Slot, body []byte) error) error
}
