package cron

import (
	"time"
	_ "time/tzdata" // zones must resolve on machines without a zone database
)

// Dialect says how the fields of an expression are counted and numbered.
type Dialect string

// The dialects. The zero value means [DialectAuto].
const (
	DialectAuto   Dialect = "auto"   // 5 fields: unix; 6 or 7 fields: quartz
	DialectQuartz Dialect = "quartz" // 6 or 7 fields, seconds first, Sunday is 1
	DialectUnix   Dialect = "unix"   // 5 fields, Sunday is 0 or 7
)

// GapPolicy says what happens to a civil time that a forward clock change skips.
type GapPolicy string

// The gap policies. The zero value means [GapShift].
const (
	// GapShift reads the time with the offset in force before the gap, as
	// RFC 5545 section 3.3.5 demands: 02:30 fires at 03:30 when 02:00 became 03:00.
	GapShift GapPolicy = "shift"
	// GapSkip does not fire.
	GapSkip GapPolicy = "skip"
)

// FoldPolicy says what happens to a civil time that a backward clock change repeats.
type FoldPolicy string

// The fold policies. The zero value means [FoldFirst].
const (
	FoldFirst  FoldPolicy = "first"  // fire at the first occurrence
	FoldSecond FoldPolicy = "second" // fire at the second occurrence
	FoldBoth   FoldPolicy = "both"   // fire at both
)

// Options adjusts [Parse]. The zero value is valid.
type Options struct {
	// Dialect of the expression. Default: auto.
	Dialect Dialect
	// Gap is the policy for skipped civil times. Default: shift. Interval-like
	// schedules ignore it.
	Gap GapPolicy
	// Fold is the policy for repeated civil times. Default: first.
	// Interval-like schedules ignore it.
	Fold FoldPolicy
	// Seed is hashed to choose the values of H fields; use the job's identity.
	// Default: the empty seed, for which all jobs share the same values.
	Seed string
}

// Schedule is a parsed expression bound to a zone. It is immutable and safe
// for concurrent use.
type Schedule struct {
	fields  [unitCount]field
	monthly []monthDay   // L, L-n, LW, nW of the day-of-month field
	nth     []nthWeekday // w#k, wL of the day-of-week field

	calendar calendar // compiled from the above
	dialect  Dialect  // unix or quartz, never auto
	loc      *time.Location
	gap      GapPolicy
	fold     FoldPolicy
	interval bool

	// last is the final instant of a schedule that the gaps of its zone swallow
	// for ever, noInstant if there is none, maxInstant for every other schedule.
	// Without it such a schedule would search the whole horizon on every call.
	last int64
}

// Next returns the earliest instant strictly after the given one, in the
// schedule's zone and in whole seconds. It returns false if the schedule does
// not fire within the 400 years (one Gregorian cycle) that follow, which means
// never, or if the year would exceed 9999.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	t := after.Unix()
	if t >= s.last {
		return time.Time{}, false
	}
	return s.inZone(s.nextInstant(max(t+1, minInstant)))
}

// Prev returns the latest instant strictly before the given one, in the
// schedule's zone and in whole seconds. It returns false if the schedule does
// not fire in the 400 years before, or if the year would be less than 1.
func (s *Schedule) Prev(before time.Time) (time.Time, bool) {
	t := before.Unix()
	if before.Nanosecond() == 0 {
		t--
	}
	return s.inZone(s.prevInstant(min(t, s.last)))
}

// Between returns the instants t with from < t <= to in ascending order, at
// most limit of them. Adjacent windows therefore share no instant and lose none.
func (s *Schedule) Between(from, to time.Time, limit int) []time.Time {
	var times []time.Time
	for t := from; len(times) < limit; {
		next, ok := s.Next(t)
		if !ok || next.After(to) {
			break
		}
		times = append(times, next)
		t = next
	}
	return times
}

// Count returns how many instants t of the schedule there are with
// from <= t < to. It does not visit them: it takes about a microsecond per year
// of the range, however often the schedule fires.
func (s *Schedule) Count(from, to time.Time) int64 {
	return s.countInstants(ceilSecond(from), ceilSecond(to))
}

// On returns the schedule on those days only that allowed has: for a year and a
// month it returns a set of days, bit n for day n. They are days of the civil
// times, before a gap shifts them. allowed must always give the same answers
// and be safe for concurrent use.
func (s *Schedule) On(allowed func(year, month int) uint32) *Schedule {
	on := *s
	on.calendar.allowed = allowed
	return &on
}

// IntervalLike reports whether the hour field repeats without an upper bound,
// so that the schedule follows elapsed time across daylight-saving changes
// instead of the gap and fold policies.
func (s *Schedule) IntervalLike() bool { return s.interval }

func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func (s *Schedule) inZone(unix int64, ok bool) (time.Time, bool) {
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(unix, 0).In(s.loc), true
}
