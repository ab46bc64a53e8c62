package schedule

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// shown formats a decision: the runs with the times that they cover, the missed range,
// and the next time.
func shown(d Due) string {
	var out []string
	for _, r := range d.Runs {
		s := listed([]time.Time{r.At})
		if r.Covers > 0 {
			s += fmt.Sprintf("+%d", r.Covers)
		}
		out = append(out, s)
	}
	if m := d.Missed; m != nil {
		out = append(out, fmt.Sprintf("missed %s..%s=%d", listed([]time.Time{m.First}), listed([]time.Time{m.Last}), m.Count))
	}
	if !d.Next.IsZero() {
		out = append(out, "next "+listed([]time.Time{d.Next}))
	}
	return strings.Join(out, " ")
}

func TestDue(t *testing.T) {
	const none = time.Duration(0)
	skip, all := Misfire{Policy: MisfireSkip, Threshold: time.Minute}, Misfire{Policy: MisfireFireAll, Max: 3, Window: time.Hour, Threshold: time.Minute}
	hourly := &apiv1.Schedule{Every: "1h"}
	for _, c := range []struct {
		name        string
		s           *apiv1.Schedule
		m           Misfire
		late, ahead time.Duration // next is at 06:00
		left        int64         // 0: no limit
		budget      int
		want        string
	}{
		{"in time", hourly, Misfire{}, -time.Second, 2 * time.Second, 0, 1, "03-08T06:00:00 next 03-08T07:00:00"},
		{"exactly now", hourly, Misfire{}, none, none, 0, 1, "03-08T06:00:00 next 03-08T07:00:00"},
		{"further ahead", hourly, skip, -time.Hour, none, 0, 1, "03-08T06:00:00 next 03-08T07:00:00"},
		{"quick, all that are ahead", &apiv1.Schedule{Every: "500ms"}, Misfire{}, none, time.Second, 0, 10, "03-08T06:00:00 03-08T06:00:00.5 03-08T06:00:01 next 03-08T06:00:01.5"},
		{"quick, as far as the budget goes", &apiv1.Schedule{Every: "500ms"}, Misfire{}, none, time.Second, 0, 2, "03-08T06:00:00 03-08T06:00:00.5 next 03-08T06:00:01"},
		{"a budget of none is one", hourly, Misfire{}, none, none, 0, 0, "03-08T06:00:00 next 03-08T07:00:00"},
		{"the last one", hourly, Misfire{}, none, 5 * time.Hour, 1, 10, "03-08T06:00:00"},
		{"the last two", hourly, Misfire{}, none, 5 * time.Hour, 2, 10, "03-08T06:00:00 03-08T07:00:00"},
		{"none left", hourly, Misfire{}, none, none, -1, 1, ""},

		{"once, a little late", hourly, Misfire{}, time.Millisecond, none, 0, 1, "03-08T06:00:00 next 03-08T07:00:00"},
		{"once, late", hourly, Misfire{}, 150 * time.Minute, none, 0, 1, "03-08T06:00:00+2 next 03-08T09:00:00"},
		{"once, late to a time", hourly, Misfire{}, 2 * time.Hour, none, 0, 1, "03-08T06:00:00+2 next 03-08T09:00:00"},
		{"once, and what is ahead", &apiv1.Schedule{Every: "500ms"}, Misfire{}, 2 * time.Second, time.Second, 0, 10, "03-08T06:00:00+4 03-08T06:00:02.5 03-08T06:00:03 next 03-08T06:00:03.5"},
		{"once, within its threshold", hourly, Misfire{Threshold: 3 * time.Hour}, 150 * time.Minute, none, 0, 10, "03-08T06:00:00 03-08T07:00:00 03-08T08:00:00 next 03-08T09:00:00"},
		{"once, the schedule ended on the way", hourly, Misfire{}, 10 * time.Hour, none, 3, 10, "03-08T06:00:00+2"},
		{"once, until", &apiv1.Schedule{Every: "1h", Until: "2026-03-08T08:00:00Z"}, Misfire{}, 10 * time.Hour, none, 0, 10, "03-08T06:00:00+1"},

		{"skip, within the threshold", &apiv1.Schedule{Every: "20s"}, skip, time.Minute, none, 0, 3, "03-08T06:00:00 03-08T06:00:20 03-08T06:00:40 next 03-08T06:01:00"},
		{"skip", hourly, skip, 150 * time.Minute, none, 0, 1, "missed 03-08T06:00:00..03-08T08:00:00=3 next 03-08T09:00:00"},
		{"skip one", hourly, skip, 50 * time.Minute, none, 0, 1, "missed 03-08T06:00:00..03-08T06:00:00=1 next 03-08T07:00:00"},
		{"skip, and what is ahead", hourly, skip, 150 * time.Minute, 40 * time.Minute, 0, 5, "03-08T09:00:00 missed 03-08T06:00:00..03-08T08:00:00=3 next 03-08T10:00:00"},
		{"skip, the schedule ended on the way", hourly, skip, 10 * time.Hour, none, 3, 1, "missed 03-08T06:00:00..03-08T08:00:00=3"},
		{"skip once", &apiv1.Schedule{At: "2026-03-08T06:00:00Z"}, skip, time.Hour, none, 0, 1, "missed 03-08T06:00:00..03-08T06:00:00=1"},
		{"skip a delay", &apiv1.Schedule{Delay: "1m"}, skip, time.Hour, none, 0, 1, "missed 03-08T06:00:00..03-08T06:00:00=1"},
		{"skip a year of every 10ms", &apiv1.Schedule{Every: "10ms"}, skip, 365 * dayLength, none, 0, 1, "missed 03-08T06:00:00..03-08T06:00:00=3153600001 next 03-08T06:00:00.01"},
		{"skip a year of seconds", &apiv1.Schedule{Cron: "* * * * * *"}, skip, 365 * dayLength, none, 0, 1, "missed 03-08T06:00:00..03-08T06:00:00=31536001 next 03-08T06:00:01"},
		{"skip a year of workdays", &apiv1.Schedule{Every: "1h", Include: []string{"workdays"}}, skip, 28 * dayLength, none, 0, 1, "missed 03-08T06:00:00..04-03T23:00:00=481 next 04-06T00:00:00"},

		{"all, few", hourly, all, 100 * time.Minute, none, 0, 5, "03-08T07:00:00 missed 03-08T06:00:00..03-08T06:00:00=1 next 03-08T08:00:00"},
		{"all, within the window", &apiv1.Schedule{Every: "30m"}, all, 100 * time.Minute, none, 0, 5, "03-08T07:00:00 03-08T07:30:00 missed 03-08T06:00:00..03-08T06:30:00=2 next 03-08T08:00:00"},
		{"all, the newest", &apiv1.Schedule{Every: "10m"}, all, 100 * time.Minute, none, 0, 5, "03-08T07:20:00 03-08T07:30:00 03-08T07:40:00 missed 03-08T06:00:00..03-08T07:10:00=8 next 03-08T07:50:00"},
		{"all, as far as the budget goes", &apiv1.Schedule{Every: "10m"}, all, 100 * time.Minute, none, 0, 2, "03-08T07:20:00 03-08T07:30:00 missed 03-08T06:00:00..03-08T07:10:00=8 next 03-08T07:40:00"},
		{"all, none missed", &apiv1.Schedule{Every: "10m"}, all, 25 * time.Minute, none, 0, 5, "03-08T06:00:00 03-08T06:10:00 03-08T06:20:00 next 03-08T06:30:00"},
		{"all, none in the window", hourly, Misfire{Policy: MisfireFireAll, Max: 3, Window: time.Minute}, 100 * time.Minute, none, 0, 5, "missed 03-08T06:00:00..03-08T07:00:00=2 next 03-08T08:00:00"},
		{"all, the schedule ended on the way", &apiv1.Schedule{Every: "10m"}, all, 100 * time.Minute, none, 9, 5, "03-08T07:00:00 03-08T07:10:00 03-08T07:20:00 missed 03-08T06:00:00..03-08T06:50:00=6"},
		{"all, and what is ahead", &apiv1.Schedule{Every: "10m"}, all, 25 * time.Minute, 10 * time.Minute, 0, 5, "03-08T06:00:00 03-08T06:10:00 03-08T06:20:00 03-08T06:30:00 next 03-08T06:40:00"},
	} {
		next := instant(t, "2026-03-08T06:00:00Z")
		left := c.left
		if left == 0 {
			left = math.MaxInt64
		}
		p := mustPlan(t, c.s, someCalendars(t))
		if got := shown(p.Due(c.m, next, next.Add(c.late), c.ahead, left, c.budget)); got != c.want {
			t.Errorf("%s: %s\n want %s", c.name, got, c.want)
		}
	}
}

