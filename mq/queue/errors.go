package queue

import "errors"

var (
	// ErrFull means that the file system is filled up to Marks.Refuse, so that nothing more is published, or that a
	// group or topic cannot be made. Acknowledging, failing, replaying and dropping still work. A server answers
	// RESOURCE_EXHAUSTED.
	ErrFull = errors.New("queue: the disk is almost full; free some space, drop dead letters or let consumers catch up")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("queue: the queue is closed")
	// ErrStale means that a delivery is no longer with its consumer: it was acknowledged or failed before, its time
	// ran out, or the consumer was closed. The message is delivered again unless it was acknowledged.
	ErrStale = errors.New("queue: the delivery is no longer current")
	// ErrNotFound means that there is no such topic, group or dead letter.
	ErrNotFound = errors.New("queue: not found")
	// ErrInvalid means that an argument is outside its limits. The text says which and what is allowed.
	ErrInvalid = errors.New("queue: invalid")
	// ErrBusy means that the dead letter is just being edited, replayed or dropped. Trying again helps.
	ErrBusy = errors.New("queue: the dead letter is being changed")
)

func isGone(err error) bool { return errors.Is(err, ErrNotFound) }
