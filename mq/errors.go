package mq

import (
	"errors"
	"fmt"
)

var (
	// ErrLocked means that another process, or another Log of this one, has the directory open.
	ErrLocked = errors.New("mq: the log is in use")
	// ErrFull means that the active segment has no room left and that the disk has none for another one. Nothing
	// was staged. Trim, or space on the disk, makes the log writable again.
	ErrFull = errors.New("mq: no disk space left for the log")
	// ErrTooLarge means that a record is above Config.MaxRecordBytes or that the records of one Append do not fit
	// into one segment.
	ErrTooLarge = errors.New("mq: too large")
	// ErrReadOnly means that a write or sync failed earlier. That failure is final: see Log.Err. What was
	// acknowledged can still be read; only a new Open, which reads back what the disk really holds, writes again.
	ErrReadOnly = errors.New("mq: the log is read-only after a failed write")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("mq: the log is closed")
	// ErrTrimmed means that records from the wanted sequence on are no longer all there.
	ErrTrimmed = errors.New("mq: the records were trimmed")
	// ErrBeyondEnd means that the wanted sequence is above Next: the caller knows of records that this log never
	// had, or lost together with the disk under a sync policy other than Always.
	ErrBeyondEnd = errors.New("mq: the sequence is beyond the end of the log")
)

// CorruptError reports damage in data that was acknowledged. The log is not opened, or the Read is not continued,
// because going on would silently drop records.
type CorruptError struct {
	Segment string // file name inside Config.Dir
	Offset  int64  // bytes from the start of the file; 0 when the file as a whole is meant
	Why     string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("mq: segment %s is damaged at offset %d: %s; restore it from a copy or move the log's directory away",
		e.Segment, e.Offset, e.Why)
}
