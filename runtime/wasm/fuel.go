package wasm

import (
	"errors"
	"math"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// errFuel ends a guest that has used the fuel of its task.
var errFuel = errors.New("the handler used up its fuel")

// unlimited is the fuel of a task without a limit: no guest runs long enough to use it up.
const unlimited = math.MaxInt64

// refill is called by a guest whose budget is used up. It ends the guest or returns the
// next slice. The fuel used beyond the last slice is deducted from the next one, so that a
// guest never uses more than the task's fuel.
func (c *call) refill(budget uint64) uint64 {
	fuel, stack := meter.SplitBudget(budget)
	if stack < 0 {
		c.end(errCallDepth)
	}
	slice := c.tick()
	if c.fuel == 0 {
		c.end(errFuel)
	}
	fuel = c.grant(slice, int64(-fuel))
	c.tasks.fuel = fuel // tick has read the clock
	return meter.Budget(fuel, stack)
}

// grant takes a slice from the task's fuel, deducts debt and returns the rest. The rest may
// be zero or negative; the guest then calls tick again at once.
func (c *call) grant(slice, debt int64) int32 {
	slice = min(slice+debt, c.fuel)
	if c.fuel != unlimited {
		c.fuel -= slice
	}
	return int32(slice - debt)
}

// giveBack returns the unused part of a guest's last slice to the task's fuel.
func (c *call) giveBack(left int64) {
	if c.fuel != unlimited {
		c.fuel += left
	}
}
