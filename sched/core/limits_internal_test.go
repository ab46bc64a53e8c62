package core

import (
	"testing"

	"github.com/wheelworkhq/wheelwork/job"
)

// TestPart checks the share of a limit that a partition with some slots of an app enforces.
func TestPart(t *testing.T) {
	for _, tt := range []struct{ gone, limit, want int64 }{
		{0, 100, 100}, {4, 100, 75}, {4, 3, 2}, {15, 1, 1}, {15, 1 << 62, 1 << 58}, {8, 5, 2},
	} {
		a := (&state{apps: map[string]*app{}}).app("shop")
		for i := range tt.gone {
			a.slots[i+1-tt.gone/16].Ownership = job.SlotOwnership{State: job.Left, Move: 1}
		}
		if got := a.part(tt.limit); got != tt.want {
			t.Errorf("without %d slots of 16: %d of %d, want %d", tt.gone, got, tt.limit, tt.want)
		}
		if a.within(tt.want+1, tt.limit) || !a.within(tt.want, tt.limit) {
			t.Errorf("without %d slots of 16: the share of %d is not where within changes", tt.gone, tt.limit)
		}
	}
}
