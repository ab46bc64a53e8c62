// Package job holds the nouns and their law: what a job, a run and an attempt
// are, which definitions are valid, and how the state of a slot follows from
// its records.
//
// The heart is [Slot]: the fold of one slot's journal. [Slot.Apply] is pure. It
// reads no clock, draws no random number, does no I/O and depends on no map
// order; everything that had to be decided (the next planned time, the picked
// host, the wait before a retry) stands in the record. So a replay gives the
// same state on any machine and at any time, and effects are handed to the
// caller, who performs them once the record is durable.
//
// The decisions themselves are pure functions beside it: [Validate], [Plan],
// [Settle], [Backoff]. They take the time as an argument.
package job
