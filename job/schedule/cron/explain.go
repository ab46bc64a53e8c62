package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// Explain describes the schedule in one sentence, in Chinese if lang begins with "zh",
// and otherwise in English.
func (s *Schedule) Explain(lang string) string {
	var w wording = english{}
	if strings.HasPrefix(strings.ToLower(lang), "zh") {
		w = chinese{}
	}
	return w.sentence(s.timeWords(w), s.dayWords(w), s.monthWords(w), s.yearWords(w), s.loc.String())
}

// wording writes the parts of a sentence in one language. Units of time are second,
// minute and hour. Lists of values are ascending, and days of the month, months and years
// have their usual numbers.
type wording interface {
	clocks(times []string) string            // at these times of day
	everyUnit(u unit, step, from int) string // every step units, beginning at from
	atUnit(u unit, values []int) string      // at these values of the unit
	everyDay() string                        // no restriction on days
	everyDays(step, from int) string         // every step days of the month, beginning at from
	days(values []int) []string              // days of the month
	monthDay(d monthDay) string              // one rule
	onDays(items []string) string            // on any of these days of the month
	weekdays(values []int) []string          // names of weekdays
	nthWeekday(n nthWeekday) string          // one rule
	onWeekdays(items []string) string        // on any of these weekdays
	either(days, weekdays string) string     // days or weekdays
	both(days, weekdays string) string       // days that are also weekdays
	months(values []int) []string            // names of months
	inMonths(items []string) string          // in any of these months
	inYears(years string) string             // in these years
	sentence(times, days, months, years, zone string) string
	joinTimes(parts []string) string // from the smallest unit to the largest
}

// maxClocks is the number of times of day up to which Explain lists them.
const maxClocks = 6

func (s *Schedule) timeWords(w wording) string {
	seconds, minutes, hours := s.fields[second], s.fields[minute], s.fields[hour]
	listed := len(seconds.values) * len(minutes.values) * len(hours.values)
	if listed <= maxClocks && len(seconds.open)+len(minutes.open)+len(hours.open) == 0 {
		return w.clocks(s.clockTimes())
	}
	onTheMinute := len(seconds.values) == 1 && seconds.values[0] == 0
	var parts []string
	if !onTheMinute {
		parts = append(parts, fieldWords(w, second, seconds))
	}
	// "Every minute" is redundant next to seconds, and "every hour" next to repeated
	// minutes.
	if onTheMinute || !minutes.every {
		parts = append(parts, fieldWords(w, minute, minutes))
	}
	if !hours.every || len(minutes.open) == 0 {
		parts = append(parts, fieldWords(w, hour, hours))
	}
	return w.joinTimes(parts)
}

// clockTimes lists every time of day, ascending.
func (s *Schedule) clockTimes() []string {
	var times []string
	for t := s.calendar.nextSecond(0); t >= 0; t = s.calendar.nextSecond(t + 1) {
		text := fmt.Sprintf("%02d:%02d", t/3600, t/60%60)
		if t%60 != 0 {
			text += fmt.Sprintf(":%02d", t%60)
		}
		times = append(times, text)
		if t+1 == secondsPerDay {
			break
		}
	}
	return times
}

func fieldWords(w wording, u unit, f field) string {
	if len(f.open) == 1 && len(f.closed) == 0 {
		return w.everyUnit(u, f.open[0].step, f.open[0].from)
	}
	return w.atUnit(u, f.values)
}

func (s *Schedule) dayWords(w wording) string {
	byDay, byWeekday := s.byDayWords(w), s.byWeekdayWords(w)
	switch {
	case byDay == "" && byWeekday == "":
		return w.everyDay()
	case byDay == "":
		return byWeekday
	case byWeekday == "":
		return byDay
	case s.calendar.either:
		return w.either(byDay, byWeekday)
	}
	return w.both(byDay, byWeekday)
}

