package wasm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// A ration bounds the linear memory of all instances of an engine together, those
// that run and those that wait. A limit for each is not enough: tasks that sleep hold
// no slot, and a few that may have much would have the system end the host.
type ration struct {
	used atomic.Int64 // invariant: sum of the sizes of all memories
	max  int64        // 0: no bound
	// spare gives back what waits for tasks, a part of it; false: there is nothing.
	spare func() bool
}

// take counts n bytes, if they are to be had.
func (r *ration) take(n int64) bool {
	for r.used.Add(n) > r.max && r.max > 0 {
		r.used.Add(-n)
		if !r.spare() {
			return false
		}
	}
	return true
}

// scarce reports whether so much is used that guests which sleep should not make room for
// more guests. A nil ration is not scarce.
func (r *ration) scarce() bool { return r != nil && r.max > 0 && r.used.Load() > r.max/2 }

func (r *ration) give(n int64) { r.used.Add(-n) }

// rationed is a memory that counts.
type rationed struct {
	experimental.LinearMemory
	of      *ration
	size    int64
	refused bool // it was not given what it asked for, though its own limit allowed it
}

// Reallocate returns nil when there is no more: memory.grow then returns -1.
func (m *rationed) Reallocate(size uint64) []byte {
	more := int64(size) - m.size
	if more <= 0 {
		return m.LinearMemory.Reallocate(size)
	}
	if !m.of.take(more) {
		m.refused = true
		return nil
	}
	space := m.LinearMemory.Reallocate(size)
	if space == nil {
		m.of.give(more)
		return nil
	}
	m.size += more
	return space
}

// Free may be called twice.
func (m *rationed) Free() {
	m.LinearMemory.Free()
	m.of.give(m.size)
	m.size = 0
}

// exceeded says that other instances have the memory that there is.
func (r *ration) exceeded() error {
	return fmt.Errorf("%w: the handlers of this host have %d of the %d MiB of memory that they may have together", errInstantiate, r.used.Load()>>20, r.max>>20)
}

// spare closes the instance that was idle longest.
func (p *pool) spare(ctx context.Context) bool {
	p.mu.Lock()
	if p.oldest == nil {
		p.mu.Unlock()
		return false
	}
	inst := p.evict()
	p.mu.Unlock()
	_ = inst.close(ctx) // frees memory; it has no error to tell
	return true
}
