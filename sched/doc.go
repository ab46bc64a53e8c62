// Package sched decides when and where runs happen. It owns the slots of a
// server: their state, their wheel and the streams to the hosts.
//
// One goroutine, the loop, owns all of it; nothing on its way takes a lock.
// Everything reaches it as a function in its inbox, and one turn of the loop is
//
//	take the inbox ─▶ decide, write records ─▶ advance the wheel ─▶ append to the journal
//	       ▲                                                              │
//	       └── answers and effects of what is durable ◀── one flush ──────┘─▶ dispatch
//
// A decision (which time is next, is this a duplicate, is the run tried again)
// is written into a record; [job.Slot.Apply] folds the record into the state at
// once; its effects, answers to callers included, happen when the journal says
// that the record is durable. So the state in memory may be ahead of the disk,
// but nobody outside has seen what is ahead.
//
// Scheduled runs are armed: written ahead of their time, one or two seconds,
// all runs of a window in one record. At the planned time there is no I/O left
// between the wheel and the host.
//
// Reads of single things ask the loop; lists ask the store, which is brought up
// to date first (see checkpoint.go), so a caller sees what it has written.
package sched
