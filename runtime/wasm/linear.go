package wasm

import "github.com/tetratelabs/wazero/experimental"

// An allocator allocates the linear memory of one instance, of at most limit bytes.
type allocator struct {
	limit  int64
	ration *ration
	memory *rationed // nil until Allocate
}

// Allocate implements experimental.MemoryAllocator.
func (a *allocator) Allocate(_, maximum uint64) experimental.LinearMemory {
	a.memory = &rationed{LinearMemory: newLinearMemory(min(maximum, uint64(a.limit))), of: a.ration}
	return a.memory
}

// refused reports whether the memory budget refused memory because other instances use it.
func (a *allocator) refused() bool { return a.memory != nil && a.memory.refused }

// free releases the memory when there is no instance to close: the engine forgets the
// memory when a start function traps.
func (a *allocator) free() {
	if a.memory != nil {
		a.memory.Free()
	}
}
