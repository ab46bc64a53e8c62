package job

import "time"

// This file is what a clock that was set back means for a schedule. Times that name the clock (cron,
// daily, at, a fixed rate from a set time) wait for it: what it shows again has been planned. Times that
// count from an event go on at their pace.

// Back returns where a time that a plan has planned next stands on a clock that was set back by so much;
// false: it waits for the clock.
//
// A fixed rate goes on beside the times that it had: the clock shows those again, and a planned time has
// one run. It comes within a second of its pace.
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

// besideUnit is the time, in milliseconds, within which beside finds one.
const besideUnit = 1000

// beside returns the first time from to on that is not on the grid of next. It is a
// millisecond further in a unit of the grid than next, so that a clock which is set back
// again and again leads to other times each time.
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

// mod is the remainder that is not negative.
func mod(a, b int64) int64 { return (a%b + b) % b }

// Ahead returns by how much the clock was set back at least since next was planned: it is
// further from now than the schedule plans ahead, and than it is known so early. 0: it is
// not, or the schedule waits for the clock.
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

// The fields of apiv1.Schedule by which [Job.GoesOn] decides. Each has one byte for its
// number and its type.
const (
	scheduleEvery = 3
	scheduleAfter = 6
	scheduleFrom  = 8
)

// GoesOn reports whether the next planned time of the job may go on at its pace when the
// clock is set back: false means that [Plan.Back] would say so too. It reads the bytes of
// the schedule, as a server that starts asks this of a million jobs.
func (j *Job) GoesOn() bool {
	every, from := false, false
	for s := j.Schedule(); len(s) > 0; {
		switch s[0] >> 3 {
		case scheduleDelay, scheduleAfter:
			return true
		case scheduleEvery:
			every = true
		case scheduleFrom:
			from = true
		}
		numbered, n := s[0]&7 == 0, 0
		s = s[1:]
		for shift := 0; len(s) > 0; shift += 7 {
			c := s[0]
			s, n = s[1:], n|int(c&0x7f)<<min(shift, 56)
			if c < 0x80 {
				break
			}
		}
		if !numbered {
			if n < 0 || n > len(s) {
				return true // no schedule of ours: the plan decides
			}
			s = s[n:]
		}
	}
	return every && !from
}
