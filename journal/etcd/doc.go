// Package etcd is the journal of a cluster: the records of many owners in one
// etcd, embedded in the servers ([Start]) or beside them. It uses the plain v3
// API alone, so that an older etcd works as well.
//
// A journal has a name and, at any time, at most one owner. What it holds are
// the slots that have this owner in common. Below the prefix of the
// installation there are these keys:
//
//	o/NAME           the owner, under its lease; its create revision, counted from when the cluster began, is the epoch
//	j/NAME/SEQ/PART  a part of a batch of records; SEQ is the first one's sequence
//	h/NAME           the head: the sequence that the next record will have
//	t/NAME           the mark of Trim: what is below it is gone, even where a key is left
//	e/NAME           where the journal ended when its last owner closed it and nothing was missing; gone while there is an owner
//	f/NAME/SERVER    how far a standby's own disk is, under its lease: Trim waits for it
//	m/TABLE/KEY      what all servers know, some of it under a lease: see table.go
//	b/WORK           the server that does a work for all, under its lease
//	began            when the cluster began; it never changes
//	form             which form all of this has; a program that does not understand it keeps away
//	keeper           the server that compacts and defragments, under its lease
//
// A flush is one transaction for all journals of a server. It compares, for
// each, the create revision of the owner key with that of the ownership, and asks that the
// keys to be written are absent. So a server that lost its lease, however late
// it learns of that, writes nothing: the transaction fails, and the error is
// [journal.ErrFenced]. And a transaction whose answer was lost can be sent
// again: if it finds its own bytes, it was applied.
//
// A batch is cut into parts of at most 512 KiB, a transaction carries at most
// 1 MiB of them. The head moves with the last part alone; what an owner that
// died left beyond the head is removed by the next one. One transaction of a
// server is under way at a time, which keeps the order: what arrives meanwhile
// is the next one, and, where many waited, what arrives in a moment after it from
// those who were told.
//
// A server with a member of etcd in its own process asks that one, as long as it
// has somebody who leads it, and any of the members otherwise.
//
// While etcd has no quorum, records wait in memory, up to a limit, and
// [Journal.Refuses] says so. Nothing is given up before etcd has said that the
// ownership is gone.
package etcd