// TestDueConserves follows random jobs with random interruptions. It checks that each
// planned time is decided once, in order, and is a run, covered or missed.
func TestDueConserves(t *testing.T) {
	calendars := someCalendars(t)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(awkward).Draw(t, "zone")
		s := drawSchedule(t, a.zone, a.year)
		p, err := NewPlan(&apiv1.Job{Name: "x", Schedule: s}, calendars)
		if err != nil {
			t.Fatal(err)
		}
		m := Misfire{
			Policy:    rapid.SampledFrom([]MisfirePolicy{MisfireFireOnce, MisfireSkip, MisfireFireAll}).Draw(t, "policy"),
			Max:       rapid.Int64Range(1, 20).Draw(t, "max"),
			Window:    time.Duration(rapid.IntRange(1, 5000).Draw(t, "window")) * time.Minute,
			Threshold: time.Duration(rapid.IntRange(0, 120).Draw(t, "threshold")) * time.Minute,
		}
		begin := time.Date(a.year, 3, 1, 0, 0, 0, 0, time.UTC)
		left := rapid.Int64Range(1, 3000).Draw(t, "left")
		ahead := time.Duration(rapid.IntRange(0, 90).Draw(t, "ahead")) * time.Minute
		next, ok := p.First(begin)
		for now := begin; ok && left > 0; {
			now = now.Add(time.Duration(rapid.IntRange(1, 60*24*20).Draw(t, "later")) * time.Minute)
			if now.After(begin.AddDate(1, 0, 0)) {
				return
			}
			for ok && !next.After(now.Add(ahead)) && left > 0 {
				budget := rapid.IntRange(1, 50).Draw(t, "budget")
				due := p.Due(m, next, now, ahead, left, budget)
				checkDue(t, p, m, due, next, now, ahead, left, budget)
				left -= due.Planned()
				next, ok = due.Next, !due.Next.IsZero()
			}
		}
	})
}

