// Package meter rewrites a module so that no guest can hold its thread: a counter is
// checked at every function entry and loop head, and when it is used up the guest calls the
// host function "tick", which may yield, stop the guest or grant the next slice.
//
// The rewritten module has in addition:
//
//   - an imported function wheelwork_meter.tick (budget i64) -> (budget i64), so the
//     indices of all defined functions grow;
//   - an exported i64 global for the budget: bytes of stack in the upper half and units of
//     fuel in the lower half, so that one subtraction charges both;
//   - two exported i64 globals with dirty bits, which record the memory that the guest
//     wrote;
//   - in a module that takes batches, one more global for the current task and an imported
//     function wheelwork_meter.next: see Batch;
//   - exports for every mutable global, so that a host can save and restore them;
//   - maxima for memory and tables;
//   - functions that fill and copy memory in chunks with a check between them, and
//     functions that call an import and mark the memory that it wrote.
//
// Data segments with small gaps between them are merged. Custom sections other than
// function names are dropped, because their code offsets would be wrong. A host that needs
// the dropped sections reads them itself and translates their offsets with Moves.
//
// # Cost
//
// One unit is about one instruction. A point (function entry, loop head, start of an arm,
// continuation behind a block) charges the instructions that run when it is reached. A
// small arm or continuation is charged at the start of its surroundings, which dominate it.
// The charge is therefore never too small, and it is too large by at most the small arms
// that were not taken. Only function entries, loop heads and bulk instructions compare the
// fuel with zero, because nothing else can run for long. A leaf, which is small and neither
// calls nor loops, is charged by its callers.
//
// A loop whose slice is used up calls tick, refunds the charge of the iteration and starts
// the iteration again. The total charge therefore does not depend on where slices end.
//
// A function with loops holds the budget in a local, unless its loops make many calls that
// change the budget: the engine keeps globals in memory, and a loop that counts in memory
// waits for that memory.
//
// # Stack
//
// A function that calls another takes the size of its frame from the budget and returns it
// on every exit. A trap leaves the budget wrong, so an instance that trapped must be
// discarded.
//
// # Dirty bits
//
// See Marks and marker. When a call returns, every byte of memory that it changed is in a
// chunk or line whose dirty bit is set. When a call does not return, its dirty bits may be
// incomplete.
package meter
