package queue

import "errors"

var (
	// ErrFull means that the use of the file system has reached Marks.Refuse. Publishing,
	// and creating a group or topic, are refused. Acknowledging, failing, replaying and
	// dropping still work. A server answers RESOURCE_EXHAUSTED.
	ErrFull = errors.New("queue: the disk is almost full; free some space, drop dead letters or let consumers catch up")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("queue: the queue is closed")
	// ErrStale means that a delivery is no longer with its consumer: it was already
	// acknowledged or failed, its time ran out, or the consumer was closed. The message
	// is delivered again unless it was acknowledged.
	ErrStale = errors.New("queue: the delivery is no longer current")
	// ErrNotFound means that the topic, group or dead letter does not exist.
	ErrNotFound = errors.New("queue: not found")
	// ErrInvalid means that an argument is outside its limits. The text names the
	// argument and the limit.
	ErrInvalid = errors.New("queue: invalid")
	// ErrBusy means that another call is editing, replaying or dropping the dead letter.
	// A retry helps.
	ErrBusy = errors.New("queue: the dead letter is being changed")
)

func isGone(err error) bool { return errors.Is(err, ErrNotFound) }
