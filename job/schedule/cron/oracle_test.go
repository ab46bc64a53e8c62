package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The oracle shares no code with the engine: it walks real instants one by one, reads the
// wall clock with package time, and decides each instant with a plain predicate. It uses
// no segments, no jumps between fields and no parser.

// moment is one instant of a walk.
type moment struct {
	unix   int64
	offset int64
	wall   time.Time // the time that the wall clock shows, with the location UTC
}

// walk reads the wall clock of loc every step seconds in [from, to).
func walk(loc *time.Location, from, to time.Time, step int64) []moment {
	var out []moment
	for u := from.Unix(); u < to.Unix(); u += step {
		_, offset := time.Unix(u, 0).In(loc).Zone()
		out = append(out, moment{u, int64(offset), time.Unix(u+int64(offset), 0).UTC()})
	}
	return out
}

// policy has the properties of a schedule that the oracle needs besides its predicate.
type policy struct {
	interval bool
	gap      GapPolicy
	fold     FoldPolicy
}

// fires returns the instants of a walk at which a schedule fires.
func fires(moments []moment, step int64, match func(time.Time) bool, p policy) []int64 {
	occurrences := map[int64][]int64{} // wall second to instants
	fired := map[int64]bool{}
	for i, m := range moments {
		if i > 0 && !p.interval {
			for u, wall := range skipped(moments[i-1], m, step) {
				if !match(wall) {
					continue
				}
				if p.gap == GapShift {
					fired[u] = true
				}
			}
		}
		if !match(m.wall) {
			continue
		}
		if p.interval {
			fired[m.unix] = true
			continue
		}
		occurrences[m.wall.Unix()] = append(occurrences[m.wall.Unix()], m.unix)
	}
	for _, at := range occurrences {
		switch p.fold {
		case FoldFirst:
			at = at[:1]
		case FoldSecond:
			at = at[len(at)-1:]
		}
		for _, u := range at {
			fired[u] = true
		}
	}
	var out []int64
	for u := range fired {
		out = append(out, u)
	}
	slices.Sort(out)
	return out
}

// skipped returns the civil times that do not exist between two moments, by their instant
// with the offset before the gap.
func skipped(before, after moment, step int64) map[int64]time.Time {
	if after.offset <= before.offset {
		return nil
	}
	out := map[int64]time.Time{}
	u := after.unix
	for wall := before.wall.Add(time.Duration(step) * time.Second); wall.Before(after.wall); wall = wall.Add(time.Duration(step) * time.Second) {
		out[u] = wall
		u += step
	}
	return out
}

// engineFires returns the instants of the engine in a range. It fails unless Next and
// Prev agree on them.
func engineFires(t fataler, s *Schedule, from, to int64) []int64 {
	var forwards, backwards []int64
	for at := time.Unix(from-1, 0); ; {
		next, ok := s.Next(at)
		if !ok || next.Unix() >= to {
			break
		}
		if !next.After(at) {
			t.Fatalf("%s: Next(%s) = %s does not advance", s, at, next)
		}
		forwards = append(forwards, next.Unix())
		at = next
	}
	for at := time.Unix(to, 0); ; {
		prev, ok := s.Prev(at)
		if !ok || prev.Unix() < from {
			break
		}
		if !prev.Before(at) {
			t.Fatalf("%s: Prev(%s) = %s does not go back", s, at, prev)
		}
		backwards = append(backwards, prev.Unix())
		at = prev
	}
	slices.Reverse(backwards)
	if !slices.Equal(forwards, backwards) {
		t.Fatalf("%s in %s: Next and Prev disagree: %s", s, s.loc, difference(s.loc, forwards, backwards))
	}
	return forwards
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// compare fails unless engine and oracle agree on a walk. It omits the edges of the walk,
// because the oracle does not see the clock changes beyond them.
func compare(t fataler, s *Schedule, moments []moment, want []int64, edge int64) {
	from, to := moments[0].unix+edge, moments[len(moments)-1].unix-edge
	want = slices.DeleteFunc(slices.Clone(want), func(u int64) bool { return u < from || u >= to })
	if got := engineFires(t, s, from, to); !slices.Equal(got, want) {
		t.Fatalf("%s in %s, gap %s, fold %s: engine and oracle disagree: %s", s, s.loc, s.gap, s.fold, difference(s.loc, got, want))
	}
	compareCount(t, s, from, to, want)
}

// compareCount checks Count for the whole range and for parts of it. The parts begin and
// end at, before and after times of the schedule and at clock changes.
func compareCount(t fataler, s *Schedule, from, to int64, want []int64) {
	edges := []int64{from, to, from + (to-from)/3}
	for i := range min(len(want), 5) {
		u := want[i*(len(want)-1)/max(1, min(len(want), 5)-1)]
		edges = append(edges, u, u+1)
	}
	for u := from; u < to; u = segmentAt(s.loc, u).end {
		edges = append(edges, u, u+1800)
	}
	slices.Sort(edges)
	for i, a := range edges {
		for _, b := range []int64{a, edges[len(edges)-1], edges[min(i+1, len(edges)-1)]} {
			a, b := max(a, from), min(b, to)
			lo, _ := slices.BinarySearch(want, a)
			hi, _ := slices.BinarySearch(want, b)
			if got := s.Count(time.Unix(a, 0), time.Unix(b, 0)); got != int64(max(hi-lo, 0)) {
				t.Fatalf("%s in %s, gap %s, fold %s: Count(%d, %d) = %d, want %d", s, s.loc, s.gap, s.fold, a, b, got, hi-lo)
			}
		}
	}
}

func difference(loc *time.Location, got, want []int64) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("%d and %d instants, first difference at %d: %s and %s", len(got), len(want), i, at(loc, got, i), at(loc, want, i))
		}
	}
	return "none"
}

