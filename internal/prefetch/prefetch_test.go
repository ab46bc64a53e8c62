package prefetch

import (
	"slices"
	"testing"
)

// TestEach checks that each item is yielded once, in order, and after its group was read.
func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, Group - 1, Group, Group + 1, 3*Group + 5} {
		list := make([]int, n)
		for i := range list {
			list[i] = 1000 + i
		}
		loaded := 0
		var seen []int
		for i, item := range Each(list, func(group []int) int64 {
			if len(group) == 0 || len(group) > Group {
				t.Fatalf("%d items: a group of %d", n, len(group))
			}
			if loaded != len(seen) {
				t.Fatalf("%d items: a group is read after %d of %d items", n, len(seen), loaded)
			}
			loaded += len(group)
			return 0
		}) {
			if i >= loaded || item != 1000+i {
				t.Fatalf("%d items: item %d is %d, %d are read", n, i, item, loaded)
			}
			seen = append(seen, i)
		}
		if len(seen) != n || !slices.IsSorted(seen) {
			t.Errorf("%d items: %v were yielded", n, seen)
		}
	}
}

// TestEachStops checks that a loop which ends early reads no further group.
func TestEachStops(t *testing.T) {
	reads := 0
	for i := range Each(make([]int, 3*Group), func([]int) int64 { reads++; return 0 }) {
		if i == Group {
			break
		}
	}
	if reads != 2 {
		t.Errorf("%d groups were read, want 2", reads)
	}
}
