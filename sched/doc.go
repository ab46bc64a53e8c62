// Package sched decides when and where runs happen. It owns the slots of one partition:
// their state, their timing wheel and the sessions of the hosts.
//
// One goroutine, the loop, owns all of this, so decisions take no lock. Calls and messages
// reach the loop as functions in its inboxes. One turn of the loop is
//
//	take the inbox ─▶ decide, write records ─▶ advance the wheel ─▶ append to the journal
//	       ▲                                                              │
//	       └── answers and effects of durable records ◀── one flush ──────┘─▶ dispatch
//
// A decision (the next planned time, a duplicate trigger, another attempt) is written into
// a record. [job.Slot.Apply] folds the record into the state at once. The effects of the
// record, including answers to callers, happen when the record is durable. So the state in
// memory may be ahead of the disk, but callers never see a change that is not durable. The
// start of an attempt is the exception: its task is sent, and callers may see it, before its
// record is durable (ADR 25).
//
// Scheduled runs are armed: their record is written one to two seconds before their planned
// time, for all runs of a slot and a window together. At the planned time there is no I/O
// left between the wheel and the host.
//
// Reads of single objects run on the loop. Lists are read from the store, which is brought
// up to date first (see checkpoint.go), so callers see their own writes.
package sched