func at(loc *time.Location, instants []int64, i int) string {
	if i >= len(instants) {
		return "nothing"
	}
	return time.Unix(instants[i], 0).In(loc).Format(time.RFC3339)
}

// TestOracleSeconds walks every second around the clock changes of each zone.
func TestOracleSeconds(t *testing.T) {
	days := []struct{ zone, day string }{
		{"America/New_York", "2026-03-08"},
		{"America/New_York", "2026-11-01"},
		{"America/New_York", "2040-03-11"},
		{"America/New_York", "2040-12-31"},
		{"Europe/London", "2026-03-29"},
		{"Europe/London", "2026-10-25"},
		{"Australia/Lord_Howe", "2026-04-05"},
		{"Australia/Lord_Howe", "2026-10-04"},
		{"America/Sao_Paulo", "2018-02-18"},
		{"America/Sao_Paulo", "2018-11-04"},
		{"Africa/Casablanca", "2026-02-15"},
		{"Africa/Casablanca", "2026-03-22"},
		{"Asia/Tehran", "2022-03-22"},
		{"Asia/Tehran", "2022-09-22"},
		{"Pacific/Apia", "2011-12-30"},
		{"Asia/Shanghai", "1986-05-04"},
		{"Asia/Shanghai", "1991-09-15"},
		{"UTC", "2026-03-29"},
		{"Antarctica/Troll", "2026-03-29"},
		{"Antarctica/Troll", "2026-10-25"},
	}
	schedules := []struct {
		expr     string
		interval bool
		match    func(time.Time) bool
	}{
		{"*/13 * * * * *", true, func(w time.Time) bool { return w.Second()%13 == 0 }},
		{"5 0 */2 * * *", true, func(w time.Time) bool { return w.Second() == 5 && w.Minute() == 0 && w.Hour()%2 == 0 }},
		{"0,59 */7 0-23 * * *", false, func(w time.Time) bool { return w.Second()%59 == 0 && w.Minute()%7 == 0 }},
		{"30 59 23,0-3 * * *", false, func(w time.Time) bool {
			return w.Second() == 30 && w.Minute() == 59 && (w.Hour() == 23 || w.Hour() <= 3)
		}},
	}
	for _, d := range days {
		t.Run(strings.ReplaceAll(d.zone, "/", "-")+" "+d.day, func(t *testing.T) {
			loc := zone(t, d.zone)
			day := instant(t, d.day+"T00:00:00Z")
			// The range is wide enough for the longest gap (a day) and for every offset.
			moments := walk(loc, day.Add(-16*time.Hour), day.Add(40*time.Hour), 1)
			for _, sch := range schedules {
				for _, p := range policies(sch.interval) {
					s := mustParse(t, sch.expr, loc, Options{Gap: p.gap, Fold: p.fold})
					compare(t, s, moments, fires(moments, 1, sch.match, p), 3*3600)
				}
			}
		})
	}
}

func policies(interval bool) []policy {
	if interval {
		return []policy{{interval: true}}
	}
	return []policy{
		{gap: GapShift, fold: FoldFirst}, {gap: GapSkip, fold: FoldSecond}, {gap: GapShift, fold: FoldBoth},
	}
}

// randomSchedule is an expression together with its meaning as a predicate.
type randomSchedule struct {
	expr  string
	match func(time.Time) bool
	policy
}

type randomField struct {
	text  string
	open  bool // no upper bound
	star  bool // starts with *
	match func(v int) bool
}

