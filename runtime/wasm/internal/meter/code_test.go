package meter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFold(t *testing.T) {
	const small, large = foldBelow - 1, foldBelow
	tests := []struct {
		name       string
		have, want []point
	}{
		{
			"small arms go to what runs before them",
			[]point{{cost: 1}, {at: 5, cost: 2}, {at: 9, cost: 3, dominator: 1}},
			[]point{{cost: 6}},
		},
		{
			"large arms stay",
			[]point{{cost: 1}, {at: 5, cost: large}, {at: 9, cost: 3}},
			[]point{{cost: 4}, {at: 5, cost: large}},
		},
		{
			"small arms that add up to a large one stay with it",
			[]point{{cost: 1}, {at: 5, cost: small}, {at: 9, cost: 1, dominator: 1}},
			[]point{{cost: 1}, {at: 5, cost: large}},
		},
		{
			"a loop head takes in what is inside and is never moved",
			[]point{{cost: 1}, {at: 5, cost: 1, check: true}, {at: 9, cost: 4, dominator: 1}, {at: 12, cost: 2}},
			[]point{{cost: 3}, {at: 5, cost: 5, check: true}},
		},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, fold(tt.have), cmp.AllowUnexported(point{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
