package cron

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unit is a field of an expression, in the order of the quartz dialect.
type unit int

const (
	second unit = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	year
	unitCount
)

func (u unit) String() string {
	return [unitCount]string{"second", "minute", "hour", "day of month", "month", "day of week", "year"}[u]
}

const (
	monthList   = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
	weekdayList = "SUN MON TUE WED THU FRI SAT"
)

// spec describes the values of a field. The engine has its own numbers for them (Sunday
// is 0); expressions have the numbers of their dialect.
type spec struct {
	unit     unit
	min, max int
	base     int    // number in the expression = number in the engine + base
	names    string // the values' names from min on, or empty
	sunday7  bool   // 7 is another way to write 0
}

func (s *Schedule) spec(u unit) spec {
	p := spec{unit: u}
	switch u {
	case second, minute:
		p.max = 59
	case hour:
		p.max = 23
	case dayOfMonth:
		p.min, p.max = 1, 31
	case month:
		p.min, p.max, p.names = 1, 12, monthList
	case dayOfWeek:
		p.max, p.names = 6, weekdayList
		p.sunday7 = s.dialect == DialectUnix
		if s.dialect == DialectQuartz {
			p.base = 1
		}
	case year:
		p.min, p.max = 1970, 2199
	}
	return p
}

// allowed returns a text for the values of the field, such as "1-12 or JAN-DEC".
func (p spec) allowed() string {
	highest := p.max + p.base
	if p.sunday7 {
		highest = 7
	}
	text := fmt.Sprintf("%d-%d", p.min+p.base, highest)
	if p.names != "" {
		text += " or " + p.names[:3] + "-" + p.names[len(p.names)-3:]
	}
	return text
}

// field is a parsed field.
type field struct {
	// values has all plain values, ascending and unique. It is empty if the field has
	// only rules such as L.
	values []int
	// open has the items without an upper bound (*, */n, a/n), ascending and unique. They
	// decide whether a schedule is interval-like and how the two day fields combine. If
	// every is true, there is exactly one.
	open []progression
	// closed has the values that no open item covers, ascending and unique.
	closed []int
	// star is true if an open item starts at the minimum: * or */n.
	star bool
	// every is true if an open item covers all values: * or ?.
	every bool
}

// progression is the values from, from+step and so on, up to the maximum of the field.
type progression struct{ from, step int }

// newField returns a field with the given items, sorted and without duplicates.
func newField(p spec, open []progression, closed []int) field {
	slices.SortFunc(open, func(a, b progression) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return a.step - b.step
	})
	open = slices.Compact(open)
	star := len(open) > 0 && open[0].from == p.min
	every := star && open[0].step == 1
	if every {
		open = open[:1]
	}
	var covered []int
	for _, o := range open {
		for v := o.from; v <= p.max; v += o.step {
			covered = append(covered, v)
		}
	}
	closed = slices.DeleteFunc(closed, func(v int) bool { return slices.Contains(covered, v) })
	return field{values: unique(append(covered, closed...)), open: open, closed: unique(closed), star: star, every: every}
}

func unique(values []int) []int {
	slices.Sort(values)
	return slices.Compact(values)
}

// fieldParser parses the text of one field, in upper case.
type fieldParser struct {
	spec
	seed    string
	open    []progression
	closed  []int
	monthly *[]monthDay
	nth     *[]nthWeekday
}

func (p *fieldParser) parse(text string) (field, error) {
	if strings.Contains(text, "?") && text != "?" || text == "?" && p.unit != dayOfMonth && p.unit != dayOfWeek {
		return field{}, fmt.Errorf("%q is not allowed, ? is the whole field of day of month or day of week; write * or values", text)
	}
	for item := range strings.SplitSeq(text, ",") {
		if err := p.item(item); err != nil {
			return field{}, err
		}
	}
	return newField(p.spec, p.open, p.closed), nil
}

// item parses one element of a list.
func (p *fieldParser) item(text string) error {
	if text == "" {
		return errors.New("an item of the list is empty, remove the extra comma")
	}
	if done, err := p.rule(text); done || err != nil {
		return err
	}
	head, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		n, ok := number(stepText)
		if highest := p.max - p.min; !ok || n < 1 || n > highest {
			return fmt.Errorf("step %q in %q is not allowed, allowed are 1-%d", stepText, text, highest)
		}
		step = n
	}
	switch {
	case head == "*" || head == "?":
		p.open = append(p.open, progression{p.min, step})
		return nil
	case head == "H" || strings.HasPrefix(head, "H("):
		return p.hash(head, step, stepped)
	}
	return p.span(head, step, stepped)
}

// span parses a, a/n, a-b and a-b/n.
func (p *fieldParser) span(head string, step int, stepped bool) error {
	fromText, toText, ranged := strings.Cut(head, "-")
	from, err := p.value(fromText)
	if err != nil {
		return err
	}
	if !ranged {
		from = p.wrap(from)
		if stepped {
			p.open = append(p.open, progression{from, step})
		} else {
			p.closed = append(p.closed, from)
		}
		return nil
	}
	to, err := p.value(toText)
	if err != nil {
		return err
	}
	if from > to {
		if p.unit == year {
			return fmt.Errorf("range %q runs backwards, write the earlier year first", head)
		}
		to += p.max - p.min + 1
	}
	for v := from; v <= to; v += step {
		p.closed = append(p.closed, p.wrap(v))
	}
	return nil
}

