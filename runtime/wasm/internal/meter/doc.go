// Package meter rewrites a module so that no guest can hold its thread: a
// counter is checked at every function entry and loop head, and when it is used
// up the guest calls the host function "tick", which may yield, stop the guest
// or grant the next slice.
//
// What it adds to a module:
//
//   - an imported function wheelwork_meter.tick (budget i64) -> (budget i64), so
//     every defined function's index grows;
//   - an exported i64 global for the budget: bytes of stack in its upper half,
//     units of fuel in its lower one, so that one subtraction takes both;
//   - two exported i64 globals for marks of what was written to memory;
//   - in a module that takes batches another one for the task at hand, and an imported
//     function wheelwork_meter.next: see Batch;
//   - exports for every mutable global, so that a host can save and restore them;
//   - maxima for memory and tables;
//   - functions that fill and copy memory in chunks with a check between them,
//     and functions that call an import and mark what it wrote.
//
// Data segments with small gaps between them become one. Custom sections other
// than function names are dropped: code offsets in them would be wrong. Moves
// tell a host that wants to read them itself where code went.
//
// # Cost
//
// One unit is about one instruction. A point (function entry, loop head, start
// of an arm, continuation behind a block) charges the instructions that run
// when it is reached. A small arm or continuation is charged where its
// surroundings start, which dominates it: the charge is never too small. It is
// too large by at most the small arms not taken. Only function entries and loop
// heads compare the fuel with zero, because nothing else repeats. A leaf, which
// is small and neither calls nor repeats, is charged by its callers.
//
// A loop whose slice is used up calls tick, gives back the price of the round and begins
// again, so that what is charged does not depend on where slices end.
//
// A function whose loops call nothing that takes from the budget holds it in a
// local: the engine keeps globals in memory, and a loop that counts in memory
// waits for it.
//
// # Stack
//
// A function that calls another takes the size of its frame from the budget and
// gives it back on each way out. A trap leaves the budget wrong; an instance
// that trapped must be thrown away.
//
// # Marks
//
// See Marks and marker. Where a call returns, every byte that it changed in
// memory is in a marked chunk; where it does not, nothing is promised.
package meter