// checkDue compares a decision with the planned times, one by one.
func checkDue(t *rapid.T, p Plan, m Misfire, due Due, next, now time.Time, ahead time.Duration, left int64, budget int) {
	if len(due.Runs) > budget {
		t.Fatalf("%d runs with a budget of %d", len(due.Runs), budget)
	}
	late := now.Sub(next) > m.Threshold
	if late {
		checkLate(t, p, m, due, next, now, left)
	}
	at, ok, n, missed := next, true, int64(0), int64(0)
	step := func() {
		n++
		if at, ok = p.Anchor(next).After(at); n == left {
			ok = false
		}
	}
	var last time.Time
	if due.Missed != nil {
		if !late || m.Policy == MisfireFireOnce || !due.Missed.First.Equal(at) {
			t.Fatalf("missed %+v, next was %s", due.Missed, next)
		}
		for missed < due.Missed.Count && ok {
			last = at
			missed++
			step()
		}
		if !last.Equal(due.Missed.Last) || missed != due.Missed.Count || last.After(now) {
			t.Fatalf("missed %+v, but the %d-th time is %s", due.Missed, missed, last)
		}
	}
	for i, r := range due.Runs {
		if !ok || !r.At.Equal(at) || i > 0 && r.At.After(now.Add(ahead)) {
			t.Fatalf("run %d is for %s, want %s", i, r.At, at)
		}
		if late && m.Policy == MisfireFireAll && !r.At.After(now) && r.At.Before(now.Add(-m.Window)) {
			t.Fatalf("%s is older than the window", r.At)
		}
		step()
		for range r.Covers {
			if !ok || at.After(now) {
				t.Fatalf("run %d covers %s", i, at)
			}
			step()
		}
	}
	if n != due.Planned() {
		t.Fatalf("%d times are decided, Planned says %d", n, due.Planned())
	}
	if ok != !due.Next.IsZero() || ok && !due.Next.Equal(at) {
		t.Fatalf("next is %s, want %s, %t", due.Next, at, ok)
	}
	if full := len(due.Runs) == budget; ok && !full && !at.After(now.Add(ahead)) {
		t.Fatalf("next is %s, which is due, and the budget of %d is not used up by %d", at, budget, len(due.Runs))
	}
	if late && ok && !at.After(now) && m.Policy != MisfireFireAll {
		t.Fatalf("next %s has passed", at)
	}
}

