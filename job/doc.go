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
//
// # Large types
//
// Three types are larger than 30 fields or 40 methods.
//
// [Run] has 41 fields. Each step of a run reads fields of all its parts: of its state, its
// current attempt, its retries and its definition. In one object they lie in nine cache
// lines, which [EachRun] prefetches together; a pointer to each part would be one more
// cache miss per step. State that few runs have is behind pointers: [Fan], [Nodes], Pin.
//
// [Slot] has one method for each transition that a record can cause, and one for each
// question of its owner. A transition changes the run, the counts of its job and of the
// slot, the keys and the small rows together, so no part of the slot has transitions of its
// own. Parts with invariants of their own are types: [Jobs], [Runs], keys, texts, guests.
//
// [Job] has fields that are packed into 112 bytes, and methods that read them: a million
// jobs are in memory.
package job
