package wasm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// A ration is the memory budget of an engine: it bounds the linear memory of all running
// and idle instances together. A limit for each instance is not enough: sleeping tasks hold
// no slot, and a few large ones could make the system kill the host.
type ration struct {
	used atomic.Int64 // invariant: sum of the sizes of all memories
	max  int64        // 0: no bound
	// spare frees some memory of idle instances; false: there are none.
	spare func() bool
}

// take adds n bytes to the used memory, if the bound allows it.
func (r *ration) take(n int64) bool {
	for r.used.Add(n) > r.max && r.max > 0 {
		r.used.Add(-n)
		if !r.spare() {
			return false
		}
	}
	return true
}

// scarce reports whether more than half of the bound is used. Then sleeping guests should
// not make room for more guests. A nil ration is never scarce.
func (r *ration) scarce() bool { return r != nil && r.max > 0 && r.used.Load() > r.max/2 }

func (r *ration) give(n int64) { r.used.Add(-n) }

// rationed is a linear memory that counts against a ration.
type rationed struct {
	experimental.LinearMemory
	of      *ration
	size    int64
	refused bool // the ration refused memory that the instance's own limit allowed
}

// Reallocate returns nil when a limit is reached; memory.grow then returns -1.
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

// exceeded returns the error for an instance whose memory other instances use.
func (r *ration) exceeded() error {
	return fmt.Errorf("%w: the handlers of this host have %d of the %d MiB of memory that they may have together", errInstantiate, r.used.Load()>>20, r.max>>20)
}

// spare closes the instance that has been idle longest.
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