// checkLate compares how many passed times run, are covered and are missed with the
// definition of the policy.
func checkLate(t *rapid.T, p Plan, m Misfire, due Due, next, now time.Time, left int64) {
	var passed, within int64
	for at, ok := next, true; ok && !at.After(now) && passed < left; at, ok = p.Anchor(next).After(at) {
		passed++
		if !at.Before(now.Add(-m.Window)) {
			within++
		}
	}
	var missed, covers int64
	if due.Missed != nil {
		missed = due.Missed.Count
	}
	if len(due.Runs) > 0 {
		covers = due.Runs[0].Covers
	}
	wantMissed, wantCovers := int64(0), int64(0)
	switch m.Policy {
	case MisfireSkip:
		wantMissed = passed
	case MisfireFireOnce:
		wantCovers = passed - 1
	case MisfireFireAll:
		wantMissed = passed - min(within, m.Max)
	}
	if missed != wantMissed || covers != wantCovers {
		t.Fatalf("%s: of %d times that passed, %d within the window, %d are missed and %d covered, want %d and %d", m.Policy, passed, within, missed, covers, wantMissed, wantCovers)
	}
}

func TestMisfireOf(t *testing.T) {
	for _, c := range []struct {
		m    *apiv1.Misfire
		want Misfire
	}{
		{nil, Misfire{MisfireFireOnce, 100, 24 * time.Hour, 0}},
		{&apiv1.Misfire{Threshold: "5s"}, Misfire{MisfireFireOnce, 100, 24 * time.Hour, 5 * time.Second}},
		{&apiv1.Misfire{Policy: "skip"}, Misfire{MisfireSkip, 100, 24 * time.Hour, time.Minute}},
		{&apiv1.Misfire{Policy: "skip", Threshold: "0s"}, Misfire{MisfireSkip, 100, 24 * time.Hour, 0}},
		{&apiv1.Misfire{Policy: "fire_all", Max: 7, Window: "1h"}, Misfire{MisfireFireAll, 7, time.Hour, time.Minute}},
	} {
		d := &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}, Schedule: &apiv1.Schedule{Every: "1s"}, Misfire: c.m}
		if err := CheckMisfire(d); err != nil {
			t.Errorf("%v: %v", c.m, err)
		}
		if got := MisfireOf(d); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.m, got, c.want)
		}
	}
}

func TestMisfireSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		m    *apiv1.Misfire
		want string
	}{
		{&apiv1.Misfire{Policy: "ignore"}, "write fire_once, skip or fire_all"},
		{&apiv1.Misfire{Max: 3}, "go with the policy fire_all only"},
		{&apiv1.Misfire{Policy: "skip", Window: "1h"}, "go with the policy fire_all only"},
		{&apiv1.Misfire{Policy: "fire_all", Max: -1}, "write 1 to 10000"},
		{&apiv1.Misfire{Policy: "fire_all", Max: 10_001}, "write 1 to 10000"},
		{&apiv1.Misfire{Policy: "fire_all", Window: "0s"}, "misfire.window is 0s, the shortest is 1s"},
		{&apiv1.Misfire{Policy: "fire_all", Window: "a day"}, "misfire.window: "},
		{&apiv1.Misfire{Threshold: "-1s"}, "the shortest is 0s"},
		{&apiv1.Misfire{Threshold: "9000h"}, "the longest is 366 days"},
	} {
		d := &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}, Schedule: &apiv1.Schedule{Every: "1s"}, Misfire: c.m}
		if err := CheckMisfire(d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v\n want it to say %q", c.m, err, c.want)
		}
	}
	d := &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}, Misfire: &apiv1.Misfire{}}
	if err := CheckMisfire(d); err == nil || !strings.Contains(err.Error(), "has no schedule") {
		t.Errorf("a misfire without a schedule: %v", err)
	}
}

func BenchmarkDueYearOff(b *testing.B) {
	next := instant(b, "2026-03-08T06:00:00Z")
	for _, c := range []struct {
		name string
		s    *apiv1.Schedule
	}{
		{"every 10ms", &apiv1.Schedule{Every: "10ms"}},
		{"every 10ms on workdays", &apiv1.Schedule{Every: "10ms", Include: []string{"workdays"}}},
		{"cron each second", &apiv1.Schedule{Cron: "* * * * * *", Zone: "America/New_York"}},
		{"cron each second on workdays", &apiv1.Schedule{Cron: "* * * * * *", Zone: "America/New_York", Include: []string{"workdays"}}},
		{"daily", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Until: "17:00", Every: "1s"}, Zone: "America/New_York"}},
		{"daily on workdays", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Until: "17:00", Every: "1s"}, Zone: "America/New_York", Include: []string{"workdays"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := mustPlan(b, c.s, someCalendars(b))
			for b.Loop() {
				p.Due(Misfire{Policy: MisfireSkip}, next, next.AddDate(1, 0, 0), 0, math.MaxInt64, 1)
			}
		})
	}
}
