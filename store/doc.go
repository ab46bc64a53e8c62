// Package store remembers what a server shows and what it starts from: jobs,
// live runs, modules and small rows in badger; finished runs, idempotency keys and the
// lines that runs print in append-only segment files; snapshots of the rows.
//
// It is a view. The journal is the truth: a [Batch] carries the sequence number
// up to which it includes the journal, and the number, the rows and the lengths
// of history and keys change together. After a crash the caller replays the journal
// from [Store.Applied]+1; nothing here is synced on the way, so what was applied
// last may have to be applied again, and every row is an absolute value, never a
// delta, so that it may be.
//
// Values are the caller's bytes. The store knows nothing of schedules.
//
// One goroutine calls [Store.Commit]; readers, [Store.AppendLog] and
// [Store.Snapshot] may run beside it and beside each other.
//
// The directory:
//
//	lock         held by the process that has the store open
//	booted       the boot of the machine during which the view was last open
//	view/        badger (key table: keys.go)
//	view.old/    the view that was replaced at the last start, until the next full snapshot
//	history/     finished runs (docs/formats/history.md)
//	keys/        idempotency keys
//	logs/        lines that runs printed
//	snapshots/   chains of snapshots of the view
//	quarantine/  originals of what repairs replaced; nothing deletes them
//
// Only this package imports badger.
package store
