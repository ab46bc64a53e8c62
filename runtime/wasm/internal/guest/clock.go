package guest

import (
	"math"
	"time"
)

// A Moment is a time of the process's monotonic clock, since clockStart. It is cheaper to
// read and to compare than a time.Time. That matters because the work between two tasks of
// a batch takes no longer than a few reads of the clock.
type Moment time.Duration

// never is later than every moment.
const never = Moment(math.MaxInt64)

var clockStart = time.Now()

// Now reads the clock.
func Now() Moment { return Moment(time.Since(clockStart)) }

// momentOf converts a time to the monotonic clock, so that a step of the wall clock does
// not end a guest. The zero time becomes never. For a time without a monotonic reading,
// such as one from the network, it adds the time that is left until then to seen, the
// moment at which the clock was last read.
func momentOf(t time.Time, seen Moment) Moment {
	switch {
	case t.IsZero():
		return never
	case t == t.Round(0): // it has no reading of the monotonic clock
		return seen + min(Moment(time.Until(t)), never-max(seen, 0))
	}
	return Moment(t.Sub(clockStart))
}

// time converts the moment to a time.Time; never becomes the zero time.
func (m Moment) time() time.Time {
	if m == never {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(m - Now()))
}

// ClockStep is the resolution of the clocks that guests see. A finer one would let guests
// measure the timing of caches and of other guests.
const ClockStep = time.Millisecond

// Nanotime is the monotonic clock of guests.
func Nanotime() int64 { return int64(time.Duration(Now()).Truncate(ClockStep)) }

// Walltime is the wall clock of guests.
func Walltime() (sec int64, nsec int32) {
	now := time.Now().Truncate(ClockStep)
	return now.Unix(), int32(now.Nanosecond())
}