func (s *Schedule) byDayWords(w wording) string {
	f := s.fields[dayOfMonth]
	if f.every {
		return ""
	}
	var items []string
	if len(f.open) == 1 && len(f.closed) == 0 {
		items = append(items, w.everyDays(f.open[0].step, f.open[0].from))
	} else {
		items = append(items, w.days(f.values)...)
	}
	for _, d := range s.monthly {
		items = append(items, w.monthDay(d))
	}
	return w.onDays(items)
}

func (s *Schedule) byWeekdayWords(w wording) string {
	f := s.fields[dayOfWeek]
	if f.every {
		return ""
	}
	items := w.weekdays(f.values)
	for _, n := range s.nth {
		items = append(items, w.nthWeekday(n))
	}
	return w.onWeekdays(items)
}

func (s *Schedule) monthWords(w wording) string {
	if s.fields[month].every {
		return ""
	}
	return w.inMonths(w.months(s.fields[month].values))
}

func (s *Schedule) yearWords(w wording) string {
	if s.fields[year].every {
		return ""
	}
	return w.inYears(strings.Join(ranges(s.fields[year].values, strconv.Itoa, "-"), ", "))
}

// ranges returns the names of ascending values. Three or more consecutive values become
// one name, such as "1-5", with to between the ends.
func ranges(values []int, name func(int) string, to string) []string {
	var out []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] == values[j]+1 {
			j++
		}
		if j < i+2 {
			j = i
			out = append(out, name(values[i]))
		} else {
			out = append(out, name(values[i])+to+name(values[j]))
		}
		i = j + 1
	}
	return out
}

type english struct{}

