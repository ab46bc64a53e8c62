// Package slotmove moves slots between partitions, and copies the state that only the primary
// partition of an app changes. A slot moves in four steps (ADR 24): the source freezes it
// with Leave, the target gets its content from Export and makes it with Take, and the source
// drops it with Forget. Each step may be repeated: the number of the move identifies it. The
// decisions and their records are those of the loop, see the type Moves of sched/core.
package slotmove
