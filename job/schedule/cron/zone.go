package cron

import "time"

// The engine covers the years 1 to 9999. Instants are Unix seconds.
const (
	minInstant int64 = -62135596800 // 0001-01-01T00:00:00Z
	maxInstant int64 = 253402300799 // 9999-12-31T23:59:59Z
	noInstant  int64 = minInstant - 1

	// horizon is a Gregorian cycle, 400 years, in seconds.
	horizon int64 = daysPerCycle * secondsPerDay

	// farOffset exceeds every offset from UTC in the zone database.
	farOffset int64 = secondsPerDay
)

// segment is a range of instants [start, end) in which a zone has one offset. In every
// zone of the database a segment is longer than the gaps next to it (TestZoneSegments),
// so a shifted civil time always falls into the segment after its gap.
type segment struct {
	start, end int64 // Unix seconds

	// Offsets in seconds east of UTC: just before start, inside, and at end.
	before, offset, after int64
}

func segmentAt(loc *time.Location, unix int64) segment {
	t := time.Unix(unix, 0).In(loc)
	offset := zoneOffset(t)
	g := segment{start: minInstant, end: maxInstant + 1, before: offset, offset: offset, after: offset}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		g.start = start.Unix()
		g.before = zoneOffset(time.Unix(g.start-1, 0).In(loc))
	}
	if !end.IsZero() {
		g.end = end.Unix()
		if g.end <= unix {
			// Where ZoneBounds computes from a rule, it assumes 365 days for every year.
			// So on 31 December of a leap year it returns an end in the past. No rule
			// changes the clocks on that day (UTC).
			day, _ := splitDay(unix)
			g.end = (day + 1) * secondsPerDay
		}
		g.after = zoneOffset(time.Unix(g.end, 0).In(loc))
	}
	return g
}

func zoneOffset(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// window is a range of civil times [from, to) that one offset maps to instants.
type window struct {
	from, to int64 // civil seconds; empty if from >= to
	offset   int64 // instant = civil - offset
}

func (w window) next(c *calendar, unix int64) (int64, bool) {
	from := max(w.from, unix+w.offset)
	if from >= w.to {
		return 0, false
	}
	civil, ok := c.next(from)
	return civil - w.offset, ok && civil < w.to
}

func (w window) prev(c *calendar, unix int64) (int64, bool) {
	from := min(w.to-1, unix+w.offset)
	if from < w.from {
		return 0, false
	}
	civil, ok := c.prev(from)
	return civil - w.offset, ok && civil >= w.from
}

// count counts the instants of the window in [from, to).
func (w window) count(c *calendar, from, to int64) int64 {
	return c.count(max(w.from, from+w.offset), min(w.to, to+w.offset))
}

// windows returns the civil times that fire in a segment: those that exist in it, without
// the repeated ones that fire in the neighbouring segment, and those of the gap before
// it. All instants of both windows lie in the segment.
func (s *Schedule) windows(g segment) (existing, gap window) {
	existing = window{from: g.start + g.offset, to: g.end + g.offset, offset: g.offset}
	if s.interval {
		return existing, window{}
	}
	switch s.fold {
	case FoldFirst:
		existing.from = g.start + max(g.offset, g.before)
	case FoldSecond:
		existing.to = g.end + min(g.offset, g.after)
	}
	if s.gap == GapShift {
		gap = window{from: g.start + g.before, to: g.start + g.offset, offset: g.before}
	}
	return existing, gap
}

// nextInstant returns the earliest instant of the schedule that is at least from.
func (s *Schedule) nextInstant(from int64) (int64, bool) {
	limit := min(from+horizon, maxInstant)
	for t := from; t <= limit; {
		g := segmentAt(s.loc, t)
		existing, gap := s.windows(g)
		at, ok := existing.next(&s.calendar, t)
		if shifted, found := gap.next(&s.calendar, t); found && (!ok || shifted < at) {
			at, ok = shifted, true
		}
		if ok {
			return at, at <= limit
		}
		civil, ok := s.calendar.next(g.end - farOffset)
		if !ok {
			return 0, false
		}
		t = max(g.end, civil-farOffset)
	}
	return 0, false
}

// prevInstant returns the latest instant of the schedule that is at most from.
func (s *Schedule) prevInstant(from int64) (int64, bool) {
	from = min(from, maxInstant)
	limit := max(from-horizon, minInstant)
	for t := from; t >= limit; {
		g := segmentAt(s.loc, t)
		existing, gap := s.windows(g)
		at, ok := existing.prev(&s.calendar, t)
		if shifted, found := gap.prev(&s.calendar, t); found && (!ok || shifted > at) {
			at, ok = shifted, true
		}
		if ok {
			return at, at >= limit
		}
		civil, ok := s.calendar.prev(g.start + farOffset)
		if !ok {
			return 0, false
		}
		t = min(g.start-1, civil+farOffset)
	}
	return 0, false
}

// lastInstant returns the value of Schedule.last. After the year 2100 every zone follows
// a fixed yearly rule or none. So a schedule that does not fire in the 400 years after it
// never fires again.
func (s *Schedule) lastInstant() int64 {
	settled := dayNumber(2100, 1, 1) * secondsPerDay
	if !s.interval && s.gap != GapSkip {
		return maxInstant // no gap skips a time
	}
	if _, ok := s.nextInstant(settled); ok {
		return maxInstant
	}
	if last, ok := s.prevInstant(settled); ok {
		return last
	}
	return noInstant
}

// Instant returns the instant at which the clocks of loc show wall, a civil time with the
// location UTC and in whole seconds. For a civil time that exists twice it returns the
// first instant. A civil time that does not exist is interpreted with the offset in force
// before the gap, as RFC 5545 section 3.3.5 requires. The year must be 1 to 9999.
func Instant(loc *time.Location, wall time.Time) time.Time {
	civil := wall.Unix()
	for t := max(civil-farOffset, minInstant); ; {
		g := segmentAt(loc, t)
		switch {
		case civil < g.start+g.offset: // not in the segment before either, so it is in the gap
			return time.Unix(civil-g.before, 0).In(loc)
		case civil < g.end+g.offset, g.end > maxInstant:
			return time.Unix(civil-g.offset, 0).In(loc)
		}
		t = g.end
	}
}

// countInstants counts the instants of the schedule in [from, to).
func (s *Schedule) countInstants(from, to int64) int64 {
	from, to = max(from, minInstant), min(to, maxInstant+1)
	var n int64
	for t := from; t < to; {
		g := segmentAt(s.loc, t)
		existing, gap := s.windows(g)
		end := min(g.end, to)
		n += existing.count(&s.calendar, t, end)
		// A shifted time may fall on the instant of an existing time; the two fire once.
		// A gap is short, so its times are checked one by one. No shifted time falls on a
		// repeated time, because the segment is longer than the gap.
		for at, ok := gap.next(&s.calendar, t); ok && at < end; at, ok = gap.next(&s.calendar, at+1) {
			if !s.calendar.matches(at + g.offset) {
				n++
			}
		}
		t = g.end
	}
	return n
}
