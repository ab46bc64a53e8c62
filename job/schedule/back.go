package schedule

import "time"

// This file defines how a schedule reacts to a clock that was set back (ADR 36). Times
// that name the clock (cron, daily, at, a fixed rate with a from) wait for it, because
// the times that the clock shows again have been planned. Times that count from an event
// continue at their pace.

// Back returns the instant of the next planned time of a plan after the clock was set
// back by the given duration. false: the planned time waits for the clock.
//
// A fixed rate moves off its former grid: the clock shows the former times again, and a
// planned time has only one run. The new times are within a second of the pace.
func (p Plan) Back(next time.Time, by time.Duration) (time.Time, bool) {
	to := next.Add(-by)
	e, rate := p.times.(every)
	switch {
	case rate && !e.anchored:
		return p.Anchor(beside(e.step, next, to)).After(beside(e.step, next, to).Add(-1))
	case p.delay > 0 || p.after > 0:
		if first := p.from.Add(p.shift); to.Before(first) {
			to = first
		}
		return to.In(p.Location()), true
	}
	return next, false
}

// besideUnit is the range, in milliseconds, within which beside finds a time.
const besideUnit = 1000

// beside returns the first time at or after to that is not on the grid of next. Modulo
// the unit, its offset is one millisecond more than that of next, so that a clock that is
// set back repeatedly leads to other times each time.
func beside(step int64, next, to time.Time) time.Time {
	unit := gcd(step, besideUnit)
	if unit < 2 {
		unit = step
	}
	want, at := next.UnixMilli()+1, ceilMilli(to)
	return time.UnixMilli(at + mod(want-at, unit))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mod returns the non-negative remainder of a / b.
func mod(a, b int64) int64 { return (a%b + b) % b }

// Ahead returns a lower bound of the duration by which the clock was set back since next
// was planned. It is positive if next is further ahead of now than the schedule plans,
// plus early, the duration by which a planned time is known in advance. 0: the clock was
// not set back, or the schedule waits for the clock.
func (p Plan) Ahead(next, now time.Time, early time.Duration) time.Duration {
	e, rate := p.times.(every)
	switch {
	case rate && !e.anchored && e.dates.empty():
		step := time.Duration(e.step) * time.Millisecond
		if ahead := next.Sub(now); ahead > step+early {
			return ahead - ahead%step
		}
	case p.delay > 0 || p.after > 0:
		if longest := max(p.delay, p.after) + p.shift; next.Sub(now) > longest+early && !next.Add(-p.shift).Equal(p.from) {
			return next.Sub(now) - longest
		}
	}
	return 0
}
