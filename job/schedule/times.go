package schedule

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// times are the times of one kind of schedule, in whole milliseconds, before the bounds
// and the shift of its plan. [cron.Schedule] implements it.
type times interface {
	// Next returns the first time strictly after the given one; false: there is none
	// within the horizon.
	Next(after time.Time) (time.Time, bool)
	// Count counts the times t with from <= t < to without visiting them.
	Count(from, to time.Time) int64
}

// lastTime is the end of all schedules, in Unix milliseconds.
var lastTime = time.Date(lastYear, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()

// ceilMilli rounds a time up to Unix milliseconds. Planned times are whole milliseconds,
// so that the stored time is the planned one, and rounding up keeps a run from starting
// early.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) > 0 {
		ms++
	}
	return ms
}

// dayAt returns the day of an instant, and its start and end in Unix milliseconds. A day
// lasts from its first midnight to the first midnight of the next day. Where the clocks
// go back over midnight, the repeated part belongs to the day that had already begun.
func dayAt(loc *time.Location, ms int64) (day civilDay, begin, end int64) {
	day = civilDayOf(time.UnixMilli(ms).In(loc))
	begin, end = dayBegin(loc, day), dayBegin(loc, day+1)
	for ms >= end {
		day, begin, end = day+1, end, dayBegin(loc, day+2)
	}
	return day, begin, end
}

func dayBegin(loc *time.Location, day civilDay) int64 {
	return cron.Instant(loc, day.wall()).UnixMilli()
}

// steps are the instants first, first+step, … up to and including last, in Unix
// milliseconds.
type steps struct {
	first, last, step int64
}

// from returns the first instant at or after the given time, and whether there is one.
func (s steps) from(from int64) (int64, bool) {
	at := s.first
	if from > at {
		at += (from - at + s.step - 1) / s.step * s.step
	}
	return at, at <= s.last
}

// count counts the instants in [from, to).
func (s steps) count(from, to int64) int64 {
	at, ok := s.from(from)
	to = min(to, s.last+1)
	if !ok || at >= to {
		return 0
	}
	return (to-1-at)/s.step + 1
}

// every is a fixed rate, on some dates only.
type every struct {
	anchor   int64 // one of its times, in Unix milliseconds
	anchored bool  // else it counts from the argument of Next or Count
	step     int64 // milliseconds
	dates    dates
	loc      *time.Location // zone of the dates
}

// grid returns the steps at or after a time.
func (e every) grid(from int64) steps {
	first := e.anchor
	if from < first {
		first -= (first - from) / e.step * e.step
	}
	return steps{first, lastTime, e.step}
}

func (e every) Next(after time.Time) (time.Time, bool) {
	from := after.UnixMilli() + 1
	grid := e.grid(from)
	for limit := after.AddDate(horizon, 0, 0).UnixMilli(); ; {
		at, ok := grid.from(from)
		if !ok || at > limit {
			return time.Time{}, false
		}
		if e.dates.empty() {
			return time.UnixMilli(at).In(e.loc), true
		}
		day, _, _ := dayAt(e.loc, at)
		if e.dates.has(day) {
			return time.UnixMilli(at).In(e.loc), true
		}
		if day, ok = e.dates.next(day + 1); !ok {
			return time.Time{}, false
		}
		from = dayBegin(e.loc, day)
	}
}

func (e every) Count(from, to time.Time) int64 {
	begin, end := ceilMilli(from), min(ceilMilli(to), lastTime+1)
	grid := e.grid(begin)
	if e.dates.empty() || begin >= end {
		return grid.count(begin, end)
	}
	var n int64
	day, _, _ := dayAt(e.loc, begin)
	for day, ok := e.dates.next(day); ok; day, ok = e.dates.next(day + 1) {
		first, last := dayBegin(e.loc, day), dayBegin(e.loc, day+1)
		if first >= end {
			break
		}
		n += grid.count(max(begin, first), min(end, last))
	}
	return n
}

