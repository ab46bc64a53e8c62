package mq

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLocked means that another process, or another Log in this process, has the
	// directory open.
	ErrLocked = errors.New("mq: the log is in use")
	// ErrFull means that the active segment has no room left and the disk has none for
	// another segment. Nothing was staged. A Trim, or free space on the disk, makes the
	// log writable again.
	ErrFull = errors.New("mq: no disk space left for the log")
	// ErrTooLarge means that a record exceeds Config.MaxRecordBytes, or that the records
	// of one Append do not fit into one segment.
	ErrTooLarge = errors.New("mq: too large")
	// ErrReadOnly means that a write or sync failed earlier. That failure is final: see
	// Log.Err. Acknowledged records can still be read. Only a new Open, which reads what
	// the disk really holds, makes the log writable.
	ErrReadOnly = errors.New("mq: the log is read-only after a failed write")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("mq: the log is closed")
	// ErrTrimmed means that some records from the requested sequence on were trimmed.
	ErrTrimmed = errors.New("mq: the records were trimmed")
	// ErrBeyondEnd means that the requested sequence is above Next. The caller knows of
	// records that this log never had, or that it lost with the disk under a sync policy
	// other than Always.
	ErrBeyondEnd = errors.New("mq: the sequence is beyond the end of the log")
	// ErrUnfinished means that a Repair was interrupted and the directory is in an
	// intermediate state. Repeating the Repair with the same choice finishes it.
	ErrUnfinished = errors.New("mq: a repair was not finished")
)

// CorruptError reports damage in acknowledged data. The log does not open, or the Read
// stops, because continuing would silently drop records. Verify lists all damage; Repair
// continues without the damaged records.
type CorruptError struct {
	Dir     string // Config.Dir
	Segment string // file name inside Dir
	Offset  int64  // bytes from the start of the file; 0 means the whole file
	Why     string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("mq: segment %[2]s of %[1]s is damaged at offset %[3]d: %[4]s; `wheelwork mq verify %[1]s` lists all damage, "+
		"then restore the directory from a copy or choose what to keep with `wheelwork mq repair %[1]s`",
		e.Dir, e.Segment, e.Offset, e.Why)
}

// LostError reports that the records First <= seq < End are gone: they were damaged, and
// an operator chose Repair with SkipDamaged. A Read from End on returns the records
// behind them.
type LostError struct {
	First, End uint64
	Repaired   time.Time // time of the repair
}

func (e *LostError) Error() string {
	return fmt.Sprintf("mq: the records %d to %d were damaged and given up by a repair at %s; what comes after them starts at %d",
		e.First, e.End-1, e.Repaired.UTC().Format(time.RFC3339), e.End)
}
