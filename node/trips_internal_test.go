package node

import (
	"testing"
	"time"
)

func TestTrips(t *testing.T) {
	var trips trips
	for i := range tripsEnough {
		if d := trips.least(); d != 0 {
			t.Errorf("after %d: %v", i, d)
		}
		trips.add(time.Second)
	}
	trips.add(time.Millisecond)
	if d := trips.least(); d != time.Millisecond {
		t.Errorf("%v", d)
	}
	for range len(trips.last) {
		trips.add(2 * time.Millisecond)
	}
	if d := trips.least(); d != 2*time.Millisecond {
		t.Errorf("what was long ago counts: %v", d)
	}
}
