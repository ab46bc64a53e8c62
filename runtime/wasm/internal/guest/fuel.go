package guest

import (
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// Refill is called by a guest whose budget is used up. It ends the guest or returns the
// next slice. The fuel used beyond the last slice is deducted from the next one, so that a
// guest never uses more than the task's fuel.
func (c *Call) Refill(budget uint64) uint64 {
	fuel, stack := meter.SplitBudget(budget)
	if stack < 0 {
		c.end(errCallDepth)
	}
	slice := c.Tick()
	if c.fuel == 0 {
		c.end(errFuel)
	}
	fuel = c.grant(slice, int64(-fuel))
	c.tasks.fuel = fuel // Tick has read the clock
	return meter.Budget(fuel, stack)
}

// BeginSlice begins a guest function of a module with the given line table at the moment at
// which the clock was last read. It returns the fuel of the first slice.
func (c *Call) BeginSlice(table *lines.Table) (fuel int32) {
	c.lines, c.sliceStart = table, c.seen
	return c.grant(firstSlice, 0)
}

// grant takes a slice from the task's fuel, deducts debt and returns the rest. The rest may
// be zero or negative; the guest then calls Tick again at once.
func (c *Call) grant(slice, debt int64) int32 {
	slice = min(slice+debt, c.fuel)
	if c.fuel != unlimited {
		c.fuel -= slice
	}
	return int32(slice - debt)
}

// GiveBack returns the unused part of a guest's last slice to the task's fuel.
func (c *Call) GiveBack(left int64) {
	if c.fuel != unlimited {
		c.fuel += left
	}
}
