// Package sched schedules the runs of one partition: it decides when and where they happen,
// and owns the slots of the partition. A [Server] consists of
//
//   - the loop (sched/core): all decisions, in one goroutine;
//   - the projection (sched/projection): it brings the state into the store, and back;
//   - the gRPC services (sched/api), which turn messages into calls of the loop;
//   - the moves of slots to and from other partitions (sched/slotmove).
//
// Below the loop are packages without decisions of their own: sched/fair has the ready
// queues of apps and their shares of the hosts, sched/hosts the state of each host, and
// sched/wheel the timing wheel.
//
// A [Standby] follows the journal of a partition that another server owns, and becomes its
// Server by [Standby.TakeOver].
package sched
