package memory

import (
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// A Budget bounds the linear memory of all running and idle instances of an engine
// together. A limit for each instance is not enough: sleeping tasks hold no slot, and a few
// large ones could make the system kill the host. It is safe for concurrent use.
type Budget struct {
	used  atomic.Int64 // invariant: sum of the sizes of all memories
	max   int64        // 0: no bound
	spare func() bool  // frees some memory of idle instances; false: there are none
}

// NewBudget returns a budget of max bytes; 0 means no bound. The budget calls spare when it
// is used up. spare frees some memory of idle instances, or returns false if there are
// none.
func NewBudget(max int64, spare func() bool) *Budget { return &Budget{max: max, spare: spare} }

// Used returns the bytes of all memories.
func (b *Budget) Used() int64 { return b.used.Load() }

// Scarce reports whether more than half of the budget is used. Then sleeping guests should
// not make room for more guests. A nil budget is never scarce.
func (b *Budget) Scarce() bool { return b != nil && b.max > 0 && b.used.Load() > b.max/2 }

// Exceeded returns the error for an instance whose memory other instances use.
func (b *Budget) Exceeded() error {
	return fmt.Errorf("the handlers of this host use %d of the %d MiB of memory that they share", b.used.Load()>>20, b.max>>20)
}

// take adds n bytes to the used memory, if the bound allows it.
func (b *Budget) take(n int64) bool {
	for b.used.Add(n) > b.max && b.max > 0 {
		b.used.Add(-n)
		if !b.spare() {
			return false
		}
	}
	return true
}

func (b *Budget) release(n int64) { b.used.Add(-n) }

// counted is a linear memory that counts against a budget.
type counted struct {
	experimental.LinearMemory
	budget  *Budget
	size    int64
	refused bool // the budget refused memory that the instance's own limit allowed
}

// Reallocate returns nil when a limit is reached; memory.grow then returns -1.
func (m *counted) Reallocate(size uint64) []byte {
	more := int64(size) - m.size
	if more <= 0 {
		return m.LinearMemory.Reallocate(size)
	}
	if !m.budget.take(more) {
		m.refused = true
		return nil
	}
	space := m.LinearMemory.Reallocate(size)
	if space == nil {
		m.budget.release(more)
		return nil
	}
	m.size += more
	return space
}

// Free may be called twice.
func (m *counted) Free() {
	m.LinearMemory.Free()
	m.budget.release(m.size)
	m.size = 0
}
