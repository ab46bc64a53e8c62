package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxExpression bounds the length of an expression in bytes. The longest
// useful ones, lists of years and days, stay far below it.
const maxExpression = 512

// nicknameLine returns the expression for which a nickname stands, in both dialects.
func nicknameLine(name string) (unix, quartz string, ok bool) {
	switch name {
	case "@YEARLY", "@ANNUALLY":
		return "0 0 1 1 *", "0 0 0 1 1 ?", true
	case "@MONTHLY":
		return "0 0 1 * *", "0 0 0 1 * ?", true
	case "@WEEKLY":
		return "0 0 * * 0", "0 0 0 ? * 1", true
	case "@DAILY", "@MIDNIGHT":
		return "0 0 * * *", "0 0 0 * * ?", true
	case "@HOURLY":
		return "0 * * * *", "0 0 * * * ?", true
	}
	return "", "", false
}

// Parse parses an expression whose civil times are those of loc; nil means UTC. The error
// is one sentence with the field, the mistake and the allowed values. An expression that
// no date can match is an error.
func Parse(expr string, loc *time.Location, opt Options) (*Schedule, error) {
	if len(expr) > maxExpression {
		return nil, fmt.Errorf("parse cron expression: it has %d bytes, at most %d are allowed", len(expr), maxExpression)
	}
	s, err := parse(expr, opt)
	if err != nil {
		return nil, fmt.Errorf("parse cron expression %q: %w", expr, err)
	}
	s.loc = loc
	if loc == nil {
		s.loc = time.UTC
	}
	s.last = s.lastInstant()
	return s, nil
}

// parse does the part of Parse that does not depend on the zone.
func parse(expr string, opt Options) (*Schedule, error) {
	s, err := newSchedule(opt)
	if err != nil {
		return nil, err
	}
	texts, err := s.split(strings.ToUpper(expr))
	if err != nil {
		return nil, err
	}
	if err := s.parseFields(texts, opt.Seed); err != nil {
		return nil, err
	}
	s.compile()
	return s, s.checkPossible()
}

// newSchedule checks the options and sets their defaults. The dialect may still be auto.
func newSchedule(opt Options) (*Schedule, error) {
	s := &Schedule{dialect: opt.Dialect, gap: opt.Gap, fold: opt.Fold}
	switch s.dialect {
	case "":
		s.dialect = DialectAuto
	case DialectAuto, DialectQuartz, DialectUnix:
	default:
		return nil, fmt.Errorf("unknown dialect %q, allowed are auto, quartz and unix", s.dialect)
	}
	switch s.gap {
	case "":
		s.gap = GapShift
	case GapShift, GapSkip:
	default:
		return nil, fmt.Errorf("unknown gap policy %q, allowed are shift and skip", s.gap)
	}
	switch s.fold {
	case "":
		s.fold = FoldFirst
	case FoldFirst, FoldSecond, FoldBoth:
	default:
		return nil, fmt.Errorf("unknown fold policy %q, allowed are first, second and both", s.fold)
	}
	return s, nil
}

// split decides the dialect and returns the text of every field. It adds the seconds and
// the year if the expression has none.
func (s *Schedule) split(expr string) (texts [unitCount]string, err error) {
	fields := strings.Fields(expr)
	if len(fields) == 0 {
		return texts, errors.New("it is empty, expected 5, 6 or 7 fields such as \"30 2 * * *\"")
	}
	if strings.HasPrefix(fields[0], "@") {
		fields, err = s.nickname(fields)
		if err != nil {
			return texts, err
		}
	}
	if strings.Contains(fields[0], "TZ=") {
		return texts, errors.New("a zone is not part of the expression, give it beside the expression as zone")
	}
	n := len(fields)
	if s.dialect == DialectAuto {
		s.dialect = DialectQuartz
		if n == 5 {
			s.dialect = DialectUnix
		}
	}
	switch {
	case n == 5 && s.dialect == DialectUnix:
		copy(texts[minute:], fields)
		texts[second], texts[year] = "0", "*"
	case (n == 6 || n == 7) && s.dialect == DialectQuartz:
		texts[year] = "*"
		copy(texts[:], fields)
	case s.dialect == DialectUnix:
		return texts, fmt.Errorf("it has %d fields, the unix dialect has 5: minute, hour, day of month, month, day of week", n)
	case n == 5:
		return texts, errors.New("it has 5 fields, the quartz dialect has 6 or 7: second, minute, hour, day of month, month, day of week, year")
	default:
		return texts, fmt.Errorf("it has %d fields, expected 5 (minute first) or 6 to 7 (second first, year last)", n)
	}
	return texts, nil
}

