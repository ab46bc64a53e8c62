package cron

import (
	"math/bits"
	"slices"
)

const (
	secondsPerDay = 24 * 60 * 60
	gregorian     = 400 // years after which dates and weekdays repeat
	maxYear       = 9999
)

// set is a set of numbers from 0 to 63; n is a member if bit n is 1.
type set uint64

func setOf(values []int) set {
	var s set
	for _, v := range values {
		s |= 1 << v
	}
	return s
}

func (s set) has(n int) bool { return s>>n&1 == 1 }

// next returns the smallest member that is at least from, or -1.
func (s set) next(from int) int {
	if rest := s >> from << from; rest != 0 {
		return bits.TrailingZeros64(uint64(rest))
	}
	return -1
}

// prev returns the largest member that is at most from, or -1; from may be -1.
func (s set) prev(from int) int {
	return bits.Len64(uint64(s&(1<<(from+1)-1))) - 1
}

// below returns the members that are less than n.
func (s set) below(n int) set { return s & (1<<n - 1) }

func (s set) size() int  { return bits.OnesCount64(uint64(s)) }
func (s set) first() int { return bits.TrailingZeros64(uint64(s)) }
func (s set) last() int  { return bits.Len64(uint64(s)) - 1 }

// calendar is a compiled expression. Civil times are seconds since 1970-01-01 00:00:00 of
// the wall clock, without a zone.
type calendar struct {
	seconds, minutes, hours set // never empty

	months set   // 1-12, never empty
	years  []int // ascending; nil means every year

	days     set          // days of the month by number
	monthly  []monthDay   // days of the month by rule
	weekdays [7]set       // days of a month by weekday, indexed by the weekday of day 1
	nth      []nthWeekday // days of the month by weekday and position
	either   bool         // a day matches by month day or by weekday; otherwise it must match both

	allowed func(year, month int) uint32 // a further restriction, bit n is day n; nil means every day
}

// monthDay is a rule for a day of the month that depends on the month.
type monthDay struct {
	day     int  // the day, or the distance from the last day if fromEnd
	fromEnd bool // L, L-n
	weekday bool // W: the nearest Monday-to-Friday of the same month
}

