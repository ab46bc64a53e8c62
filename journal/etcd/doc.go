// Package etcd is the journal of a cluster: the records of many owners in one
// etcd, embedded in the servers ([Start]) or beside them. It uses the plain v3
// API alone, so that an older etcd works as well.
//
// A journal has a name and, at any time, at most one owner. It holds the records of the
// slots of one partition. The prefix of the cluster contains these keys:
//
//	o/NAME           the owner, under its lease; the epoch is its create revision plus the start of the cluster (began)
//	j/NAME/SEQ/PART  a part of a batch of records; SEQ is the sequence of the first record
//	h/NAME           the head: the sequence of the next record
//	t/NAME           the trim position: records below it are gone, even if some of their keys are left
//	e/NAME           the head at which the last owner closed the journal with no record missing; absent while there is an owner
//	f/NAME/SERVER    the sequence that a standby has on its own disk, under its lease: Trim waits for it
//	m/TABLE/KEY      facts that all servers know, some of them under a lease: see table.go
//	b/WORK           the server that is elected for a task of the cluster, under its lease
//	began            the time at which the cluster began; it never changes
//	form             the format version of all these keys; a program that does not know it refuses to start
//	keeper           the server that compacts and defragments etcd, under its lease
//
// A flush is one transaction for all journals of a server. For each journal, it compares
// the create revision of the owner key with that of the ownership, and requires that the
// keys of the new parts do not exist. So a server that has lost its lease writes nothing,
// however late it learns of the loss: the transaction fails, and the error is
// [journal.ErrFenced]. A transaction whose answer was lost can be sent again: if it finds
// its own bytes, it was applied.
//
// A batch is cut into parts of at most 512 KiB, and a transaction carries at most 1 MiB of
// parts. Only the last part of a batch moves the head; the next owner removes the parts
// that a dead owner left beyond the head. A server has at most one transaction under way,
// which preserves the order. Appends that arrive meanwhile join the next transaction. After a
// transaction of many records the next one is delayed for a moment, so that the callers
// that have just been answered can join it.
//
// A server with an etcd member in its own process sends its requests to that member while
// the member knows a leader, and to any member otherwise.
//
// While etcd has no quorum, records wait in memory, up to a limit, and
// [Journal.Refuses] says so. A journal gives up nothing before etcd has said that the
// ownership has ended.
package etcd