// drawField draws a field of plain values.
func drawField(t *rapid.T, name string, low, high int) randomField {
	switch rapid.IntRange(0, 4).Draw(t, name+" kind") {
	case 0:
		return randomField{"*", true, true, func(int) bool { return true }}
	case 1:
		n := rapid.IntRange(1, high-low).Draw(t, name+" step")
		return randomField{fmt.Sprintf("*/%d", n), true, true, func(v int) bool { return (v-low)%n == 0 }}
	case 2:
		a := rapid.IntRange(low, high).Draw(t, name+" from")
		b := rapid.IntRange(low, high).Draw(t, name+" to")
		return randomField{fmt.Sprintf("%d-%d", a, b), false, false, func(v int) bool {
			if a <= b {
				return a <= v && v <= b
			}
			return v >= a || v <= b
		}}
	}
	values := rapid.SliceOfN(rapid.IntRange(low, high), 1, 4).Draw(t, name)
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]")
	return randomField{text, false, false, func(v int) bool { return slices.Contains(values, v) }}
}

// drawSchedule draws a unix line.
func drawSchedule(t *rapid.T) randomSchedule {
	minutes, hours := drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23)
	if rapid.Bool().Draw(t, "night") {
		// Clocks change at night, so these hours make gaps and folds frequent.
		hours = randomField{"0-3", false, false, func(v int) bool { return v <= 3 }}
	}
	days, months, weekdays := drawField(t, "day", 1, 31), drawField(t, "month", 1, 12), drawField(t, "weekday", 0, 6)
	onDay := func(w time.Time) bool { return days.match(w.Day()) }
	onWeekday := func(w time.Time) bool { return weekdays.match(int(w.Weekday())) }
	switch rapid.IntRange(0, 5).Draw(t, "rule") {
	case 0:
		n := rapid.IntRange(1, 31).Draw(t, "nearest to")
		days.text, days.star = fmt.Sprintf("%dW", n), false
		onDay = func(w time.Time) bool { return nearestWeekday(w, n) }
	case 1:
		n := rapid.IntRange(1, 20).Draw(t, "days before the last")
		days.text, days.star = fmt.Sprintf("L-%d", n), false
		onDay = func(w time.Time) bool {
			return w.AddDate(0, 0, n).Month() == w.Month() && w.AddDate(0, 0, n+1).Month() != w.Month()
		}
	case 2:
		day, n := rapid.IntRange(0, 6).Draw(t, "weekday"), rapid.IntRange(1, 5).Draw(t, "position")
		weekdays.text, weekdays.star = fmt.Sprintf("%d#%d", day, n), false
		onWeekday = func(w time.Time) bool { return int(w.Weekday()) == day && (w.Day()-1)/7 == n-1 }
	case 3:
		day := rapid.IntRange(0, 6).Draw(t, "weekday")
		weekdays.text, weekdays.star = fmt.Sprintf("%dL", day), false
		onWeekday = func(w time.Time) bool { return int(w.Weekday()) == day && w.AddDate(0, 0, 7).Month() != w.Month() }
	}
	return randomSchedule{
		expr: strings.Join([]string{minutes.text, hours.text, days.text, months.text, weekdays.text}, " "),
		match: func(w time.Time) bool {
			if !minutes.match(w.Minute()) || !hours.match(w.Hour()) || !months.match(int(w.Month())) {
				return false
			}
			if days.star || weekdays.star {
				return onDay(w) && onWeekday(w)
			}
			return onDay(w) || onWeekday(w)
		},
		policy: policy{
			interval: hours.open,
			gap:      rapid.SampledFrom([]GapPolicy{GapShift, GapSkip}).Draw(t, "gap"),
			fold:     rapid.SampledFrom([]FoldPolicy{FoldFirst, FoldSecond, FoldBoth}).Draw(t, "fold"),
		},
	}
}

// nearestWeekday reports whether w is the day from Monday to Friday that is nearest to
// day n of its month. It tries the distances in turn.
func nearestWeekday(w time.Time, n int) bool {
	target := time.Date(w.Year(), w.Month(), n, 0, 0, 0, 0, time.UTC)
	if target.Month() != w.Month() {
		return false
	}
	for _, shift := range []int{0, -1, 1, -2, 2} {
		d := target.AddDate(0, 0, shift)
		if d.Month() == target.Month() && d.Weekday() != time.Saturday && d.Weekday() != time.Sunday {
			return d.Day() == w.Day()
		}
	}
	return false
}

// TestOracleYears walks every minute of a year in each zone with random expressions.
func TestOracleYears(t *testing.T) {
	years := []struct {
		zone string
		year int
	}{
		{"America/New_York", 2026},
		{"Europe/London", 2040},
		{"Australia/Lord_Howe", 2026},
		{"America/Sao_Paulo", 2018},
		{"Africa/Casablanca", 2026},
		{"Asia/Tehran", 2022},
		{"Pacific/Apia", 2011},
		{"Asia/Shanghai", 1988},
		{"UTC", 2028},
		{"Antarctica/Troll", 2028},
	}
	// The seeds are fixed, so that a failure repeats. Each expression costs 15 ms.
	const linesPerZone = 25
	randomLine := rapid.Custom(drawSchedule)
	for i, y := range years {
		t.Run(strings.ReplaceAll(y.zone, "/", "-"), func(t *testing.T) {
			loc := zone(t, y.zone)
			start := time.Date(y.year, 1, 1, 0, 0, 0, 0, time.UTC)
			moments := walk(loc, start.AddDate(0, 0, -3), start.AddDate(1, 0, 3), 60)
			for n := range linesPerZone {
				checkYear(t, randomLine.Example(i*linesPerZone+n), loc, moments)
			}
		})
	}
}

