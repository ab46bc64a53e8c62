// Package fires computes the times at which other schedulers start their jobs, by the rules
// of these schedulers. It is there to be compared with package cron, and so it shares no
// code with it: it tries one day after the other.
package fires

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Rule says when a job starts.
type Rule interface {
	// Next returns the first time after the given one, false if there is none within a
	// century.
	Next(after time.Time) (time.Time, bool)
}

// Take returns the first n times of a rule after the given one, or fewer.
func Take(r Rule, after time.Time, n int) []time.Time {
	var times []time.Time
	for t, ok := r.Next(after); ok && len(times) < n; t, ok = r.Next(t) {
		times = append(times, t)
	}
	return times
}

// Rate is a fixed rate from an instant on.
type Rate struct {
	From time.Time
	Step time.Duration
}

// Next returns the first time after the given one.
func (r Rate) Next(after time.Time) (time.Time, bool) {
	if r.Step <= 0 {
		return time.Time{}, false
	}
	if after.Before(r.From) {
		return r.From, true
	}
	return r.From.Add((after.Sub(r.From)/r.Step + 1) * r.Step), true
}

// Daily is a rate between two times of day.
type Daily struct {
	From, Until, Step time.Duration // of the day
	Days              []time.Weekday
	In                *time.Location
}

// Next returns the first time after the given one.
func (d Daily) Next(after time.Time) (time.Time, bool) {
	if d.Step <= 0 {
		return time.Time{}, false
	}
	y, m, day := after.In(d.In).Date()
	for n := -1; n < 15; n++ {
		if date := time.Date(y, m, day+n, 0, 0, 0, 0, time.UTC); len(d.Days) > 0 && !slices.Contains(d.Days, date.Weekday()) {
			continue
		}
		for at := d.From; at <= d.Until; at += d.Step {
			if t := first(instants(time.Date(y, m, day+n, 0, 0, 0, 0, time.UTC).Add(at), d.In)); t.After(after) {
				return t, true
			}
		}
	}
	return time.Time{}, false
}

