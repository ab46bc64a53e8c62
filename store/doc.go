// Package store holds the data that a server shows and starts from. Jobs, live runs,
// modules and small rows are in badger. Finished runs, idempotency keys, revisions of
// definitions and run logs are in append-only segment files. Snapshots are copies of the
// rows.
//
// The store is a projection; the journal is the truth. A [Batch] carries the journal
// sequence up to which it includes the journal. That sequence, the rows and the lengths
// of history, keys and revisions change together. Commits are not synced: after a crash the
// caller replays the journal from [Store.Applied]+1. A change may therefore be applied
// twice, so every row is an absolute value, never a delta.
//
// The badger database with the rows is called the view. Values are bytes whose meaning
// only the caller knows.
//
// One goroutine calls [Store.Commit]. Readers, [Store.AppendLog] and [Store.Snapshot] may
// run concurrently with it and with each other.
//
// The directory:
//
//	lock         held by the process that has the store open
//	booted       the boot of the machine during which the view was last open
//	view/        badger (key table: keys.go)
//	view.old/    the view that was replaced at the last start, until the next full snapshot
//	history/     finished runs (docs/formats/history.md)
//	keys/        idempotency keys
//	revisions/   changes of definitions (docs/formats/revisions.md)
//	audit/       audit events (docs/formats/audit.md)
//	logs/        lines that runs printed
//	snapshots/   chains of snapshots of the view
//	quarantine/  originals of the files that repairs replaced; nothing deletes them
//
// Only this package imports badger.
package store