// wrap maps a value beyond the maximum to the start of the field.
func (p *fieldParser) wrap(v int) int {
	if v > p.max {
		return v - (p.max - p.min + 1)
	}
	return v
}

// value parses a number or name. With sunday7 the result may be max+1.
func (p *fieldParser) value(text string) (int, error) {
	if i := strings.Index(p.names, text); i >= 0 && len(text) == 3 && i%4 == 0 {
		return p.min + i/4, nil
	}
	highest := p.max
	if p.sunday7 {
		highest++
	}
	n, ok := number(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a value, allowed are %s", text, p.allowed())
	}
	if n -= p.base; n < p.min || n > highest {
		return 0, fmt.Errorf("%s is out of range, allowed are %s", text, p.allowed())
	}
	return n, nil
}

// number parses a short unsigned decimal number.
func number(text string) (int, bool) {
	if len(text) == 0 || len(text) > 4 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// hash parses H, H/n, H(a-b) and H(a-b)/n. Without a range, a day of the month is one of
// 1-28, so that every month has it.
func (p *fieldParser) hash(head string, step int, stepped bool) error {
	if p.unit == year {
		return errors.New("a hash (H) is not allowed here, write the years")
	}
	from, to := p.min, p.max
	if p.unit == dayOfMonth {
		to = 28
	}
	bounded := head != "H"
	if bounded {
		var err error
		if from, to, err = p.hashRange(head); err != nil {
			return err
		}
	}
	switch {
	case !stepped:
		p.closed = append(p.closed, from+p.hashed(to-from+1))
	case !bounded:
		p.open = append(p.open, progression{from + p.hashed(step), step})
	default:
		if step > to-from+1 {
			return fmt.Errorf("step %d is larger than the range in %q", step, head)
		}
		for v := from + p.hashed(step); v <= to; v += step {
			p.closed = append(p.closed, v)
		}
	}
	return nil
}

func (p *fieldParser) hashRange(head string) (from, to int, err error) {
	inner, closed := strings.CutSuffix(strings.TrimPrefix(head, "H("), ")")
	fromText, toText, ranged := strings.Cut(inner, "-")
	if !closed || !ranged {
		return 0, 0, fmt.Errorf("%q is not a hash, allowed are H, H/n, H(a-b) and H(a-b)/n", head)
	}
	if from, err = p.value(fromText); err != nil {
		return 0, 0, err
	}
	if to, err = p.value(toText); err != nil {
		return 0, 0, err
	}
	if from > to || to > p.max {
		return 0, 0, fmt.Errorf("range in %q must ascend within %d-%d", head, p.min+p.base, p.max+p.base)
	}
	return from, to, nil
}

// hashed returns a number in [0, n) that depends on the seed and the unit. The function
// must never change: another one would move the planned times of all jobs with an H.
func (p *fieldParser) hashed(n int) int {
	sum := sha256.Sum256([]byte(p.unit.String() + "\x00" + p.seed))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(n))
}

// rule parses an item that depends on the month. It returns false if the text is no such
// item.
func (p *fieldParser) rule(text string) (bool, error) {
	switch p.unit {
	case dayOfMonth:
		return p.monthDayRule(text)
	case dayOfWeek:
		return p.weekdayRule(text)
	}
	return false, nil
}

// monthDayRule parses L, L-n, LW, L-nW and nW.
func (p *fieldParser) monthDayRule(text string) (bool, error) {
	body, weekday := strings.CutSuffix(text, "W")
	body, fromEnd := strings.CutPrefix(body, "L")
	if !weekday && !fromEnd {
		return false, nil
	}
	day := 0
	if !fromEnd || body != "" {
		digits, minus := strings.CutPrefix(body, "-")
		n, ok := number(digits)
		if !ok || minus != fromEnd || n < 1 || fromEnd && n > 30 || n > 31 {
			return true, fmt.Errorf("%q is not a day, allowed are L, L-1 to L-30, LW and 1W to 31W", text)
		}
		day = n
	}
	*p.monthly = append(*p.monthly, monthDay{day: day, fromEnd: fromEnd, weekday: weekday})
	return true, nil
}

// weekdayRule parses w#k, wL and, in the quartz dialect, L for Saturday.
func (p *fieldParser) weekdayRule(text string) (bool, error) {
	if text == "L" {
		if p.sunday7 {
			return true, errors.New("a bare L needs a weekday, such as 5L for the last Friday of the month")
		}
		p.closed = append(p.closed, p.max)
		return true, nil
	}
	name, position, numbered := strings.Cut(text, "#")
	n := 0
	if numbered {
		k, ok := number(position)
		if !ok || k < 1 || k > 5 {
			return true, fmt.Errorf("position %q in %q is not allowed, allowed are 1-5", position, text)
		}
		n = k
	} else {
		var last bool
		if name, last = strings.CutSuffix(text, "L"); !last {
			return false, nil
		}
	}
	w, err := p.value(name)
	if err != nil {
		return true, err
	}
	*p.nth = append(*p.nth, nthWeekday{weekday: p.wrap(w), n: n})
	return true, nil
}
