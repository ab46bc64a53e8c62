package wasm

import (
	"math"
	"time"
)

// A moment is a time of the process's steady clock, since clockStart. It is
// cheaper to read and to compare than a time.Time, and what happens between two
// tasks of a batch takes no longer than a few looks at the clock.
type moment time.Duration

// never is later than every moment.
const never = moment(math.MaxInt64)

var clockStart = time.Now()

func now() moment { return moment(time.Since(clockStart)) }

// momentOf ties a time to the steady clock, so that a step of the wall clock
// does not end a guest; the zero time is never. Of a time that came over the
// network counts what is left of it now, which was seen last.
func momentOf(t time.Time, seen moment) moment {
	switch {
	case t.IsZero():
		return never
	case t == t.Round(0): // it has no reading of the steady clock
		return seen + min(moment(time.Until(t)), never-max(seen, 0))
	}
	return moment(t.Sub(clockStart))
}

// time is the moment as others understand it; never is the zero time.
func (m moment) time() time.Time {
	if m == never {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(m - now()))
}