// in returns the day in a month, or 0 if that month has no such day.
func (d monthDay) in(length, firstWeekday int) int {
	day := d.day
	if d.fromEnd {
		day = length - d.day
	}
	if day < 1 || day > length {
		return 0
	}
	if !d.weekday {
		return day
	}
	switch (firstWeekday + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

// nthWeekday is a rule for the n-th given weekday of a month, or the last one if n is 0.
type nthWeekday struct {
	weekday int // 0 is Sunday
	n       int // 1-5, or 0
}

// in returns the day in a month, or 0 if that month has no such day.
func (w nthWeekday) in(length, firstWeekday int) int {
	first := 1 + (w.weekday-firstWeekday+7)%7
	if w.n == 0 {
		return first + (length-first)/7*7
	}
	if day := first + (w.n-1)*7; day <= length {
		return day
	}
	return 0
}

// next returns the earliest matching civil time that is at least from,
// searching one Gregorian cycle.
func (c *calendar) next(from int64) (int64, bool) {
	day, second := splitDay(from)
	y, m, d := civil(day)
	match, ok := c.nextDay(y, m, d)
	if ok && match == day {
		if s := c.nextSecond(second); s >= 0 {
			return day*secondsPerDay + int64(s), true
		}
		match, ok = c.nextDay(y, m, d+1)
	}
	return match*secondsPerDay + int64(clock(c.hours.first(), c.minutes.first(), c.seconds.first())), ok
}

// prev returns the latest matching civil time that is at most from, searching
// one Gregorian cycle.
func (c *calendar) prev(from int64) (int64, bool) {
	day, second := splitDay(from)
	y, m, d := civil(day)
	match, ok := c.prevDay(y, m, d)
	if ok && match == day {
		if s := c.prevSecond(second); s >= 0 {
			return day*secondsPerDay + int64(s), true
		}
		match, ok = c.prevDay(y, m, d-1)
	}
	return match*secondsPerDay + int64(clock(c.hours.last(), c.minutes.last(), c.seconds.last())), ok
}

// matches reports whether the civil time matches.
func (c *calendar) matches(civil int64) bool {
	next, ok := c.next(civil)
	return ok && next == civil
}

// count counts the matching civil times in [from, to).
func (c *calendar) count(from, to int64) int64 {
	if from >= to {
		return 0
	}
	return c.countBefore(to) - c.countBefore(from) + c.countDays(from, to)*int64(c.secondsBefore(secondsPerDay))
}

// countBefore counts the matching civil times before to on the day of to.
func (c *calendar) countBefore(to int64) int64 {
	day, second := splitDay(to)
	if y, m, d := civil(day); !c.monthDays(y, m).has(d) || !c.inYear(y) || !c.months.has(m) {
		return 0
	}
	return int64(c.secondsBefore(second))
}

// secondsBefore counts the matching seconds of a matching day before the given second,
// which may be the end of the day.
func (c *calendar) secondsBefore(second int) int {
	h, m, s := second/3600, second/60%60, second%60
	n := c.hours.below(h).size() * c.minutes.size() * c.seconds.size()
	if c.hours.has(h) {
		n += c.minutes.below(m).size() * c.seconds.size()
		if c.minutes.has(m) {
			n += c.seconds.below(s).size()
		}
	}
	return n
}

// countDays counts the matching days from the day of from to the day before that of to.
func (c *calendar) countDays(from, to int64) int64 {
	first, _ := splitDay(from)
	end, _ := splitDay(to)
	y, m, d := civil(first)
	endYear, endMonth, endDay := civil(end)
	var n int64
	for {
		year, month := c.nextMonth(y, m)
		if year < 0 || year > endYear || year == endYear && month > endMonth {
			return n
		}
		days := c.monthDays(year, month)
		if year == y && month == m {
			days &^= days.below(d)
		}
		if year == endYear && month == endMonth {
			return n + int64(days.below(endDay).size())
		}
		n += int64(days.size())
		y, m, d = year, month+1, 1
	}
}

// nextSecond returns the first matching second of the day that is at least
// from, or -1.
func (c *calendar) nextSecond(from int) int {
	h, m, s := from/3600, from/60%60, from%60
	if c.hours.has(h) {
		if c.minutes.has(m) {
			if next := c.seconds.next(s); next >= 0 {
				return clock(h, m, next)
			}
		}
		if next := c.minutes.next(m + 1); next >= 0 {
			return clock(h, next, c.seconds.first())
		}
	}
	if next := c.hours.next(h + 1); next >= 0 {
		return clock(next, c.minutes.first(), c.seconds.first())
	}
	return -1
}

// prevSecond returns the last matching second of the day that is at most
// from, or -1.
func (c *calendar) prevSecond(from int) int {
	h, m, s := from/3600, from/60%60, from%60
	if c.hours.has(h) {
		if c.minutes.has(m) {
			if prev := c.seconds.prev(s); prev >= 0 {
				return clock(h, m, prev)
			}
		}
		if prev := c.minutes.prev(m - 1); prev >= 0 {
			return clock(h, prev, c.seconds.last())
		}
	}
	if prev := c.hours.prev(h - 1); prev >= 0 {
		return clock(prev, c.minutes.last(), c.seconds.last())
	}
	return -1
}

// nextDay returns the first matching day that is at least y-m-d; d may exceed
// the length of the month.
func (c *calendar) nextDay(y, m, d int) (int64, bool) {
	limit := min(y+gregorian, maxYear)
	for {
		year, month := c.nextMonth(y, m)
		if year < 0 || year > limit {
			return 0, false
		}
		if year != y || month != m {
			d = 1
		}
		if day := c.monthDays(year, month).next(d); day >= 0 {
			return dayNumber(year, month, day), true
		}
		y, m, d = year, month+1, 1
	}
}

// prevDay returns the last matching day that is at most y-m-d; d may be 0.
func (c *calendar) prevDay(y, m, d int) (int64, bool) {
	limit := max(y-gregorian, 1)
	for {
		year, month := c.prevMonth(y, m)
		if year < limit {
			return 0, false
		}
		if year != y || month != m {
			d = 31
		}
		if day := c.monthDays(year, month).prev(d); day >= 0 {
			return dayNumber(year, month, day), true
		}
		y, m, d = year, month-1, 31
	}
}

// nextMonth returns the first allowed month that is at least y-m, or year -1;
// m may be 13.
func (c *calendar) nextMonth(y, m int) (year, month int) {
	year = c.yearFrom(y)
	if year == y {
		if month = c.months.next(m); month >= 0 {
			return year, month
		}
		year = c.yearFrom(y + 1)
	}
	return year, c.months.first()
}

// prevMonth returns the last allowed month that is at most y-m, or year -1;
// m may be 0.
func (c *calendar) prevMonth(y, m int) (year, month int) {
	year = c.yearUpTo(y)
	if year == y {
		if month = c.months.prev(m); month >= 0 {
			return year, month
		}
		year = c.yearUpTo(y - 1)
	}
	return year, c.months.last()
}

func (c *calendar) inYear(y int) bool { return c.yearFrom(y) == y }

func (c *calendar) yearFrom(y int) int {
	if c.years == nil {
		return y
	}
	i, _ := slices.BinarySearch(c.years, y)
	if i == len(c.years) {
		return -1
	}
	return c.years[i]
}

func (c *calendar) yearUpTo(y int) int {
	if c.years == nil {
		return y
	}
	i, found := slices.BinarySearch(c.years, y)
	if found {
		return y
	}
	if i == 0 {
		return -1
	}
	return c.years[i-1]
}

// monthDays returns the matching days of a month.
func (c *calendar) monthDays(year, month int) set {
	length := monthLength(year, month)
	first := weekday(dayNumber(year, month, 1))
	byDay, byWeekday := c.days, c.weekdays[first]
	for _, d := range c.monthly {
		byDay |= 1 << d.in(length, first)
	}
	for _, w := range c.nth {
		byWeekday |= 1 << w.in(length, first)
	}
	days := byDay & byWeekday
	if c.either {
		days = byDay | byWeekday
	}
	if c.allowed != nil {
		days &= set(c.allowed(year, month))
	}
	// Bit 0 collects the rules that have no day in this month.
	return days & (2<<length - 1) &^ 1
}

// weekdayTable returns, for each weekday on which a month can begin, the days of the
// month that fall on one of the given weekdays (bit 0 is Sunday).
func weekdayTable(weekdays set) (table [7]set) {
	for first := range table {
		for day := 1; day <= 31; day++ {
			if weekdays.has((first + day - 1) % 7) {
				table[first] |= 1 << day
			}
		}
	}
	return table
}

func clock(h, m, s int) int { return h*3600 + m*60 + s }

func splitDay(civil int64) (day int64, second int) {
	day = civil / secondsPerDay
	second = int(civil % secondsPerDay)
	if second < 0 {
		day--
		second += secondsPerDay
	}
	return day, second
}

// weekday returns the weekday of a day number; 0 is Sunday.
func weekday(day int64) int {
	return int(((day+4)%7 + 7) % 7) // day 0 was a Thursday
}

func leap(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func monthLength(y, m int) int {
	switch m {
	case 2:
		if leap(y) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// The two conversions below count years from 1 March, so that the leap day is
// the last day of its year, and are valid for years 0 to 10000.

const (
	daysPerCycle = 146097 // days in 400 years
	epochDay     = 719468 // days from 0000-03-01 to 1970-01-01
)

// dayNumber returns the number of days from 1970-01-01 to y-m-d.
func dayNumber(y, m, d int) int64 {
	if m <= 2 {
		y, m = y-1, m+12
	}
	cycle := y / gregorian
	if y < 0 {
		cycle = -1
	}
	ofCycle := y - cycle*gregorian
	ofYear := (153*(m-3)+2)/5 + d - 1
	return int64(cycle*daysPerCycle+ofCycle*365+ofCycle/4-ofCycle/100+ofYear) - epochDay
}

// civil returns the date of a day number.
func civil(day int64) (y, m, d int) {
	n := int(day) + epochDay
	cycle := n / daysPerCycle
	if n < 0 {
		cycle = -1
	}
	n -= cycle * daysPerCycle
	ofCycle := (n - n/1460 + n/36524 - n/146096) / 365
	n -= ofCycle*365 + ofCycle/4 - ofCycle/100
	shifted := (5*n + 2) / 153 // 0 is March
	y, m, d = cycle*gregorian+ofCycle, shifted+3, n-(153*shifted+2)/5+1
	if m > 12 {
		y, m = y+1, m-12
	}
	return y, m, d
}
