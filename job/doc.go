// Package job defines jobs, runs and attempts: which definitions are valid, and how the
// state of a slot follows from its records.
//
// The central type is [Slot], the state that results from the journal of one slot.
// [Slot.Apply] is pure: it reads no clock, draws no random number, does no I/O and
// depends on no map order. Every decision (the next planned time, the chosen host, the
// wait before a retry) is in the record. So a replay gives the same state on every
// machine and at every time. Apply returns effects to the caller, which performs them
// when the record is durable.
//
// The decisions themselves are pure functions too: [Validate], [schedule.Plan],
// [Settle], [Policy.Backoff]. They take the time as an argument.
package job
