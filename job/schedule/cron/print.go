package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String returns the canonical expression in the schedule's dialect: it has numbers for
// names, merged ranges, and values for hashes. Parse returns an equal schedule for it,
// with the same options.
func (s *Schedule) String() string {
	from, to := second, year
	switch {
	case s.dialect == DialectUnix:
		from, to = minute, dayOfWeek
	case s.fields[year].every:
		to = dayOfWeek
	}
	var texts []string
	for u := from; u <= to; u++ {
		texts = append(texts, s.text(u))
	}
	return strings.Join(texts, " ")
}

// text returns the canonical text of a field.
func (s *Schedule) text(u unit) string {
	f, p := s.fields[u], s.spec(u)
	if f.every && s.questionMark(u) {
		return "?"
	}
	var items []string
	for _, o := range f.open {
		items = append(items, o.text(p))
	}
	for _, r := range runs(f.closed) {
		items = append(items, r.text(p))
	}
	switch u {
	case dayOfMonth:
		for _, d := range s.monthly {
			items = append(items, d.text())
		}
	case dayOfWeek:
		for _, w := range s.nth {
			items = append(items, w.text(p))
		}
	}
	return strings.Join(items, ",")
}

// questionMark reports whether an unrestricted day field is printed as ?. In the quartz
// dialect exactly one of the two day fields is.
func (s *Schedule) questionMark(u unit) bool {
	if s.dialect != DialectQuartz {
		return false
	}
	return u == dayOfWeek || u == dayOfMonth && !s.fields[dayOfWeek].every
}

func (o progression) text(p spec) string {
	start := "*"
	if o.from != p.min {
		start = strconv.Itoa(o.from + p.base)
	}
	if o.step == 1 && o.from == p.min {
		return start
	}
	return fmt.Sprintf("%s/%d", start, o.step)
}

func (d monthDay) text() string {
	var b strings.Builder
	if d.fromEnd {
		b.WriteByte('L')
	}
	if d.fromEnd && d.day > 0 {
		b.WriteByte('-')
	}
	if d.day > 0 {
		b.WriteString(strconv.Itoa(d.day))
	}
	if d.weekday {
		b.WriteByte('W')
	}
	return b.String()
}

func (w nthWeekday) text(p spec) string {
	if w.n == 0 {
		return fmt.Sprintf("%dL", w.weekday+p.base)
	}
	return fmt.Sprintf("%d#%d", w.weekday+p.base, w.n)
}

// run is the values first, first+step, … last.
type run struct{ first, last, step int }

func (r run) text(p spec) string {
	switch {
	case r.first == r.last:
		return strconv.Itoa(r.first + p.base)
	case r.step == 1:
		return fmt.Sprintf("%d-%d", r.first+p.base, r.last+p.base)
	}
	return fmt.Sprintf("%d-%d/%d", r.first+p.base, r.last+p.base, r.step)
}

// runs splits ascending values into single values and runs of at least three.
func runs(values []int) []run {
	var out []run
	for len(values) > 0 {
		n := runLength(values)
		step := 1
		if n > 1 {
			step = values[1] - values[0]
		}
		out = append(out, run{values[0], values[n-1], step})
		values = values[n:]
	}
	return out
}

// runLength returns the number of leading values that are evenly spaced, or 1 if they are
// fewer than three.
func runLength(values []int) int {
	n := 2
	for n < len(values) && values[n]-values[n-1] == values[1]-values[0] {
		n++
	}
	if n < 3 || n > len(values) {
		return 1
	}
	return n
}

// reduceRules sorts the rules of the day fields and drops duplicates and the rules that a
// plain * covers.
func (s *Schedule) reduceRules() {
	if s.fields[dayOfMonth].every {
		s.monthly = nil
	}
	if s.fields[dayOfWeek].every {
		s.nth = nil
	}
	slices.SortFunc(s.monthly, func(a, b monthDay) int { return strings.Compare(a.text(), b.text()) })
	s.monthly = slices.Compact(s.monthly)
	slices.SortFunc(s.nth, func(a, b nthWeekday) int { return (a.weekday-b.weekday)*8 + a.n - b.n })
	s.nth = slices.Compact(s.nth)
}
