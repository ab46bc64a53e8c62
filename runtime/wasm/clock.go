package wasm

import (
	"math"
	"time"
)

// A moment is a time of the process's monotonic clock, since clockStart. It is cheaper to
// read and to compare than a time.Time. That matters because the work between two tasks of
// a batch takes no longer than a few reads of the clock.
type moment time.Duration

// never is later than every moment.
const never = moment(math.MaxInt64)

var clockStart = time.Now()

func now() moment { return moment(time.Since(clockStart)) }

// momentOf converts a time to the monotonic clock, so that a step of the wall clock does
// not end a guest. The zero time becomes never. For a time without a monotonic reading,
// such as one from the network, it adds the time that is left until then to seen, the
// moment at which the clock was last read.
func momentOf(t time.Time, seen moment) moment {
	switch {
	case t.IsZero():
		return never
	case t == t.Round(0): // it has no reading of the monotonic clock
		return seen + min(moment(time.Until(t)), never-max(seen, 0))
	}
	return moment(t.Sub(clockStart))
}

// time converts the moment to a time.Time; never becomes the zero time.
func (m moment) time() time.Time {
	if m == never {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(m - now()))
}
