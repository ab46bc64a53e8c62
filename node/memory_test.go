package node

import (
	"slices"
	"testing"
)

func TestMemoryIsGivenBackAfterABusyTime(t *testing.T) {
	var k releaser
	total := uint64(0)
	looks := func(n int, grow uint64) (given []int) {
		for i := range n {
			total += grow
			if k.look(total) {
				given = append(given, i+1)
			}
		}
		return given
	}
	for i, c := range []struct {
		looks int
		grow  uint64
		want  []int
	}{
		{looks: 5, grow: busy},                                 // it has not been busy yet
		{looks: 3, grow: busy + 1},                             // it is busy
		{looks: 2, grow: busy, want: []int{1}},                 // it is quiet
		{looks: 1, grow: 1 << 30},                              // busy again
		{looks: 100, grow: busy, want: []int{1, 3, 10, 30}},    // and then no more
		{looks: 1, grow: busy + 1},                             // busy
		{looks: 1000, grow: 0, want: slices.Clone(giveBackAt)}, // and completely quiet
	} {
		if got := looks(c.looks, c.grow); !slices.Equal(got, c.want) {
			t.Errorf("%d: after %d looks, with %d bytes between two of them, memory was given back at %v, want %v", i, c.looks, c.grow, got, c.want)
		}
	}
}

func TestAllocated(t *testing.T) {
	before := allocated()
	room := make([]byte, 32<<20)
	for i := range room {
		room[i] = 1
	}
	if after := allocated(); after-before < 32<<20 {
		t.Errorf("allocated %d bytes before and %d after 32 MiB more", before, after)
	}
}
