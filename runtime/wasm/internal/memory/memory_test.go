package memory_test

import (
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
)

// TestBudget checks what refuses memory: the limit of an instance, or the budget of all
// instances after it has freed what it can.
func TestBudget(t *testing.T) {
	const page = 1 << 16
	var idle int // frees of idle memory that are left
	var idler interface{ Free() }
	budget := memory.NewBudget(4*page, func() bool {
		if idle == 0 {
			return false
		}
		idle--
		idler.Free()
		return true
	})
	a, b := &memory.Allocator{Limit: 3 * page, Budget: budget}, &memory.Allocator{Limit: 8 * page, Budget: budget}
	first, second := a.Allocate(0, 100*page), b.Allocate(0, 100*page)
	defer first.Free()
	defer second.Free()
	if first.Reallocate(4*page) != nil || a.Refused() || budget.Used() != 0 {
		t.Errorf("beyond the limit: refused by the budget %v, %d bytes used", a.Refused(), budget.Used())
	}
	if got := first.Reallocate(2 * page); len(got) != 2*page || budget.Used() != 2*page || budget.Scarce() {
		t.Errorf("got %d bytes, %d used, scarce %v", len(got), budget.Used(), budget.Scarce())
	}
	if got := second.Reallocate(page); len(got) != page || !budget.Scarce() {
		t.Errorf("got %d bytes, scarce %v", len(got), budget.Scarce())
	}
	if second.Reallocate(3*page) != nil || !b.Refused() || budget.Used() != 3*page {
		t.Errorf("beyond the budget: refused %v, %d bytes used", b.Refused(), budget.Used())
	}
	idle, idler = 1, first
	if got := second.Reallocate(3 * page); len(got) != 3*page || budget.Used() != 3*page {
		t.Errorf("after an idle instance was closed: %d bytes, %d used", len(got), budget.Used())
	}
	second.Free()
	second.Free()
	if budget.Used() != 0 {
		t.Errorf("%d bytes are used after the end", budget.Used())
	}
}
