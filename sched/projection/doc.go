// Package projection brings the state of a partition's scheduler into the store, and back
// (ADR 4). The loop of the scheduler marks in a [View] what its records change. At
// intervals, or when a reader waits, the View makes a projection batch of the marked rows
// and the sequence of the last record. The writer commits the batch once that record is
// durable, so the store is never ahead of the journal. A run that begins and ends between
// two batches never becomes a row: it goes straight to the history.
//
// The state is that of the slots, which the loop owns; a View has pointers into it and no
// copy. Only the writer, in Run, works beside the loop, on a batch that has no pointer to
// anything that changes.
package projection
