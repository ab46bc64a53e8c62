package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Limits of a calendar.
const (
	MaxDates = 10_000  // dates, each day of a range counts
	MaxICS   = 1 << 20 // bytes of an iCalendar file
)

const (
	dateForm   = "2006-01-02"
	yearlyForm = "01-02"
)

// Calendar is a compiled set of dates. It is immutable and safe for concurrent use. Dates
// have no time zone: the caller converts an instant to a date.
type Calendar struct {
	dates  map[int32]uint32 // days of single months by monthKey, bit n is day n
	yearly [13]uint32       // days of each month, in every year
	weekly [7]uint32        // days of a month by weekday, indexed by the weekday of day 1
}

// monthKey returns a number for each month, in order.
func monthKey(year, month int) int32 { return int32(year*12 + month) }

// CompileCalendar fills in the defaults of a calendar, checks it, and compiles it for
// fast look-ups. An error is one sentence. It changes c: it sorts the dates, joins them
// to ranges, and replaces the iCalendar file, if there is one, by the dates of its
// all-day events.
func CompileCalendar(c *apiv1.Calendar) (*Calendar, error) {
	if c == nil {
		return nil, fmt.Errorf("the calendar is missing")
	}
	if c.App == "" {
		c.App = naming.DefaultApp
	}
	if err := naming.Check("app", c.App); err != nil {
		return nil, err
	}
	if err := naming.Check("name", c.Name); err != nil {
		return nil, err
	}
	if len(c.Description) > 4096 {
		return nil, fmt.Errorf("calendar %s: description is longer than 4096 bytes", c.Name)
	}
	compiled, err := compileCalendar(c)
	if err != nil {
		return nil, fmt.Errorf("calendar %s: %w", c.Name, err)
	}
	return compiled, nil
}

func compileCalendar(c *apiv1.Calendar) (*Calendar, error) {
	dates, err := readDates(c.Dates)
	if err != nil {
		return nil, err
	}
	if c.Ics != "" {
		events, err := readICS(c.Ics)
		if err != nil {
			return nil, fmt.Errorf("ics: %w", err)
		}
		dates = append(dates, events...)
	}
	slices.Sort(dates)
	dates = slices.Compact(dates)
	if len(dates) > MaxDates {
		return nil, fmt.Errorf("it has %d dates, the limit is %d: keep to the years that matter, or use yearly and days", len(dates), MaxDates)
	}
	compiled := &Calendar{dates: map[int32]uint32{}}
	for _, d := range dates {
		y, m, day := d.date()
		compiled.dates[monthKey(y, m)] |= 1 << day
	}
	for _, s := range c.Yearly {
		d, err := time.Parse(dateForm, "2000-"+s) // a leap year, so that 02-29 is valid
		if err != nil {
			return nil, fmt.Errorf("yearly: %q is not a day of the year: write it as 12-25", s)
		}
		compiled.yearly[d.Month()] |= 1 << d.Day()
	}
	weekdays, err := readWeekdays("days", c.Days)
	if err != nil {
		return nil, err
	}
	compiled.weekly = spread(weekdays)
	c.Dates, c.Ics = writeDates(dates), ""
	return compiled, nil
}

// Has reports whether the calendar contains a date. It contains no date that does not
// exist, such as 30 February.
func (c *Calendar) Has(year int, month time.Month, day int) bool {
	return day > 0 && day < 32 && c.month(year, int(month))>>day&1 == 1
}

// month returns the days of a month; bit n is day n.
func (c *Calendar) month(year, month int) uint32 {
	first, length := shape(year, month)
	return (c.dates[monthKey(year, month)] | c.yearly[month] | c.weekly[first]) & (1<<(length+1) - 2)
}

// spread maps weekdays (bit 0 is Sunday) to the days of a month, once for each weekday on
// which a month can begin.
func spread(weekdays uint8) (weekly [7]uint32) {
	for first := range weekly {
		for day := 1; day <= 31; day++ {
			if weekdays>>((first+day-1)%7)&1 == 1 {
				weekly[first] |= 1 << day
			}
		}
	}
	return weekly
}

// shape returns the weekday of the first day of a month, 0 for Sunday, and the number of
// days of the month.
func shape(year, month int) (first, length int) {
	length = 30 + (month+month>>3)&1 // months alternate, except that July and August both have 31 days
	if month == 2 {
		length = 28
		if leap(year) {
			length = 29
		}
	}
	return int((dayNumber(year, month, 1)+4)%7+7) % 7, length // day 0 was a Thursday
}

func leap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