func (s *Schedule) nickname(fields []string) ([]string, error) {
	name := fields[0]
	unix, quartz, ok := nicknameLine(name)
	switch {
	case name == "@EVERY" && len(fields) > 1:
		return nil, fmt.Errorf("@every is not a cron line, use `schedule: {every: %s}` instead", strings.ToLower(fields[1]))
	case name == "@EVERY":
		return nil, errors.New("@every is not a cron line, use `schedule: {every: 90s}` instead")
	case !ok || len(fields) > 1:
		return nil, fmt.Errorf("unknown nickname %s, allowed are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually",
			strings.ToLower(strings.Join(fields, " ")))
	case s.dialect == DialectQuartz:
		return strings.Fields(quartz), nil
	}
	return strings.Fields(unix), nil
}

func (s *Schedule) parseFields(texts [unitCount]string, seed string) error {
	for u, text := range texts {
		p := fieldParser{spec: s.spec(unit(u)), seed: seed, monthly: &s.monthly, nth: &s.nth}
		f, err := p.parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", unit(u), err)
		}
		s.fields[u] = f
	}
	s.reduceRules()
	if texts[dayOfMonth] == "?" && texts[dayOfWeek] == "?" {
		return errors.New("day of week: ? is in both day fields, but only one of them may have it")
	}
	if s.dialect == DialectQuartz && !s.fields[dayOfMonth].every && !s.fields[dayOfWeek].every {
		return errors.New("day of week: both day of month and day of week are restricted, write ? in one of them")
	}
	return nil
}

// compile derives the calendar from the fields.
func (s *Schedule) compile() {
	f := &s.fields
	s.interval = len(f[hour].open) > 0
	s.calendar = calendar{
		seconds:  setOf(f[second].values),
		minutes:  setOf(f[minute].values),
		hours:    setOf(f[hour].values),
		months:   setOf(f[month].values),
		days:     setOf(f[dayOfMonth].values),
		monthly:  s.monthly,
		weekdays: weekdayTable(setOf(f[dayOfWeek].values)),
		nth:      s.nth,
		either:   !f[dayOfMonth].star && !f[dayOfWeek].star,
	}
	if !f[year].every {
		s.calendar.years = f[year].values
	}
}

// checkPossible fails if no date of a Gregorian cycle matches the expression.
func (s *Schedule) checkPossible() error {
	from := 2000
	if s.calendar.years != nil {
		from = s.calendar.years[0]
	}
	if _, ok := s.calendar.nextDay(from, 1, 1); ok {
		return nil
	}
	day, months, weekdays := s.text(dayOfMonth), s.monthNames(), s.text(dayOfWeek)
	switch {
	case s.calendar.years != nil:
		return fmt.Errorf("day of month: no date in year %s has day %s in %s and day of week %s, choose a date that exists",
			s.text(year), day, months, weekdays)
	case s.fields[dayOfWeek].every:
		return fmt.Errorf("day of month: %s never occurs in %s, which has at most %d days, choose a date that exists",
			day, months, s.longestMonth())
	}
	return fmt.Errorf("day of month: no date has day %s in %s and day of week %s, choose a date that exists", day, months, weekdays)
}

func (s *Schedule) monthNames() string {
	if s.fields[month].every {
		return "any month"
	}
	return english{}.join(english{}.months(s.fields[month].values))
}

func (s *Schedule) longestMonth() int {
	longest := 0
	for _, m := range s.fields[month].values {
		longest = max(longest, monthLength(2000, m))
	}
	return longest
}
