package node

import "testing"

func TestMemoryIsGivenBackOnceAfterABusyTime(t *testing.T) {
	var k keeper
	allocated := uint64(0)
	for i, c := range []struct {
		grow, idle, garbage uint64
		want                bool
	}{
		{grow: 1 << 30, idle: 1 << 30},                      // busy
		{grow: busy + 1, idle: 1 << 30},                     // still
		{grow: busy, idle: spare / 2, garbage: spare/2 - 1}, // not worth it
		{grow: 10, idle: spare / 2, garbage: spare / 2, want: true},
		{grow: 10, idle: 1 << 30},  // what is idle now came from no work
		{grow: busy + 1, idle: 10}, // busy again
		{grow: 0, idle: 10, garbage: 1 << 30, want: true},
	} {
		allocated += c.grow
		if got := k.look(memory{allocated, c.idle, c.garbage}); got != c.want {
			t.Errorf("look %d, %+v: %v, want %v", i, c, got, c.want)
		}
	}
}

func TestReadMemory(t *testing.T) {
	before := readMemory()
	room := make([]byte, 32<<20)
	for i := range room {
		room[i] = 1
	}
	after := readMemory()
	if after.allocated-before.allocated < 32<<20 {
		t.Errorf("allocated %d bytes before and %d after 32 MiB more", before.allocated, after.allocated)
	}
}
