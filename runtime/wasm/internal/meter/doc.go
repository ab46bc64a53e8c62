// Package meter rewrites a module so that no guest can hold its thread: a
// counter is checked at every function entry and loop head, and when it is used
// up the guest calls the host function "tick", which may yield, stop the guest
// or grant the next slice.
//
// What it adds to a module:
//
//   - an imported function wheelwork_meter.tick (stack left i64) -> (slice i64),
//     so every defined function's index grows by one;
//   - an i64 global for the slice and one for the stack left, both exported;
//   - exports for every mutable global, so that a host can save and restore them;
//   - maxima for memory and tables;
//   - functions that fill and copy memory in chunks with a check between them.
//
// # Cost
//
// One unit is about one instruction. A point (function entry, loop head, start
// of an arm, continuation behind a block) charges the instructions that run
// when it is reached. A small arm or continuation is charged where its
// surroundings start, which dominates it: the charge is never too small. It is
// too large by at most the small arms not taken. Only function entries and loop
// heads compare the counter with zero, because nothing else repeats.
//
// # Stack
//
// A function that calls another takes the size of its frame from the stack
// global and gives it back on each way out. A trap leaves the global wrong; an
// instance that trapped must be thrown away.
//
// Custom sections other than function names are dropped: code offsets in them
// would be wrong.
package meter
