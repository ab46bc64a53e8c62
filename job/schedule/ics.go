package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads the all-day events of an iCalendar file (RFC 5545) as dates. A property
// that changes the dates of an all-day event and is not supported is an error, because a
// missing holiday would go unnoticed. Events with a time of day are not dates, so they are
// ignored.

// lastRule is the last day of a recurrence without an end.
var lastRule = dayNumber(2099, 12, 31)

// icsLine is one content line after unfolding.
type icsLine struct {
	number int // in the file, from 1
	name   string
	params string // upper case, with the leading semicolon
	value  string
}

func (l icsLine) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s: %w", l.number, l.name, fmt.Errorf(format, args...))
}

// icsEvent is the content of one event. Only begin and timed count for an event with a
// time of day.
type icsEvent struct {
	begin     icsLine
	uid       string
	start     civilDay
	days      civilDay // length
	rule      *icsLine
	extra     []civilDay // RDATE
	without   []civilDay // EXDATE
	replaces  *civilDay  // RECURRENCE-ID: this event replaces that occurrence of the event with the same uid
	cancelled bool
	timed     bool // the event has a time of day
}

// readICS returns the dates of the all-day events, in no order and possibly more than once.
func readICS(text string) ([]civilDay, error) {
	if len(text) > MaxICS {
		return nil, fmt.Errorf("it is %d bytes, the limit is %d (1 MiB): cut out the years that do not matter", len(text), MaxICS)
	}
	events, err := readEvents(unfold(text))
	if err != nil {
		return nil, err
	}
	replaced := map[string][]civilDay{}
	for _, e := range events {
		if e.replaces != nil {
			replaced[e.uid] = append(replaced[e.uid], *e.replaces)
		}
	}
	var dates []civilDay
	found := false
	for _, e := range events {
		if e.timed {
			continue
		}
		found = true
		if e.cancelled {
			continue
		}
		if e.replaces == nil {
			e.without = append(e.without, replaced[e.uid]...)
		}
		more, err := e.dates(MaxDates - len(dates))
		if err != nil {
			return nil, err
		}
		dates = append(dates, more...)
	}
	if !found {
		return nil, fmt.Errorf("it holds no all-day event (a VEVENT with DTSTART;VALUE=DATE): events with a time of day are not dates")
	}
	return dates, nil
}

// unfold joins continued lines and splits each line.
func unfold(text string) []icsLine {
	var lines []icsLine
	number := 0
	for raw := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		raw = strings.TrimRight(raw, "\r\n")
		if raw == "" {
			continue
		}
		if raw[0] == ' ' || raw[0] == '\t' {
			if len(lines) > 0 {
				last := &lines[len(lines)-1]
				last.value += raw[1:]
			}
			continue
		}
		lines = append(lines, icsLine{number: number, value: raw})
	}
	for i := range lines {
		lines[i].split()
	}
	return lines
}

// split splits a line: NAME;PARAM=x;PARAM="a:b":value.
func (l *icsLine) split() {
	quoted := false
	colon := strings.IndexFunc(l.value, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ':' && !quoted
	})
	head, value := l.value, ""
	if colon >= 0 {
		head, value = l.value[:colon], l.value[colon+1:]
	}
	name, params, _ := strings.Cut(strings.ToUpper(head), ";")
	l.name, l.params, l.value = name, ";"+params, strings.TrimSpace(value)
}

// readEvents reads the VEVENT components.
func readEvents(lines []icsLine) ([]icsEvent, error) {
	if len(lines) == 0 || lines[0].name != "BEGIN" || !strings.EqualFold(lines[0].value, "VCALENDAR") {
		return nil, fmt.Errorf("line 1: it does not begin with BEGIN:VCALENDAR: give the text of an iCalendar file")
	}
	var events []icsEvent
	var nested []string // open components, the innermost last
	var body []icsLine  // lines of the open event
	for _, l := range lines {
		switch l.name {
		case "BEGIN":
			nested = append(nested, strings.ToUpper(l.value))
			if len(nested) > 8 {
				return nil, l.errorf("components are nested more than 8 deep")
			}
			if nested[len(nested)-1] == "VEVENT" {
				body = []icsLine{l}
			}
		case "END":
			kind := strings.ToUpper(l.value)
			if len(nested) == 0 || nested[len(nested)-1] != kind {
				return nil, l.errorf("%.40q was not begun", l.value)
			}
			nested = nested[:len(nested)-1]
			if kind == "VEVENT" {
				e, err := readEvent(body)
				if err != nil {
					return nil, err
				}
				events = append(events, e)
			}
		default:
			if len(nested) > 0 && nested[len(nested)-1] == "VEVENT" {
				body = append(body, l)
			}
		}
	}
	if len(nested) > 0 {
		return nil, fmt.Errorf("line %d: the file ends within %.40q: it is cut off", lines[len(lines)-1].number, nested[len(nested)-1])
	}
	return events, nil
}

