package mq

import (
	"errors"
	"fmt"
	"time"
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
	// ErrUnfinished means that a Repair was interrupted. The directory is neither what it was nor what was asked for;
	// repeating the Repair with the same choice finishes it.
	ErrUnfinished = errors.New("mq: a repair was not finished")
)

// CorruptError reports damage in data that was acknowledged. The log is not opened, or the Read is not continued,
// because going on would silently drop records. Verify says all that is damaged, Repair goes on without it.
type CorruptError struct {
	Dir     string // Config.Dir
	Segment string // file name inside Dir
	Offset  int64  // bytes from the start of the file; 0 when the file as a whole is meant
	Why     string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("mq: segment %[2]s of %[1]s is damaged at offset %[3]d: %[4]s; `wheelwork mq verify %[1]s` lists all damage, "+
		"then restore the directory from a copy or choose what to keep with `wheelwork mq repair %[1]s`",
		e.Dir, e.Segment, e.Offset, e.Why)
}

// LostError reports that the records First <= seq < End are gone: they were damaged, and somebody chose Repair with
// SkipDamaged. A Read from End on finds what comes after them.
type LostError struct {
	First, End uint64
	Repaired   time.Time // when the choice was made
}

func (e *LostError) Error() string {
	return fmt.Sprintf("mq: the records %d to %d were damaged and given up by a repair at %s; what comes after them starts at %d",
		e.First, e.End-1, e.Repaired.UTC().Format(time.RFC3339), e.End)
}
