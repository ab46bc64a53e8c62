package wasm

import "github.com/tetratelabs/wazero/experimental"

// An allocator gives one instance its linear memory, of at most limit bytes.
type allocator struct {
	limit  int64
	ration *ration
	memory *rationed // nil until asked for
}

// Allocate implements experimental.MemoryAllocator.
func (a *allocator) Allocate(_, maximum uint64) experimental.LinearMemory {
	a.memory = &rationed{LinearMemory: newLinearMemory(min(maximum, uint64(a.limit))), of: a.ration}
	return a.memory
}

// refused says whether there was no memory because others have it.
func (a *allocator) refused() bool { return a.memory != nil && a.memory.refused }

// free gives the memory back when there is no instance whose closing would: the
// engine forgets it when a start function traps.
func (a *allocator) free() {
	if a.memory != nil {
		a.memory.Free()
	}
}