// instants returns the one or two instants at which the clocks of a zone show a time, given
// as if it were UTC. For a time that they skip it returns the one with the offset before the
// change.
func instants(civil time.Time, in *time.Location) []time.Time {
	var found []time.Time
	_, before := civil.Add(-24 * time.Hour).In(in).Zone()
	_, after := civil.Add(24 * time.Hour).In(in).Zone()
	for _, offset := range []int{max(before, after), min(before, after)} {
		t := civil.Add(-time.Duration(offset) * time.Second).In(in)
		if _, have := t.Zone(); have == offset && !slices.ContainsFunc(found, t.Equal) {
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		return []time.Time{civil.Add(-time.Duration(before) * time.Second).In(in), {}}
	}
	return found
}

func first(times []time.Time) time.Time { return times[0] }

// Cron is the rule of a cron line.
type Cron struct {
	seconds, minutes, hours []int // ascending
	months, years           map[int]bool
	day                     func(year int, month time.Month, day int) bool
	repeats                 bool // the hours repeat without a bound, so the line follows elapsed time
	in                      *time.Location
}

// Next returns the first time after the given one.
func (c *Cron) Next(after time.Time) (time.Time, bool) {
	const days = 101 * 366
	y, m, d := after.In(c.in).Date()
	for n := -1; n < days; n++ {
		date := time.Date(y, m, d+n, 0, 0, 0, 0, time.UTC)
		year, month, day := date.Date()
		if c.years != nil && !c.years[year] || !c.months[int(month)] || !c.day(year, month, day) {
			continue
		}
		for _, hour := range c.hours {
			// No zone is two hours off the order of its clocks.
			if date.Add(time.Duration(hour) * time.Hour).Before(civil(after, c.in).Add(-3 * time.Hour)) {
				continue
			}
			if t := c.inHour(date.Add(time.Duration(hour)*time.Hour), after); !t.IsZero() {
				return t, true
			}
		}
	}
	return time.Time{}, false
}

// civil returns what the clocks of a zone show, as if it were UTC.
func civil(t time.Time, in *time.Location) time.Time {
	_, offset := t.In(in).Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// inHour returns the first time after the given one that begins in an hour of a day.
func (c *Cron) inHour(hour, after time.Time) (best time.Time) {
	for _, minute := range c.minutes {
		for _, second := range c.seconds {
			found := instants(hour.Add(time.Duration(minute)*time.Minute+time.Duration(second)*time.Second), c.in)
			skipped := found[len(found)-1].IsZero()
			switch {
			case skipped && c.repeats:
				continue
			case skipped || !c.repeats:
				found = found[:1]
			}
			for _, t := range found {
				if t.After(after) && (best.IsZero() || t.Before(best)) {
					best = t
				}
			}
		}
	}
	return best
}

var (
	monthNames = []string{"", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// field is a list of numbers from low to high, with names.
type field struct {
	low, high, shift int // shift is added to the index of a name
	names            []string
}

var (
	sixty  = field{high: 59}
	hours  = field{high: 23}
	months = field{low: 1, high: 12, names: monthNames}
	dates  = field{low: 1, high: 31}
	years  = field{low: 1970, high: 2199}
)

func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if name != "" && strings.EqualFold(name, text) {
			return i + f.shift, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.low || n > f.high {
		return 0, fmt.Errorf("%q is not from %d to %d", text, f.low, f.high)
	}
	return n, nil
}

// set reads a list of numbers, ranges and steps.
func (f field) set(text string) (map[int]bool, error) {
	set := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		span, by, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(by)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%q is no step", by)
			}
			step = n
		}
		from, to, ranged := strings.Cut(span, "-")
		low, high := f.low, f.high
		if span != "*" && span != "?" {
			var err error
			if low, err = f.number(from); err != nil {
				return nil, err
			}
			switch {
			case ranged:
				if high, err = f.number(to); err != nil {
					return nil, err
				}
			case !stepped:
				high = low
			}
		}
		if high < low {
			high += f.high - f.low + 1
		}
		for n := low; n <= high; n += step {
			set[f.low+(n-f.low)%(f.high-f.low+1)] = true
		}
	}
	return set, nil
}

func (f field) list(text string) ([]int, error) {
	set, err := f.set(text)
	var list []int
	for n := range set {
		list = append(list, n)
	}
	slices.Sort(list)
	return list, err
}

// Quartz reads a line of Quartz: six or seven fields, seconds first, Sunday is 1.
func Quartz(line string, in *time.Location) (*Cron, error) {
	fields := strings.Fields(strings.ToUpper(line))
	if len(fields) != 6 && len(fields) != 7 {
		return nil, fmt.Errorf("%d fields, Quartz wants 6 or 7", len(fields))
	}
	c := &Cron{in: in, repeats: repeats(fields[2])}
	if len(fields) == 7 && fields[6] != "*" && fields[6] != "?" {
		set, err := years.set(fields[6])
		if err != nil {
			return nil, err
		}
		c.years = set
	}
	if err := c.clock(fields[0], fields[1], fields[2], fields[4]); err != nil {
		return nil, err
	}
	byDate, byWeekday := fields[3], fields[5]
	free := func(s string) bool { return s == "*" || s == "?" }
	if !free(byDate) && !free(byWeekday) {
		return nil, errors.New("a day of the month and a day of the week")
	}
	var err error
	if c.day, err = quartzDates(byDate); err == nil && !free(byWeekday) {
		c.day, err = quartzWeekdays(byWeekday)
	}
	return c, err
}

func repeats(hour string) bool {
	return !strings.Contains(hour, ",") && !strings.Contains(hour, "-") && (strings.HasPrefix(hour, "*") || strings.Contains(hour, "/"))
}

func (c *Cron) clock(second, minute, hour, month string) (err error) {
	if c.seconds, err = sixty.list(second); err != nil {
		return err
	}
	if c.minutes, err = sixty.list(minute); err != nil {
		return err
	}
	if c.hours, err = hours.list(hour); err != nil {
		return err
	}
	c.months, err = months.set(month)
	return err
}

func lastDate(y int, m time.Month) int { return time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day() }
func weekdayOf(y int, m time.Month, d int) int {
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday())
}

type days = func(y int, m time.Month, d int) bool

func anyOf(all []days) days {
	return func(y int, m time.Month, d int) bool {
		return slices.ContainsFunc(all, func(one days) bool { return one(y, m, d) })
	}
}

