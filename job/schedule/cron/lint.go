package cron

import (
	"fmt"
	"time"
)

// lintSpan is the time in which Lint looks for clock changes, in seconds: a year and a
// day.
const lintSpan = 366 * secondsPerDay

// Lint returns warnings about the schedule after from, one sentence each: that it never
// fires again, that a run falls into a daylight-saving gap within a year, that two runs
// fall on the same instant, or that a day can never match. It returns nil if there is no
// warning.
func (s *Schedule) Lint(from time.Time) []string {
	if _, ok := s.Next(from); !ok {
		if last, ok := s.Prev(from.Add(time.Second)); ok {
			return []string{fmt.Sprintf("it never fires again, the last time was %s", last.Format(time.RFC3339))}
		}
		return []string{"it never fires"}
	}
	var warnings []string
	if s.calendar.either && !s.monthDayPossible() {
		warnings = append(warnings, fmt.Sprintf("day of month %s never occurs in %s, only the day of week %s fires",
			s.text(dayOfMonth), s.monthNames(), s.text(dayOfWeek)))
	}
	return append(warnings, s.lintGap(from.Unix())...)
}

// monthDayPossible reports whether the day-of-month field alone matches a date.
func (s *Schedule) monthDayPossible() bool {
	alone := s.calendar
	alone.either, alone.weekdays, alone.nth = false, weekdayTable(1<<7-1), nil
	_, ok := alone.nextDay(2000, 1, 1)
	return ok
}

// lintGap returns warnings about the first gap after from that skips or moves a run.
func (s *Schedule) lintGap(from int64) []string {
	if s.interval {
		return nil
	}
	from = max(from, minInstant)
	for t := from; t < min(from+lintSpan, maxInstant); {
		g := segmentAt(s.loc, t)
		gap := window{from: g.end + g.offset, to: g.end + g.after}
		if missing, ok := gap.next(&s.calendar, gap.from); ok {
			return s.describeGap(g, gap, missing)
		}
		t = g.end
	}
	return nil
}

func (s *Schedule) describeGap(g segment, gap window, missing int64) []string {
	what := fmt.Sprintf("on %s the clocks in %s go from %s to %s, so %s does not exist",
		civilText(gap.from, "2006-01-02"), s.loc, civilText(gap.from, time.TimeOnly), civilText(gap.to, time.TimeOnly), civilText(missing, time.TimeOnly))
	if s.gap == GapSkip {
		return []string{what + ": that run is skipped"}
	}
	fires := time.Unix(missing-g.offset, 0).In(s.loc).Format(time.RFC3339)
	warnings := []string{fmt.Sprintf("%s: that run fires at %s", what, fires)}
	if civil, ok := s.merged(gap, missing, g.offset); ok {
		warnings = append(warnings, fmt.Sprintf("on %s the runs of %s and %s are less than a second apart and fire once",
			civilText(gap.from, "2006-01-02"), civilText(civil, time.TimeOnly), civilText(civil-g.offset+s.offsetAt(civil-g.offset), time.TimeOnly)))
	}
	return warnings
}

// merged returns a civil time in the gap that is shifted to the instant of another,
// existing civil time of the schedule.
func (s *Schedule) merged(gap window, missing, offset int64) (int64, bool) {
	for civil, ok := missing, true; ok && civil < gap.to; civil, ok = s.calendar.next(civil + 1) {
		if s.calendar.matches(civil - offset + s.offsetAt(civil-offset)) {
			return civil, true
		}
	}
	return 0, false
}

func (s *Schedule) offsetAt(unix int64) int64 {
	return zoneOffset(time.Unix(unix, 0).In(s.loc))
}

// civilText formats a civil time.
func civilText(civil int64, layout string) string {
	return time.Unix(civil, 0).UTC().Format(layout)
}
