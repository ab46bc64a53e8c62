package memory

import "github.com/tetratelabs/wazero/experimental"

// An Allocator allocates the linear memory of one instance.
type Allocator struct {
	Limit  int64 // bytes that the memory may have
	Budget *Budget
	memory *counted // nil until Allocate
}

// Allocate implements experimental.MemoryAllocator.
func (a *Allocator) Allocate(_, maximum uint64) experimental.LinearMemory {
	a.memory = &counted{LinearMemory: newLinearMemory(min(maximum, uint64(a.Limit))), budget: a.Budget}
	return a.memory
}

// Refused reports whether the budget refused memory because other instances use it.
func (a *Allocator) Refused() bool { return a.memory != nil && a.memory.refused }

// Free releases the memory when there is no instance to close: the engine forgets the
// memory when a start function traps.
func (a *Allocator) Free() {
	if a.memory != nil {
		a.memory.Free()
	}
}