// daily is a span of each day with a fixed rate in it. The rate counts elapsed time from
// the start of the span, so a clock change neither bunches nor omits its times.
type daily struct {
	from   time.Duration // start of the span, after midnight
	length time.Duration // less than a day; the end is included
	step   int64         // milliseconds
	weekly [7]uint32     // days on which a span begins, by the weekday of day 1 of the month; bit n is day n
	dates  dates         // of the times
	loc    *time.Location
}

// span returns the times of the span that begins on a day. It ends before the next day's
// span begins. It is empty on a day that the clocks skip.
func (d daily) span(day civilDay) steps {
	begin := cron.Instant(d.loc, day.wall().Add(d.from)).UnixMilli()
	next := cron.Instant(d.loc, (day + 1).wall().Add(d.from)).UnixMilli()
	end := cron.Instant(d.loc, day.wall().Add(d.from+d.length)).UnixMilli()
	return steps{begin, min(max(end, begin), next-1), d.step}
}

// overMidnight reports whether a span reaches into the next day.
func (d daily) overMidnight() bool { return d.from+d.length >= dayLength }

// next returns the first day at or after from whose span may have times.
func (d daily) next(from civilDay) (civilDay, bool) {
	return nextDay(from, func(year, month int) uint32 {
		first, length := shape(year, month)
		days := d.weekly[first] & (1<<(length+1) - 2)
		if d.dates.empty() || days == 0 {
			return days
		}
		on := d.dates.month(year, month)
		if d.overMidnight() { // the day before one of the dates counts too
			on |= on >> 1
			if d.dates.has(dayNumber(year, month, length) + 1) {
				on |= 1 << length
			}
		}
		return days & on
	})
}

// visit calls yield with the times of each span on the allowed dates, until yield returns
// false. It begins at or before the span that contains from, in Unix milliseconds.
func (d daily) visit(from int64, yield func(s steps, from, to int64) bool) {
	day, _, _ := dayAt(d.loc, from)
	limit := day + horizon*366
	for day, ok := d.next(day - 2); ok && day <= limit; day, ok = d.next(day + 1) {
		if !d.visitSpan(day, yield) {
			return
		}
	}
}

// visitSpan calls yield with the parts of a span on each allowed date. It reports whether
// the visit continues.
func (d daily) visitSpan(day civilDay, yield func(s steps, from, to int64) bool) bool {
	if d.dates.empty() {
		s := d.span(day)
		return yield(s, s.first, s.last+1)
	}
	here, there := d.dates.has(day), d.overMidnight() && d.dates.has(day+1)
	s, midnight := d.span(day), dayBegin(d.loc, day+1)
	return (!here || yield(s, s.first, min(midnight, s.last+1))) &&
		(!there || yield(s, max(midnight, s.first), s.last+1))
}

func (d daily) Next(after time.Time) (next time.Time, found bool) {
	t := after.UnixMilli()
	d.visit(t, func(s steps, from, to int64) bool {
		if at, ok := s.from(max(from, t+1)); ok && at < to {
			next, found = time.UnixMilli(at).In(d.loc), at <= lastTime
			return false
		}
		return true
	})
	return next, found
}

func (d daily) Count(from, to time.Time) int64 {
	begin, end := ceilMilli(from), min(ceilMilli(to), lastTime+1)
	var n int64
	d.visit(begin, func(s steps, from, to int64) bool {
		if s.first >= end {
			return false
		}
		n += s.count(max(from, begin), min(to, end))
		return true
	})
	return n
}

// single is one fixed time.
type single struct{ at time.Time }

func (s single) Next(after time.Time) (time.Time, bool) { return s.at, s.at.After(after) }

func (s single) Count(from, to time.Time) int64 {
	if s.at.Before(from) || !s.at.Before(to) {
		return 0
	}
	return 1
}

// never has no times: it replaces a single time on an excluded date.
type never struct{}

func (never) Next(time.Time) (time.Time, bool) { return time.Time{}, false }
func (never) Count(_, _ time.Time) int64       { return 0 }