func checkYear(t *testing.T, r randomSchedule, loc *time.Location, moments []moment) {
	t.Helper()
	s, err := Parse(r.expr, loc, Options{Gap: r.gap, Fold: r.fold})
	if err != nil {
		if !strings.Contains(err.Error(), "choose a date that exists") {
			t.Fatal(err)
		}
		return
	}
	if s.IntervalLike() != r.interval {
		t.Fatalf("%s: interval-like %t, want %t", r.expr, s.IntervalLike(), r.interval)
	}
	compare(t, s, moments, fires(moments, 60, r.match, r.policy), 2*86400)
}

// TestInstant compares Instant with the moments of a walk, for every quarter of an hour
// of civil time around the clock changes of each zone.
func TestInstant(t *testing.T) {
	for _, d := range []struct{ zone, day string }{
		{"America/New_York", "2026-03-08"},
		{"America/New_York", "2026-11-01"},
		{"Europe/London", "2026-03-29"},
		{"Europe/London", "2026-10-25"},
		{"Australia/Lord_Howe", "2026-04-05"},
		{"Australia/Lord_Howe", "2026-10-04"},
		{"America/Sao_Paulo", "2018-02-18"},
		{"America/Sao_Paulo", "2018-11-04"},
		{"Africa/Casablanca", "2026-03-22"},
		{"Asia/Tehran", "2022-03-22"},
		{"Pacific/Apia", "2011-12-30"},
		{"Asia/Shanghai", "1986-05-04"},
		{"America/St_Johns", "2010-11-07"}, // back over midnight
		{"Antarctica/Troll", "2026-03-29"},
		{"UTC", "2026-03-29"},
	} {
		loc, day := zone(t, d.zone), instant(t, d.day+"T00:00:00Z")
		moments := walk(loc, day.Add(-64*time.Hour), day.Add(88*time.Hour), 900)
		for wall := day.Add(-24 * time.Hour); wall.Before(day.Add(48 * time.Hour)); wall = wall.Add(15 * time.Minute) {
			// The expected instant is the first moment that shows the civil time. In a
			// gap it is the first moment after the gap, plus the time since the start of
			// the gap.
			i := slices.IndexFunc(moments, func(m moment) bool { return m.wall.Equal(wall) })
			if i < 0 {
				i = slices.IndexFunc(moments, func(m moment) bool { return m.wall.After(wall) })
			}
			want := moments[i].unix
			if !moments[i].wall.Equal(wall) {
				want = wall.Unix() - moments[i-1].offset
			}
			if got := Instant(loc, wall); got.Unix() != want || got.Location() != loc {
				t.Errorf("%s: %s is %s, want %s", d.zone, wall.Format(time.DateTime), got.Format(time.RFC3339), time.Unix(want, 0).In(loc).Format(time.RFC3339))
			}
		}
	}
}

// TestOn compares a schedule that is restricted to some days with a schedule whose other
// times the test drops.
func TestOn(t *testing.T) {
	odd := func(year, month int) uint32 {
		if month == 2 && year%4 != 0 {
			return 0
		}
		return 0xaaaaaaaa
	}
	from, to := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2030-01-01T00:00:00Z")
	for _, expr := range []string{"30 2 * * *", "0 0 29 2 *", "0 12 * * MON-FRI", "0 */7 L * *", "15 9 ? 3 1#1"} {
		all := mustParse(t, expr, zone(t, "America/New_York"), Options{})
		some := all.On(odd)
		want := slices.DeleteFunc(all.Between(from, to, 1<<20), func(at time.Time) bool {
			return odd(at.Year(), int(at.Month()))>>at.Day()&1 == 0
		})
		if got := some.Between(from, to, 1<<20); len(want) == 0 || !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%s: %d times, want %d above 0", expr, len(got), len(want))
		}
		if got := some.Count(from, to); got != int64(len(want)) {
			t.Errorf("%s: counts %d times, want %d", expr, got, len(want))
		}
	}
	never := mustParse(t, "* * * * *", nil, Options{}).On(func(int, int) uint32 { return 0 })
	if next, ok := never.Next(from); ok || never.Count(from, to) != 0 {
		t.Errorf("a schedule on no day fires at %s", next)
	}
}
