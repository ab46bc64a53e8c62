package cron

import (
	"time"
	_ "time/tzdata" // so that zones resolve on machines without a zone database
)

// Dialect determines the number of fields of an expression and the numbers of weekdays.
type Dialect string

// The dialects. The zero value means [DialectAuto].
const (
	DialectAuto   Dialect = "auto"   // 5 fields: unix; 6 or 7 fields: quartz
	DialectQuartz Dialect = "quartz" // 6 or 7 fields, seconds first, Sunday is 1
	DialectUnix   Dialect = "unix"   // 5 fields, Sunday is 0 or 7
)

// GapPolicy decides about a civil time that a forward clock change skips.
type GapPolicy string

// The gap policies. The zero value means [GapShift].
const (
	// GapShift interprets the time with the offset in force before the gap, as RFC 5545
	// section 3.3.5 requires: 02:30 fires at 03:30 if the clocks go from 02:00 to 03:00.
	GapShift GapPolicy = "shift"
	// GapSkip does not fire at such a time.
	GapSkip GapPolicy = "skip"
)

// FoldPolicy decides about a civil time that a backward clock change repeats.
type FoldPolicy string

// The fold policies. The zero value means [FoldFirst].
const (
	FoldFirst  FoldPolicy = "first"  // fire at the first occurrence
	FoldSecond FoldPolicy = "second" // fire at the second occurrence
	FoldBoth   FoldPolicy = "both"   // fire at both
)

// Options adjusts [Parse]. The zero value is valid.
type Options struct {
	// Dialect is the dialect of the expression. Default: auto.
	Dialect Dialect
	// Gap is the policy for skipped civil times. Default: shift. Interval-like
	// schedules ignore it.
	Gap GapPolicy
	// Fold is the policy for repeated civil times. Default: first.
	// Interval-like schedules ignore it.
	Fold FoldPolicy
	// Seed is hashed to choose the values of H fields; use the identity of the job.
	// Default: the empty seed, with which all jobs get the same values.
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

	// last is the last instant of a schedule that from some time on only names civil
	// times in the gaps of its zone; noInstant if it has none. It is maxInstant for every
	// other schedule. Without it, each call would search the whole horizon for such a
	// schedule.
	last int64
}

// Next returns the earliest instant strictly after the given one, in the schedule's zone
// and in whole seconds. It returns false if the schedule does not fire within the
// following 400 years (one Gregorian cycle) and so never fires, or if the year would
// exceed 9999.
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

// Between returns the instants t with from < t <= to in ascending order, at most limit of
// them. So adjacent ranges share no instant and omit none.
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

// Count returns the number of instants t of the schedule with from <= t < to. It does not
// visit them: it takes about a microsecond per year of the range, however often the
// schedule fires.
func (s *Schedule) Count(from, to time.Time) int64 {
	return s.countInstants(ceilSecond(from), ceilSecond(to))
}

// On returns the schedule restricted to some days. allowed returns the set of these days
// for a year and a month, bit n for day n. They are the days of the civil times, before a
// gap shifts a time. allowed must be a pure function that is safe for concurrent use.
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
