// Package core is the loop of a partition's scheduler. One goroutine, the loop, owns the
// state: the apps with their slots, the timers, and the sessions of the hosts. So decisions
// take no lock. Calls and messages reach the loop as functions in its mailbox. One turn of
// the loop is
//
//	take the mailbox ─▶ decide, write records ─▶ advance the wheel ─▶ append to the journal
//	       ▲                                                              │
//	       └── answers and effects of durable records ◀── one flush ──────┘─▶ dispatch
//
// [Loop.Run] waits for input and the clock; one turn is the method step, which is the place
// to start reading. It needs a clock, a journal and a sink for each host ([hosts.Outbox]),
// and neither gRPC nor files: the scenarios in testdata drive it with a journal in memory.
//
// # Records
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
// up to date first, see [Loop.CaughtUp], so callers see their own writes.
//
// # Components
//
// A [Loop] consists of components (ADR 42). Each owns its fields and has the methods that
// decide about them:
//
//	commits     the batch of the turn, and the batches that the journal writes
//	state       the apps with their slots
//	timing      timers, armed runs, and times that a clock set back has moved
//	Planner     parsed schedules and calendars
//	relations   which jobs name which
//	workflows   dependent jobs and workflows that react to other runs
//	admission   overlap policies, start deadlines and rates
//	Dispatcher  ready queues, and the choice of hosts
//	Sessions    hosts, and what they report
//	Demand      hosts that the partition needs from others
//	Commands    changes of jobs and runs by callers
//	Catalog     modules and aliases
//	Guests      calls of handlers, values and secrets
//	Moves       slots that move between partitions
//	Waiters     calls that wait for the end of a run
//
// A component reaches the others through its field l. All exported methods of components,
// and those methods of a Loop that return at once, run on the loop: pass them in a function
// to [Ask], [Change] or the mailbox. Run, CaughtUp, Ask and Change are safe for concurrent
// use.
package core