func readEvent(body []icsLine) (icsEvent, error) {
	e := icsEvent{begin: body[0], days: 1}
	started := slices.IndexFunc(body, func(l icsLine) bool { return l.name == "DTSTART" })
	if started < 0 {
		return e, e.begin.errorf("the event has no DTSTART")
	}
	if start := body[started]; !isDate(start) {
		e.timed = true
		return e, nil
	}
	var err error
	if e.start, err = icsDate(body[started], body[started].value); err != nil {
		return e, err
	}
	for _, l := range body[1:] {
		if err := e.take(l); err != nil {
			return e, err
		}
	}
	return e, nil
}

// isDate reports whether the value of a line is a date without a time. Some programs omit
// VALUE=DATE.
func isDate(l icsLine) bool {
	return strings.Contains(l.params+";", ";VALUE=DATE;") || len(l.value) == len("20060102")
}

func (e *icsEvent) take(l icsLine) error {
	var err error
	switch l.name {
	case "UID":
		e.uid = l.value
	case "STATUS":
		e.cancelled = strings.EqualFold(l.value, "CANCELLED")
	case "DTEND":
		var end civilDay
		if end, err = icsDate(l, l.value); err == nil {
			err = e.lasts(l, end-e.start) // DTEND is the day after the last one
		}
	case "DURATION":
		var days civilDay
		if days, err = icsDuration(l); err == nil {
			err = e.lasts(l, days)
		}
	case "RRULE":
		if e.rule != nil {
			return l.errorf("the event has a second rule: make it an event of its own")
		}
		e.rule = &l
	case "RDATE":
		e.extra, err = icsDates(l, e.extra)
	case "EXDATE":
		e.without, err = icsDates(l, e.without)
	case "EXRULE":
		return l.errorf("it is not understood: name the days with EXDATE instead")
	case "RECURRENCE-ID":
		if strings.Contains(l.params, "RANGE=") {
			return l.errorf("RANGE is not understood: change each occurrence by itself")
		}
		var day civilDay
		day, err = icsDate(l, l.value)
		e.replaces = &day
	}
	return err
}

func (e *icsEvent) lasts(l icsLine, days civilDay) error {
	switch {
	case days < 0:
		return l.errorf("the event ends before it begins")
	case days > MaxDates:
		return l.errorf("the event lasts %d days, the limit is %d", days, MaxDates)
	}
	e.days = max(days, 1) // some programs write the first day as the end
	return nil
}

// icsDate reads a date, or the date part of a date with a time.
func icsDate(l icsLine, s string) (civilDay, error) {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "T")
	t, err := time.Parse("20060102", s)
	if err != nil || t.Year() < firstYear {
		return 0, l.errorf("%.40q is not a date: write it as 20261225", s)
	}
	return civilDayOf(t), nil
}

func icsDates(l icsLine, to []civilDay) ([]civilDay, error) {
	for s := range strings.SplitSeq(l.value, ",") {
		d, err := icsDate(l, s)
		if err != nil {
			return nil, err
		}
		if len(to) >= MaxDates {
			return nil, l.errorf("more than %d dates", MaxDates)
		}
		to = append(to, d)
	}
	return to, nil
}

// icsDuration reads a duration of whole days or weeks.
func icsDuration(l icsLine) (civilDay, error) {
	digits := strings.TrimPrefix(strings.ToUpper(l.value), "P")
	unit := 1
	if weeks, ok := strings.CutSuffix(digits, "W"); ok {
		digits, unit = weeks, 7
	} else {
		digits = strings.TrimSuffix(digits, "D")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, l.errorf("%.40q is not a length in days: write it as P2D", l.value)
	}
	return civilDay(int(n) * unit), nil
}

// icsRule is a recurrence rule.
type icsRule struct {
	frequency string
	interval  int
	count     int // 0: no limit
	until     civilDay
	weekdays  uint8 // of a weekly rule, bit 0 is Sunday; 0: the weekday of the start
	weekStart int
}