// quartzDates reads the day of the month.
func quartzDates(text string) (days, error) {
	var all []days
	for part := range strings.SplitSeq(text, ",") {
		body, working := strings.CutSuffix(part, "W")
		var of func(y int, m time.Month) int // the day that is meant; 0: none
		switch {
		case strings.HasPrefix(body, "L"):
			back := 0
			if rest := strings.TrimPrefix(body, "L"); rest != "" {
				n, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
				if err != nil || n > 30 || rest[0] != '-' {
					return nil, fmt.Errorf("%q is no day of the month", part)
				}
				back = n
			}
			of = func(y int, m time.Month) int { return max(0, lastDate(y, m)-back) }
		case working:
			n, err := dates.number(body)
			if err != nil {
				return nil, err
			}
			of = func(y int, m time.Month) int { return min(n, lastDate(y, m)) }
		default:
			set, err := dates.set(part)
			if err != nil {
				return nil, err
			}
			all = append(all, func(_ int, _ time.Month, d int) bool { return set[d] })
			continue
		}
		all = append(all, func(y int, m time.Month, d int) bool {
			want := of(y, m)
			if working && want > 0 {
				want = workday(y, m, want)
			}
			return d == want
		})
	}
	return anyOf(all), nil
}

// workday returns the day from Monday to Friday of the month that is nearest to a day.
func workday(y int, m time.Month, d int) int {
	for _, off := range []int{0, -1, 1, -2, 2} {
		if n := d + off; n >= 1 && n <= lastDate(y, m) && weekdayOf(y, m, n) != 0 && weekdayOf(y, m, n) != 6 {
			return n
		}
	}
	return d
}

var quartzWeek = field{low: 1, high: 7, shift: 1, names: dayNames}

// quartzWeekdays reads the day of the week.
func quartzWeekdays(text string) (days, error) {
	var all []days
	for part := range strings.SplitSeq(text, ",") {
		name, nth, numbered := strings.Cut(part, "#")
		body, last := strings.CutSuffix(part, "L")
		switch {
		case numbered:
			w, err := quartzWeek.number(name)
			n, errN := strconv.Atoi(nth)
			if err = errors.Join(err, errN); err != nil {
				return nil, err
			}
			all = append(all, func(y int, m time.Month, d int) bool { return weekdayOf(y, m, d) == w-1 && (d-1)/7+1 == n })
		case last && body != "":
			w, err := quartzWeek.number(body)
			if err != nil {
				return nil, err
			}
			all = append(all, func(y int, m time.Month, d int) bool { return weekdayOf(y, m, d) == w-1 && d+7 > lastDate(y, m) })
		default:
			if last {
				part = "7" // L alone is Saturday
			}
			set, err := quartzWeek.set(part)
			if err != nil {
				return nil, err
			}
			all = append(all, func(y int, m time.Month, d int) bool { return set[weekdayOf(y, m, d)+1] })
		}
	}
	return anyOf(all), nil
}

var unixWeek = field{low: 0, high: 7, names: dayNames}

// Vixie reads a line of five fields as the cron of Linux does: when both day fields are
// restricted, a day matches by either; a field that begins with an asterisk is not
// restricted.
func Vixie(line string, in *time.Location) (*Cron, error) {
	return unix(line, in, func(s string) bool { return strings.HasPrefix(s, "*") })
}

// Kubernetes reads a line of five fields as the controller of CronJobs does: only an
// asterisk without a step is not restricted.
func Kubernetes(line string, in *time.Location) (*Cron, error) {
	return unix(line, in, func(s string) bool { return s == "*" || s == "?" || s == "*/1" })
}

func unix(line string, in *time.Location, free func(string) bool) (*Cron, error) {
	fields := strings.Fields(strings.ToUpper(line))
	if len(fields) != 5 {
		return nil, fmt.Errorf("%d fields, want 5", len(fields))
	}
	c := &Cron{in: in, repeats: repeats(fields[1])}
	if err := c.clock("0", fields[0], fields[1], fields[3]); err != nil {
		return nil, err
	}
	byDate, err := dates.set(fields[2])
	if err != nil {
		return nil, err
	}
	byWeekday := map[int]bool{}
	for part := range strings.SplitSeq(fields[4], ",") {
		if strings.HasPrefix(part, "*") || strings.HasPrefix(part, "?") {
			part = "0-6" + part[1:]
		}
		set, err := unixWeek.set(part)
		if err != nil {
			return nil, err
		}
		for n := range set {
			byWeekday[n%7] = true
		}
	}
	either := !free(fields[2]) && !free(fields[4])
	c.day = func(y int, m time.Month, d int) bool {
		date, weekday := byDate[d], byWeekday[weekdayOf(y, m, d)]
		if either {
			return date || weekday
		}
		return date && weekday
	}
	return c, nil
}
