package wasm

import (
	"errors"
	"math"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// errFuel ends a guest that has done as much as its task may.
var errFuel = errors.New("the handler used up its fuel")

// unlimited is the fuel of a task without a limit: no guest lives long enough
// to use it up.
const unlimited = math.MaxInt64

// refill is what a guest calls when its budget is used up: it is ended, or gets
// its next slice. What it took beyond the last slice is taken from the next
// one, so that no more than the task's fuel is ever used.
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
	c.tasks.fuel = fuel // the clock was looked at
	return meter.Budget(fuel, stack)
}

// grant takes a slice from the task's fuel and returns what is left of it when
// a debt is paid: nothing, at times, and then the guest asks again at once.
func (c *call) grant(slice, debt int64) int32 {
	slice = min(slice+debt, c.fuel)
	if c.fuel != unlimited {
		c.fuel -= slice
	}
	return int32(slice - debt)
}

// giveBack returns what a guest left of its last slice.
func (c *call) giveBack(left int64) {
	if c.fuel != unlimited {
		c.fuel += left
	}
}