// readRule reads a recurrence rule. It supports the rules that holiday calendars use.
func readRule(l icsLine, start civilDay) (icsRule, error) {
	_, m, d := start.date()
	r := icsRule{interval: 1, until: lastRule, weekStart: int(time.Monday)}
	for part := range strings.SplitSeq(strings.ToUpper(l.value), ";") {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "FREQ":
			r.frequency = value
		case "INTERVAL":
			r.interval, err = icsNumber(l, key, value)
		case "COUNT":
			r.count, err = icsNumber(l, key, value)
		case "UNTIL":
			r.until, err = icsDate(l, value)
			r.until = min(r.until, lastRule)
		case "WKST":
			r.weekStart, err = icsWeekday(l, value)
		case "BYDAY":
			for name := range strings.SplitSeq(value, ",") {
				var day int
				if day, err = icsWeekday(l, name); err != nil {
					return r, err
				}
				r.weekdays |= 1 << day
			}
		case "BYMONTH": // many programs repeat the month of DTSTART
			if value != strconv.Itoa(m) {
				err = l.errorf("%.40q is not the month of DTSTART: list the dates with RDATE instead", part)
			}
		case "BYMONTHDAY":
			if value != strconv.Itoa(d) {
				err = l.errorf("%.40q is not the day of DTSTART: list the dates with RDATE instead", part)
			}
		case "":
		default:
			err = l.errorf("%.40q is not understood: list the dates with RDATE instead", part)
		}
		if err != nil {
			return r, err
		}
	}
	if r.frequency != "DAILY" && r.frequency != "WEEKLY" && r.frequency != "YEARLY" {
		return r, l.errorf("FREQ=%.40q is not understood: use DAILY, WEEKLY or YEARLY, or list the dates with RDATE", r.frequency)
	}
	if r.weekdays != 0 && r.frequency != "WEEKLY" {
		return r, l.errorf("BYDAY goes with FREQ=WEEKLY only: list the dates with RDATE instead")
	}
	if r.frequency != "YEARLY" && strings.Contains(strings.ToUpper(l.value), "BYMONTH") {
		return r, l.errorf("BYMONTH and BYMONTHDAY go with FREQ=YEARLY only: list the dates with RDATE instead")
	}
	return r, nil
}

func icsNumber(l icsLine, key, value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return 0, l.errorf("%s=%.40q is not a number from 1 to 65535", key, value)
	}
	return int(n), nil
}

func icsWeekday(l icsLine, name string) (int, error) {
	i := slices.IndexFunc(weekdayNames[:], func(n string) bool { return strings.EqualFold(n[:2], strings.TrimSpace(name)) })
	if i < 0 {
		return 0, l.errorf("%.40q is not a day of the week: list the dates with RDATE instead", name)
	}
	return i, nil
}

// starts calls yield with the days of the rule in order, until yield returns false.
func (r icsRule) starts(start civilDay, yield func(civilDay) bool) {
	n := 0
	visit := func(d civilDay) bool {
		n++
		return d <= r.until && yield(d) && (r.count == 0 || n < r.count)
	}
	switch r.frequency {
	case "DAILY":
		for d := start; visit(d); d += civilDay(r.interval) {
		}
	case "WEEKLY":
		weekdays := r.weekdays
		if weekdays == 0 {
			weekdays = 1 << start.wall().Weekday()
		}
		for week := start - civilDay((int(start.wall().Weekday())-r.weekStart+7)%7); ; week += civilDay(7 * r.interval) {
			for d := week; d < week+7; d++ {
				if d >= start && weekdays>>d.wall().Weekday()&1 == 1 && !visit(d) {
					return
				}
			}
		}
	case "YEARLY":
		y, m, d := start.date()
		for ; y <= lastYear; y += r.interval {
			if day := dayNumber(y, m, d); d == 29 && m == 2 && !leap(y) {
				continue
			} else if !visit(day) {
				return
			}
		}
	}
}

// dates returns all days of the event. It fails if there are more than limit.
func (e icsEvent) dates(limit int) ([]civilDay, error) {
	var out []civilDay
	full := false
	without := make(map[civilDay]bool, len(e.without))
	for _, d := range e.without {
		without[d] = true
	}
	add := func(start civilDay) bool {
		if without[start] {
			return true
		}
		for d := start; d < start+e.days; d++ {
			if full = len(out) >= limit; full {
				return false
			}
			out = append(out, d)
		}
		return true
	}
	if e.rule == nil {
		add(e.start)
	} else {
		r, err := readRule(*e.rule, e.start)
		if err != nil {
			return nil, err
		}
		r.starts(e.start, add)
	}
	for _, d := range e.extra {
		if !full {
			add(d)
		}
	}
	if full {
		return nil, e.begin.errorf("with this event there are more than %d dates: bound its rule with UNTIL or COUNT", MaxDates)
	}
	return out, nil
}