// civilDay is a date as the number of days since 1970-01-01.
type civilDay int64

const dayLength = 24 * time.Hour

// firstYear and lastYear bound dates; between them, all arithmetic is safe.
const firstYear, lastYear = 1, 9999

func civilDayOf(t time.Time) civilDay {
	y, m, d := t.Date()
	return dayNumber(y, int(m), d)
}

func dayNumber(year, month, day int) civilDay {
	return civilDay(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Unix() / int64(dayLength/time.Second))
}

// wall returns the beginning of the day as a civil time in UTC.
func (d civilDay) wall() time.Time { return time.Unix(int64(d)*int64(dayLength/time.Second), 0).UTC() }

func (d civilDay) date() (year, month, day int) {
	y, m, n := d.wall().Date()
	return y, int(m), n
}

func (d civilDay) String() string { return d.wall().Format(dateForm) }

// readDates reads dates and ranges.
func readDates(list []string) ([]civilDay, error) {
	var dates []civilDay
	for _, s := range list {
		from, until, ranged := strings.Cut(s, "/")
		first, err := readDate(from)
		last := first
		if err == nil && ranged {
			last, err = readDate(until)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("dates: %q is not a date: write it as 2026-12-25, or 2026-12-24/2026-12-26 for a range", s)
		case last < first:
			return nil, fmt.Errorf("dates: %s ends before it begins: write the earlier date first", s)
		case len(dates)+int(last-first) >= MaxDates:
			return nil, fmt.Errorf("dates: there are more than %d with %s: keep to the years that matter, or use yearly and days", MaxDates, s)
		}
		for d := first; d <= last; d++ {
			dates = append(dates, d)
		}
	}
	return dates, nil
}

func readDate(s string) (civilDay, error) {
	t, err := time.Parse(dateForm, s)
	if err == nil && t.Year() < firstYear {
		err = fmt.Errorf("%s is before the year 1", s)
	}
	return civilDayOf(t), err
}

// writeDates joins sorted dates to ranges. It is the inverse of readDates.
func writeDates(dates []civilDay) []string {
	var list []string
	for i := 0; i < len(dates); {
		end := i + 1
		for end < len(dates) && dates[end] == dates[end-1]+1 {
			end++
		}
		s := dates[i].String()
		if end > i+1 {
			s += "/" + dates[end-1].String()
		}
		list = append(list, s)
		i = end
	}
	return list
}

// weekdayNames are the names of the weekdays, from Sunday.
var weekdayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// readWeekdays returns a set of weekdays; bit 0 is Sunday.
func readWeekdays(field string, names []string) (uint8, error) {
	var set uint8
	for _, name := range names {
		i := slices.Index(weekdayNames[:], strings.ToLower(name))
		if i < 0 {
			return 0, fmt.Errorf("%s: %q is not a day of the week: write mon, tue, wed, thu, fri, sat or sun", field, name)
		}
		set |= 1 << i
	}
	return set, nil
}

// dates are the days on which a schedule plans: the days of any calendar in include, or
// all days if include is empty, without the days of any calendar in exclude.
type dates struct {
	include, exclude []*Calendar
}

func (d dates) empty() bool { return len(d.include)+len(d.exclude) == 0 }

// month returns the days of a month; bit n is day n.
func (d dates) month(year, month int) uint32 {
	var days uint32
	for _, c := range d.include {
		days |= c.month(year, month)
	}
	if len(d.include) == 0 {
		_, length := shape(year, month)
		days = 1<<(length+1) - 2
	}
	for _, c := range d.exclude {
		days &^= c.month(year, month)
	}
	return days
}

func (d dates) has(day civilDay) bool {
	y, m, n := day.date()
	return d.empty() || d.month(y, m)>>n&1 == 1
}

// horizon is how far ahead the search for a planned time goes, in years. The Gregorian
// calendar repeats after it.
const horizon = 400

// next returns the first day at or after from, within the horizon.
func (d dates) next(from civilDay) (civilDay, bool) { return nextDay(from, d.month) }

// nextDay returns the first day at or after from that is in the set of its month, within
// the horizon. In a set, bit n is day n.
func nextDay(from civilDay, month func(year, month int) uint32) (civilDay, bool) {
	y, m, n := from.date()
	for limit := min(y+horizon, lastYear); y <= limit; n = 1 {
		if days := month(y, m) >> n << n; days != 0 {
			return dayNumber(y, m, bits.TrailingZeros32(days)), true
		}
		if m++; m > 12 {
			y, m = y+1, 1
		}
	}
	return 0, false
}
