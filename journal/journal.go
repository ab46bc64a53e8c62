// Package journal holds the ordered, durable records of slots.
//
// A record is bytes that belong to a slot; what they mean is not this room's
// business. The journal of one machine is journal/local.
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
	// ErrFull says that the disk has no room: nothing was written.
	ErrFull = errors.New("the journal's disk is full")
	// ErrFenced says that another server owns the slot by now.
	ErrFenced = errors.New("another server owns the slot")
	// ErrTrimmed says that the records asked for are gone: a snapshot holds what they did.
	ErrTrimmed = errors.New("the journal was trimmed past this record")
)

// Journal is what a server writes its records to. Implementations are safe for
// concurrent use. Records have dense sequence numbers from 1 over all slots.
type Journal interface {
	// Append stages the records, in order and as one unit, and returns the
	// sequence of the last one. done is called exactly once, in the order of the
	// appends and from another goroutine: with nil when they are durable, with an
	// error when they never will be, and then the journal is dead. An error from
	// Append itself means that nothing was staged. With no records it asks for
	// the durability of what was appended before. When Append returns, recs and
	// the bodies are the caller's again.
	Append(recs []Record, done func(error)) (last uint64, err error)
	// AppendLazy is Append without a wish for durability of its own: the records
	// go out with the next flush, or within a tenth of a second.
	AppendLazy(recs []Record) (last uint64, err error)
	// Read calls fn for every durable record from a sequence on. body is valid
	// until fn returns.
	Read(from uint64, fn func(seq uint64, slot Slot, body []byte) error) error
	// Next returns the sequence that the next record will have.
	Next() uint64
	// Trim allows the records below a sequence to be dropped.
	Trim(before uint64) error
	// Room returns the bytes that Append can still take for certain.
	Room() int64
	// Bytes returns the size of the journal on disk.
	Bytes() int64
	Close() error
}

// Refuser is a journal that is not always in reach. Refuses says why nothing new
// should be begun now, nil when it may; what was begun may still be brought to
// its end, as far as there is Room.
type Refuser interface{ Refuses() error }

// Orderly is a journal that may know how its users before ended. Orderly reports
// that each closed the journal, so that nothing is missing of what was appended,
// lazily or not, or that nothing was ever durable in it. False means that nobody
// knows. Then a user that has found out by other means what is missing calls
// Settle; when it closes the journal without having done so, the next one is told
// false again. Settle may be called at any time before Close. Opened is when the
// journal became this user's: what was begun later was not begun by one before.
type Orderly interface {
	Orderly() bool
	Settle()
	Opened() time.Time
}

// Follower is a journal that others can follow: fn is called for every durable
// record from a sequence on, and for each that becomes durable later, until ctx
// ends or fn fails.
type Follower interface {
	Follow(ctx context.Context, from uint64, fn func(seq uint64, slot Slot, body []byte) error) error
}