func (english) join(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

func (e english) clocks(times []string) string { return "at " + e.join(times) }

func (english) everyUnit(u unit, step, from int) string {
	text := fmt.Sprintf("every %d %ss", step, u)
	if step == 1 {
		text = fmt.Sprintf("every %s", u)
	}
	if from != 0 {
		text += fmt.Sprintf(" from %s %d", u, from)
	}
	return text
}

func (e english) atUnit(u unit, values []int) string {
	if u == hour {
		return "in hour " + e.join(ranges(values, strconv.Itoa, "-"))
	}
	return fmt.Sprintf("at %s %s", u, e.join(ranges(values, strconv.Itoa, "-")))
}

func (english) everyDay() string { return "every day" }

func (english) everyDays(step, from int) string {
	if step == 1 {
		return fmt.Sprintf("every day of the month from day %d", from)
	}
	return fmt.Sprintf("every %d days of the month from day %d", step, from)
}

func (english) days(values []int) []string {
	return ranges(values, func(d int) string { return "day " + strconv.Itoa(d) }, " to ")
}

func (english) monthDay(d monthDay) string {
	switch {
	case d.weekday && d.fromEnd && d.day == 0:
		return "the last Monday-to-Friday day"
	case d.weekday && d.fromEnd:
		return fmt.Sprintf("the Monday-to-Friday day nearest to %d days before the last day", d.day)
	case d.weekday:
		return fmt.Sprintf("the Monday-to-Friday day nearest to day %d", d.day)
	case d.day == 0:
		return "the last day"
	case d.day == 1:
		return "the day before the last day"
	}
	return fmt.Sprintf("%d days before the last day", d.day)
}

func (e english) onDays(items []string) string {
	text := e.join(items)
	if !strings.Contains(text, "of the month") {
		text += " of the month"
	}
	if strings.HasPrefix(text, "every") {
		return text
	}
	return "on " + text
}

func (english) weekdays(values []int) []string {
	names := [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	return ranges(values, func(d int) string { return names[d] }, " to ")
}

func (e english) nthWeekday(n nthWeekday) string {
	position := [...]string{"last", "first", "second", "third", "fourth", "fifth"}[n.n]
	return fmt.Sprintf("the %s %s of the month", position, e.weekdays([]int{n.weekday})[0])
}

func (e english) onWeekdays(items []string) string  { return "on " + e.join(items) }
func (english) either(days, weekdays string) string { return days + " or " + weekdays }
func (english) both(days, weekdays string) string   { return days + " if it is also " + weekdays }
func (e english) inMonths(items []string) string    { return "in " + e.join(items) }
func (english) inYears(years string) string         { return "in " + years }
func (english) joinTimes(parts []string) string     { return strings.Join(parts, ", ") }

func (english) months(values []int) []string {
	names := [...]string{
		"January", "February", "March", "April", "May", "June", "July",
		"August", "September", "October", "November", "December",
	}
	return ranges(values, func(m int) string { return names[m-1] }, " to ")
}

func (english) sentence(times, days, months, years, zone string) string {
	parts := []string{times, days}
	for _, p := range []string{months, years} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	text := strings.Join(parts, ", ")
	return strings.ToUpper(text[:1]) + text[1:] + " (" + zone + ")"
}

type chinese struct{}

func (chinese) clocks(times []string) string { return strings.Join(times, "、") }

func (chinese) unitName(u unit) string {
	return map[unit]string{second: "秒", minute: "分钟", hour: "小时"}[u]
}

// position formats values of a unit as a time of day: 9时, 30分, 15秒.
func (chinese) position(u unit, values []int) string {
	mark := map[unit]string{second: "秒", minute: "分", hour: "时"}[u]
	return strings.Join(ranges(values, strconv.Itoa, "至"), "、") + mark
}

func (c chinese) everyUnit(u unit, step, from int) string {
	text := "每" + c.unitName(u)
	if step != 1 {
		text = fmt.Sprintf("每%d%s", step, c.unitName(u))
	}
	if from != 0 {
		text = fmt.Sprintf("从%s起", c.position(u, []int{from})) + text
	}
	return text
}

func (c chinese) atUnit(u unit, values []int) string { return "第" + c.position(u, values) }
func (chinese) everyDay() string                     { return "每天" }

func (chinese) everyDays(step, from int) string {
	if step == 1 {
		return fmt.Sprintf("%d日起每天", from)
	}
	return fmt.Sprintf("%d日起每%d天", from, step)
}

func (chinese) days(values []int) []string {
	return ranges(values, func(d int) string { return strconv.Itoa(d) + "日" }, "至")
}

func (chinese) monthDay(d monthDay) string {
	switch {
	case d.weekday && d.fromEnd && d.day == 0:
		return "最后一个工作日（周一至周五）"
	case d.weekday && d.fromEnd:
		return fmt.Sprintf("离倒数第%d天最近的工作日（周一至周五）", d.day+1)
	case d.weekday:
		return fmt.Sprintf("离%d日最近的工作日（周一至周五）", d.day)
	case d.day == 0:
		return "最后一天"
	}
	return fmt.Sprintf("倒数第%d天", d.day+1)
}

func (chinese) onDays(items []string) string { return "每月" + strings.Join(items, "、") }

func (chinese) weekdays(values []int) []string {
	names := [...]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"}
	return ranges(values, func(d int) string { return names[d] }, "至")
}

func (c chinese) nthWeekday(n nthWeekday) string {
	position := [...]string{"最后一个", "第一个", "第二个", "第三个", "第四个", "第五个"}[n.n]
	return "当月" + position + c.weekdays([]int{n.weekday})[0]
}

func (chinese) onWeekdays(items []string) string    { return strings.Join(items, "、") }
func (chinese) either(days, weekdays string) string { return days + "或" + weekdays }
func (chinese) both(days, weekdays string) string   { return days + "且为" + weekdays }

func (chinese) months(values []int) []string {
	return ranges(values, func(m int) string { return strconv.Itoa(m) + "月" }, "至")
}

func (chinese) inMonths(items []string) string { return strings.Join(items, "、") }
func (chinese) inYears(years string) string    { return years + "年" }

// joinTimes puts the largest unit first.
func (chinese) joinTimes(parts []string) string {
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
		if i > 0 {
			b.WriteString("的")
		}
	}
	return b.String()
}

func (chinese) sentence(times, days, months, years, zone string) string {
	var parts []string
	for _, p := range []string{years, months, days, times} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ") + "（" + zone + "）"
}
