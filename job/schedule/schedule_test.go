package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// book returns a look-up of calendars by name.
func book(t testing.TB, list ...*apiv1.Calendar) Calendars {
	t.Helper()
	m := map[string]*Calendar{}
	for _, c := range list {
		compiled, err := CompileCalendar(c)
		if err != nil {
			t.Fatal(err)
		}
		m[c.Name] = compiled
	}
	return func(name string) *Calendar { return m[name] }
}

func someCalendars(t testing.TB) Calendars {
	return book(t,
		&apiv1.Calendar{Name: "weekend", Days: []string{"sat", "sun"}},
		&apiv1.Calendar{Name: "workdays", Days: []string{"mon", "tue", "wed", "thu", "fri"}},
		&apiv1.Calendar{Name: "makeup", Dates: []string{"2026-03-14", "2026-09-20"}},
		&apiv1.Calendar{Name: "holidays", Dates: []string{"2026-03-16/2026-03-17"}, Yearly: []string{"12-25", "02-29"}},
		&apiv1.Calendar{Name: "all", Days: []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}},
		&apiv1.Calendar{Name: "none"},
	)
}

func mustPlan(t testing.TB, s *apiv1.Schedule, calendars Calendars) Plan {
	t.Helper()
	p, err := NewPlan(&apiv1.Job{App: "default", Name: "totals", Schedule: s}, calendars)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listed formats times in UTC. It omits the date of the test.
func listed(times []time.Time) string {
	var out []string
	for _, t := range times {
		out = append(out, t.UTC().Format("01-02T15:04:05.999"))
	}
	return strings.Join(out, " ")
}

// TestPlan computes the first times of a schedule that is set at 06:00 UTC on 8 March
// 2026, an hour before the clocks in New York go forward.
func TestPlan(t *testing.T) {
	now := instant(t, "2026-03-08T06:00:00Z")
	for _, c := range []struct {
		name string
		s    *apiv1.Schedule
		want string // at most three times
	}{
		{"nothing", &apiv1.Schedule{}, ""},
		{"every", &apiv1.Schedule{Every: "30s"}, "03-08T06:00:30 03-08T06:01:00 03-08T06:01:30"},
		{"every from", &apiv1.Schedule{Every: "7h", From: "2026-03-08T01:00:00Z"}, "03-08T08:00:00 03-08T15:00:00 03-08T22:00:00"},
		{"every from the future", &apiv1.Schedule{Every: "1h", From: "2026-04-01T00:10:00Z"}, "04-01T00:10:00 04-01T01:10:00 04-01T02:10:00"},
		{"every until", &apiv1.Schedule{Every: "1h", Until: "2026-03-08T08:00:00Z"}, "03-08T07:00:00"},
		{"every on workdays", &apiv1.Schedule{Every: "8h", Include: []string{"workdays"}}, "03-09T06:00:00 03-09T14:00:00 03-09T22:00:00"},
		{"every on workdays there", &apiv1.Schedule{Every: "8h", Include: []string{"workdays"}, Zone: "America/New_York"}, "03-09T06:00:00 03-09T14:00:00 03-09T22:00:00"},
		{"every on workdays in Tokyo", &apiv1.Schedule{Every: "8h", Include: []string{"workdays"}, Zone: "Asia/Tokyo"}, "03-08T22:00:00 03-09T06:00:00 03-09T14:00:00"},
		{"every but holidays", &apiv1.Schedule{Every: "24h", From: "2026-03-14T01:00:00Z", Exclude: []string{"holidays", "none"}}, "03-14T01:00:00 03-15T01:00:00 03-18T01:00:00"},
		{"delay", &apiv1.Schedule{Delay: "1m"}, "03-08T06:01:00"},
		{"delay from", &apiv1.Schedule{Delay: "1m", From: "2026-04-01T00:00:00Z"}, "04-01T00:00:00"},
		{"delay until", &apiv1.Schedule{Delay: "1m", Until: "2026-03-08T06:01:00Z"}, ""},
		{"at", &apiv1.Schedule{At: "2026-04-01T08:00:00+08:00"}, "04-01T00:00:00"},
		{"at has passed", &apiv1.Schedule{At: "2026-03-01T08:00:00+08:00"}, ""},
		{"at on its own date", &apiv1.Schedule{At: "2026-03-14T08:00:00+09:00", Include: []string{"weekend"}}, "03-13T23:00:00"},
		{"at on the date of its zone", &apiv1.Schedule{At: "2026-03-14T08:00:00+09:00", Include: []string{"weekend"}, Zone: "UTC"}, ""},
		{"at is rounded up", &apiv1.Schedule{At: "2026-04-01T00:00:00.0000001Z"}, "04-01T00:00:00.001"},
		{"at is excluded", &apiv1.Schedule{At: "2026-12-25T00:00:00Z", Exclude: []string{"holidays"}}, ""},
		{"after", &apiv1.Schedule{After: "90m"}, "03-08T07:30:00"},
		{"after until", &apiv1.Schedule{After: "90m", Until: "2026-03-08T07:00:00Z"}, ""},
		{"cron in the gap", &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York"}, "03-08T07:30:00 03-09T06:30:00 03-10T06:30:00"},
		{"cron, gap skip", &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York", Gap: "skip"}, "03-09T06:30:00 03-10T06:30:00 03-11T06:30:00"},
		{"cron, fold second", &apiv1.Schedule{Cron: "30 1 1-2 11 *", Zone: "America/New_York", Fold: "second"}, "11-01T06:30:00 11-02T06:30:00 11-01T05:30:00"},
		{"cron, fold both", &apiv1.Schedule{Cron: "30 1 1-2 11 *", Zone: "America/New_York", Fold: "both"}, "11-01T05:30:00 11-01T06:30:00 11-02T06:30:00"},
		{"cron, year", &apiv1.Schedule{Cron: "0 0 0 1 1 ? 2027-2028"}, "01-01T00:00:00 01-01T00:00:00"},
		{"cron from until", &apiv1.Schedule{Cron: "@daily", From: "2026-04-01T00:00:00Z", Until: "2026-04-03T00:00:00Z"}, "04-01T00:00:00 04-02T00:00:00"},
		{"cron on make-up days", &apiv1.Schedule{Cron: "0 9 * * *", Include: []string{"makeup"}}, "03-14T09:00:00 09-20T09:00:00"},
		{"cron on workdays and make-up days", &apiv1.Schedule{Cron: "0 9 12-19 * *", Include: []string{"makeup", "workdays"}, Exclude: []string{"holidays"}}, "03-12T09:00:00 03-13T09:00:00 03-14T09:00:00"},
		{"cron on 29 February", &apiv1.Schedule{Cron: "0 9 * 2 *", Include: []string{"holidays"}}, "02-29T09:00:00 02-29T09:00:00 02-29T09:00:00"},
		{"cron never", &apiv1.Schedule{Cron: "* * * * *", Exclude: []string{"all"}}, ""},
		{"cron on no date", &apiv1.Schedule{Cron: "* * * * *", Include: []string{"none"}}, ""},
		{"every never", &apiv1.Schedule{Every: "1s", Exclude: []string{"all"}}, ""},
		{"daily never", &apiv1.Schedule{Daily: &apiv1.Daily{Days: []string{"sat"}}, Exclude: []string{"weekend"}}, ""},
		{"daily over midnight never", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:00", Until: "01:00", Every: "1h"}, Exclude: []string{"all"}}, ""},
		{"daily", &apiv1.Schedule{Daily: &apiv1.Daily{}}, "03-09T00:00:00 03-10T00:00:00 03-11T00:00:00"},
		{"daily every", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Until: "17:30", Every: "4h"}}, "03-08T09:00:00 03-08T13:00:00 03-08T17:00:00"},
		{"daily up to and with the end", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Until: "09:30", Every: "30m"}}, "03-08T09:00:00 03-08T09:30:00 03-09T09:00:00"},
		{"daily at one time", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00:30", Until: "09:00:30", Every: "1s"}}, "03-08T09:00:30 03-09T09:00:30 03-10T09:00:30"},
		{"daily over midnight", &apiv1.Schedule{Daily: &apiv1.Daily{From: "22:00", Until: "02:00", Every: "3h"}}, "03-08T22:00:00 03-09T01:00:00 03-09T22:00:00"},
		{"daily over midnight of Fridays", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:30", Until: "00:30", Every: "1h", Days: []string{"Fri"}}}, "03-13T23:30:00 03-14T00:30:00 03-20T23:30:00"},
		{"daily over midnight into a weekend", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:30", Until: "00:30", Every: "1h", Days: []string{"fri"}}, Exclude: []string{"weekend"}}, "03-13T23:30:00 03-20T23:30:00 03-27T23:30:00"},
		{"daily over midnight only the weekend", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:30", Until: "00:30", Every: "1h", Days: []string{"fri"}}, Include: []string{"weekend"}}, "03-14T00:30:00 03-21T00:30:00 03-28T00:30:00"},
		{"daily in the gap", &apiv1.Schedule{Daily: &apiv1.Daily{From: "02:30"}, Zone: "America/New_York"}, "03-08T07:30:00 03-09T06:30:00 03-10T06:30:00"},
		{"daily through the gap", &apiv1.Schedule{Daily: &apiv1.Daily{From: "01:00", Until: "04:00", Every: "1h"}, Zone: "America/New_York"}, "03-08T07:00:00 03-08T08:00:00 03-09T05:00:00"},
	} {
		p := mustPlan(t, c.s, someCalendars(t))
		var got []time.Time
		for at, ok := p.First(now); ok && len(got) < 3; at, ok = p.After(at) {
			got = append(got, at)
		}
		if listed(got) != c.want {
			t.Errorf("%s: %s\n want %s", c.name, listed(got), c.want)
		}
	}
}

func TestPlanMovesByItsJitter(t *testing.T) {
	now := instant(t, "2026-03-08T06:00:00Z")
	moved := map[time.Duration]bool{}
	for i := range 100 {
		d := &apiv1.Job{App: "default", Name: fmt.Sprint("job-", i), Schedule: &apiv1.Schedule{Cron: "@daily", Jitter: "1h"}}
		p, err := NewPlan(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		times, _ := p.Between(now, now.AddDate(0, 0, 30), 100)
		for _, at := range times {
			shift := at.Sub(at.Truncate(24 * time.Hour))
			if shift < 0 || shift >= time.Hour || at.Sub(times[0])%(24*time.Hour) != 0 {
				t.Fatalf("%s is planned for %s", d.Name, at)
			}
			moved[shift] = true
		}
	}
	if len(moved) < 99 {
		t.Errorf("100 jobs of one minute are spread over %d times", len(moved))
	}
	// The hash must never change: that would move every job of every user.
	const shift = 48*time.Minute + 53*time.Second + 451*time.Millisecond
	for _, c := range []struct {
		name  string
		s     *apiv1.Schedule
		first time.Time
	}{
		{"cron", &apiv1.Schedule{Cron: "0 5 * * *"}, instant(t, "2026-03-09T05:00:00Z").Add(shift)},
		{"cron that moved over now", &apiv1.Schedule{Cron: "50 5 * * *"}, instant(t, "2026-03-08T05:50:00Z").Add(shift)},
		{"cron until", &apiv1.Schedule{Cron: "50 5 * * *", Until: "2026-03-08T06:00:00Z"}, time.Time{}},
		{"cron from", &apiv1.Schedule{Cron: "50 5 * * *", From: "2026-03-08T06:00:00Z"}, instant(t, "2026-03-09T05:50:00Z").Add(shift)},
		{"every", &apiv1.Schedule{Every: "1m"}, now.Add(time.Minute + shift)},
		{"every from", &apiv1.Schedule{Every: "1m", From: "2026-03-09T05:50:00Z"}, instant(t, "2026-03-09T05:50:00Z").Add(shift)},
		{"delay", &apiv1.Schedule{Delay: "1m"}, now.Add(time.Minute + shift)},
		{"at", &apiv1.Schedule{At: "2026-03-08T06:01:00Z"}, now.Add(time.Minute + shift)},
		{"after", &apiv1.Schedule{After: "1m"}, now.Add(time.Minute + shift)},
		{"daily on workdays", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:50"}, Exclude: []string{"weekend"}}, instant(t, "2026-03-09T23:50:00Z").Add(shift)},
	} {
		c.s.Jitter = "1h"
		got, _ := mustPlan(t, c.s, someCalendars(t)).First(now)
		if !got.Equal(c.first) {
			t.Errorf("%s: first at %s, want %s", c.name, got, c.first)
		}
	}
}

func TestAfterEnd(t *testing.T) {
	end := instant(t, "2026-03-08T06:00:00.0000001Z")
	p := mustPlan(t, &apiv1.Schedule{Delay: "1m", Until: "2026-03-08T06:02:00Z"}, nil)
	if at, ok := p.AfterEnd(end); !ok || listed([]time.Time{at}) != "03-08T06:01:00.001" {
		t.Errorf("a minute after %s: %s", end, at)
	}
	if at, ok := p.AfterEnd(end.Add(time.Minute)); ok {
		t.Errorf("planned at %s, after until", at)
	}
	if at, ok := mustPlan(t, &apiv1.Schedule{Every: "1m"}, nil).AfterEnd(end); ok {
		t.Errorf("a fixed rate goes on at %s, after a run", at)
	}
}

func TestOnceAndLeft(t *testing.T) {
	for _, c := range []struct {
		s    *apiv1.Schedule
		once bool
		left int64
	}{
		{&apiv1.Schedule{At: "2026-03-01T08:00:00Z"}, true, math.MaxInt64},
		{&apiv1.Schedule{At: "2026-03-01T08:00:00Z", Exclude: []string{"all"}}, true, math.MaxInt64},
		{&apiv1.Schedule{After: "1h", MaxRuns: 1}, false, 0},
		{&apiv1.Schedule{Every: "1h", MaxRuns: 5}, false, 2},
		{&apiv1.Schedule{}, false, math.MaxInt64},
	} {
		p := mustPlan(t, c.s, someCalendars(t))
		if at, once := p.Once(); once != c.once || once && !at.Equal(instant(t, c.s.At)) {
			t.Errorf("%v: once %s, %t", c.s, at, once)
		}
		if got := p.Left(3); got != c.left {
			t.Errorf("%v: %d left after 3, want %d", c.s, got, c.left)
		}
	}
}

func TestScheduleSaysWhatIsWrong(t *testing.T) {
	many := make([]string, MaxCalendars+1)
	for i := range many {
		many[i] = fmt.Sprint("c", i)
	}
	for _, c := range []struct {
		s    *apiv1.Schedule
		want string
	}{
		{&apiv1.Schedule{Every: "1s", Daily: &apiv1.Daily{}}, "exclude each other"},
		{&apiv1.Schedule{At: "2026-03-01T08:00:00Z", After: "1s"}, "exclude each other"},
		{&apiv1.Schedule{Zone: "UTC"}, "schedule.zone needs a kind"},
		{&apiv1.Schedule{Exclude: []string{"x"}}, "schedule.exclude needs a kind"},
		{&apiv1.Schedule{MaxRuns: 3}, "schedule.max_runs needs a kind"},
		{&apiv1.Schedule{Every: "1s", Zone: "UTC"}, "schedule.zone goes with schedule.cron, schedule.daily or calendars only"},
		{&apiv1.Schedule{Every: "1s", Gap: "skip"}, "schedule.gap goes with schedule.cron only"},
		{&apiv1.Schedule{Daily: &apiv1.Daily{}, Fold: "both"}, "schedule.fold goes with schedule.cron only"},
		{&apiv1.Schedule{Cron: "@daily", Gap: "before"}, "write shift or skip"},
		{&apiv1.Schedule{Cron: "@daily", Fold: "last"}, "write first, second or both"},
		{&apiv1.Schedule{Cron: "0 0 0 30 2 *"}, "schedule.cron: "},
		{&apiv1.Schedule{Daily: &apiv1.Daily{}, Zone: "Asia/Shangai"}, "did you mean Asia/Shanghai"},
		{&apiv1.Schedule{Every: "5 minutes"}, "write it as 500ms"},
		{&apiv1.Schedule{Every: "1ms"}, "the shortest is 10ms"},
		{&apiv1.Schedule{Every: "10000h"}, "the longest is 366 days"},
		{&apiv1.Schedule{Every: "10.5ms"}, "whole milliseconds"},
		{&apiv1.Schedule{Delay: "0s"}, "the shortest is 10ms"},
		{&apiv1.Schedule{After: "-1s"}, "the shortest is 1ms"},
		{&apiv1.Schedule{At: "tomorrow"}, "is not a time"},
		{&apiv1.Schedule{At: "1969-01-01T00:00:00Z"}, "is not a time of 1970 or later"},
		{&apiv1.Schedule{Every: "1s", From: "noon"}, "schedule.from: "},
		{&apiv1.Schedule{Every: "1s", Until: "noon"}, "schedule.until: "},
		{&apiv1.Schedule{Every: "1s", From: "2026-01-01T00:00:00Z", Until: "2026-01-01T00:00:00Z"}, "write a later time"},
		{&apiv1.Schedule{Every: "1s", MaxRuns: -1}, "write 1 or more"},
		{&apiv1.Schedule{Every: "1s", Jitter: "24h"}, "the longest is 23h59m59.999s"},
		{&apiv1.Schedule{Every: "1s", Jitter: "-1s"}, "the shortest is 0s"},
		{&apiv1.Schedule{Delay: "1s", Include: []string{"x"}}, "go with cron, every, at and daily only"},
		{&apiv1.Schedule{After: "1s", Exclude: []string{"x"}}, "go with cron, every, at and daily only"},
		{&apiv1.Schedule{Every: "1s", Include: many}, "the limit is 32"},
		{&apiv1.Schedule{Every: "1s", Include: []string{"x", "x"}}, "names x twice"},
		{&apiv1.Schedule{Every: "1s", Exclude: []string{"a b"}}, "is not a name"},
		{&apiv1.Schedule{Daily: &apiv1.Daily{From: "24:00"}}, "schedule.daily.from: "},
		{&apiv1.Schedule{Daily: &apiv1.Daily{From: "9:00"}}, "write it as 09:00"},
		{&apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00:00.5"}}, "write it as 09:00"},
		{&apiv1.Schedule{Daily: &apiv1.Daily{Until: "12:60"}}, "schedule.daily.until: "},
		{&apiv1.Schedule{Daily: &apiv1.Daily{Every: "25h"}}, "the longest is 24h"},
		{&apiv1.Schedule{Daily: &apiv1.Daily{Days: []string{"monday"}}}, "write mon, tue"},
	} {
		d := &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}, Schedule: c.s}
		err := Check(d)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v\n want it to say %q", c.s, err, c.want)
		}
		if _, err := NewPlan(d, func(string) *Calendar { return &Calendar{} }); err == nil {
			t.Errorf("%v: NewPlan takes it", c.s)
		}
	}
	if _, err := NewPlan(&apiv1.Job{Schedule: &apiv1.Schedule{Every: "1s", Include: []string{"x"}}}, nil); err == nil || !strings.Contains(err.Error(), `calendar "x" does not exist`) {
		t.Errorf("a calendar that is not there: %v", err)
	}
	empty := &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}, Schedule: &apiv1.Schedule{}}
	if err := Check(empty); err != nil || empty.Schedule != nil {
		t.Errorf("an empty schedule: %v, left as %v", err, empty.Schedule)
	}
}

// TestDaysThatTheClocksBend checks days that do not last from one midnight to the next:
// each time is planned once and counted once.
func TestDaysThatTheClocksBend(t *testing.T) {
	for _, c := range []struct {
		name        string
		s           *apiv1.Schedule
		from, until string
		want        string
	}{
		{
			"a day that is left out", &apiv1.Schedule{Zone: "Pacific/Apia", Daily: &apiv1.Daily{From: "12:00"}},
			"2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
			"12-29T22:00:00 12-30T22:00:00",
		},
		{
			"a span that a gap moves into the next", &apiv1.Schedule{Zone: "America/New_York", Daily: &apiv1.Daily{From: "03:10", Until: "02:50", Every: "10m"}},
			"2026-03-08T06:50:00Z", "2026-03-08T07:25:00Z",
			"03-08T06:50:00 03-08T07:00:00 03-08T07:10:00 03-08T07:20:00",
		},
		{
			"a span that a gap moves onto the next", &apiv1.Schedule{Zone: "America/New_York", Daily: &apiv1.Daily{From: "03:10", Until: "02:10", Every: "23h"}},
			"2026-03-07T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"03-07T07:10:00 03-07T08:10:00 03-08T07:10:00",
		},
		{
			"a span that a gap leaves nothing but its begin", &apiv1.Schedule{Zone: "America/New_York", Daily: &apiv1.Daily{From: "02:30", Until: "03:10", Every: "5m"}},
			"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"03-08T07:30:00",
		},
		{ // on Sunday at 00:01 the clocks go back to Saturday 23:01
			"a Saturday that comes back after midnight", &apiv1.Schedule{Zone: "America/St_Johns", Every: "15m", From: "2010-11-07T01:30:30Z", Exclude: []string{"weekend"}},
			"2010-11-05T23:00:00-02:30", "2010-11-08T00:20:00-03:30",
			"11-08T03:30:30 11-08T03:45:30",
		},
		{
			"a Sunday that begins twice", &apiv1.Schedule{Zone: "America/St_Johns", Every: "15m", From: "2010-11-07T01:30:30Z", Exclude: []string{"saturday"}},
			"2010-11-06T23:00:00-02:30", "2010-11-07T00:20:00-03:30",
			"11-07T02:30:30 11-07T02:45:30 11-07T03:00:30 11-07T03:15:30 11-07T03:30:30 11-07T03:45:30",
		},
	} {
		calendars := book(t, &apiv1.Calendar{Name: "weekend", Days: []string{"sat", "sun"}}, &apiv1.Calendar{Name: "saturday", Days: []string{"sat"}})
		p, from, until := mustPlan(t, c.s, calendars), instant(t, c.from), instant(t, c.until)
		times, _ := p.Between(from, until, 100)
		if listed(times) != c.want {
			t.Errorf("%s: %s\n want %s", c.name, listed(times), c.want)
		}
		if n := p.count(from, until); n != int64(len(times)) {
			t.Errorf("%s: counts %d times, want %d", c.name, n, len(times))
		}
	}
}

// awkward has zones and years with unusual clock changes.
var awkward = []struct {
	zone string
	year int
}{
	{"America/New_York", 2026},
	{"Europe/London", 2026},
	{"Australia/Lord_Howe", 2026}, // by half an hour
	{"America/Sao_Paulo", 2018},   // at midnight
	{"Africa/Casablanca", 2026},   // around Ramadan
	{"Asia/Tehran", 2022},         // at midnight
	{"Pacific/Apia", 2011},        // a day is missing
	{"Asia/Shanghai", 1988},
	{"America/St_Johns", 2010}, // back over midnight
	{"Antarctica/Troll", 2028}, // by two hours
}

// drawSchedule draws a schedule in a zone, with times in a year and in whole minutes.
func drawSchedule(t *rapid.T, zone string, year int) *apiv1.Schedule {
	s := &apiv1.Schedule{}
	minutes := func(name string, low, high int) string {
		return fmt.Sprintf("%dm", rapid.IntRange(low, high).Draw(t, name))
	}
	date := func(name string) string {
		return fmt.Sprintf("%d-%02d-%02dT%02d:%02d:00Z", year, rapid.IntRange(1, 12).Draw(t, name+" month"), rapid.IntRange(1, 28).Draw(t, name+" day"),
			rapid.IntRange(0, 23).Draw(t, name+" hour"), rapid.IntRange(0, 59).Draw(t, name+" minute"))
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		s.Every = minutes("every", 10, 4000)
		s.From = fmt.Sprintf("%d-01-01T00:%02d:00Z", year, rapid.IntRange(0, 59).Draw(t, "from"))
	case 1:
		s.Cron = fmt.Sprintf("%d,%d %s * * *", rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 59).Draw(t, "minute"),
			rapid.SampledFrom([]string{"*", "0-3", "2", "0,12", "1-23"}).Draw(t, "hour"))
		s.Gap = rapid.SampledFrom([]string{"", "shift", "skip"}).Draw(t, "gap")
		s.Fold = rapid.SampledFrom([]string{"", "first", "second", "both"}).Draw(t, "fold")
		s.Zone = zone
	case 2:
		clock := func(name string) string {
			hours := rapid.SampledFrom([]int{0, 1, 2, 3, 12, 22, 23}).Draw(t, name)
			return fmt.Sprintf("%02d:%02d", hours, rapid.IntRange(0, 59).Draw(t, name))
		}
		s.Daily = &apiv1.Daily{From: clock("from"), Until: clock("until"), Every: minutes("every", 7, 300)}
		s.Daily.Days = rapid.SliceOfN(rapid.SampledFrom(weekdayNames[:]), 0, 5).Draw(t, "days")
		s.Zone = zone
	case 3:
		s.At = date("at")
	}
	calendars := []string{"weekend", "workdays", "makeup", "holidays"}
	s.Include = rapid.SliceOfNDistinct(rapid.SampledFrom(calendars), 0, 2, rapid.ID).Draw(t, "include")
	s.Exclude = rapid.SliceOfNDistinct(rapid.SampledFrom(calendars), 0, 1, rapid.ID).Draw(t, "exclude")
	if len(s.Include)+len(s.Exclude) > 0 {
		s.Zone = zone
	}
	if s.From == "" && rapid.Bool().Draw(t, "bounded") {
		s.From = date("from")
	}
	if rapid.Bool().Draw(t, "ends") {
		s.Until = date("until")
		if s.Until <= s.From {
			s.Until = ""
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "jitter") == 0 {
		s.Jitter = minutes("jitter", 1, 120)
	}
	return s
}

// year has the minutes of a year in a zone.
type year struct {
	loc   *time.Location
	begin int64           // Unix minutes
	date  []time.Time     // midnight of the day of each minute, as UTC; after a repeated midnight, of the day that has begun
	first map[int64]int64 // first minute that shows a wall time; the wall time is in minutes, as UTC
}

// walk reads the clocks of a year and two weeks on each side. It shares no code with the
// engine and uses only package time, minute by minute.
func walk(t testing.TB, zone string, y int) *year {
	t.Helper()
	loc, err := cron.LoadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -14)
	w := &year{loc: loc, begin: from.Unix() / 60, first: make(map[int64]int64, 600_000)}
	var day int64 // minutes
	for m, end := w.begin, from.AddDate(1, 0, 28).Unix()/60; m < end; m++ {
		_, offset := time.Unix(m*60, 0).In(loc).Zone()
		wall := m + int64(offset)/60
		if _, ok := w.first[wall]; !ok {
			w.first[wall] = m
		}
		day = max(day, wall-wall%(24*60))
		w.date = append(w.date, time.Unix(day*60, 0).UTC())
	}
	return w
}

// minute returns the first minute that shows a wall time. In a gap, it is as long after
// the last shown wall time as the given one.
func (w *year) minute(wall time.Time) int64 {
	for back := int64(0); ; back++ {
		if m, ok := w.first[wall.Unix()/60-back]; ok {
			return m + back
		}
	}
}

// held reports whether the schedule includes the date of a minute.
func (w *year) held(m int64, s *apiv1.Schedule, calendars Calendars) bool {
	d := w.date[m-w.begin]
	on := func(name string) bool { return calendars(name).Has(d.Date()) }
	return (len(s.Include) == 0 || slices.ContainsFunc(s.Include, on)) && !slices.ContainsFunc(s.Exclude, on)
}

// times returns the minutes of an every, an at or a daily schedule.
func (w *year) times(t fataler, s *apiv1.Schedule, calendars Calendars) []int64 {
	read := func(d string) int64 {
		v, err := time.ParseDuration(d)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return int64(v / time.Minute)
	}
	moment := func(text string) int64 {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return v.Unix() / 60
	}
	var all []int64
	end := w.begin + int64(len(w.date))
	switch {
	case s.Every != "":
		for m := moment(s.From); m < end; m += read(s.Every) {
			all = append(all, m)
		}
	case s.At != "":
		m := moment(s.At)
		all = append(all, m)
		if s.Zone == "" {
			break
		}
	case s.Daily != nil:
		clock := func(text string) time.Duration {
			v, err := time.Parse("15:04", text)
			if err != nil {
				t.Fatalf("%v", err)
			}
			return v.Sub(v.Truncate(24 * time.Hour))
		}
		from, until := clock(s.Daily.From), clock(s.Daily.Until)
		if until < from {
			until += 24 * time.Hour
		}
		for d := w.date[0].AddDate(0, 0, 3); d.Before(w.date[len(w.date)-1].AddDate(0, 0, -3)); d = d.AddDate(0, 0, 1) {
			if len(s.Daily.Days) > 0 && !slices.Contains(s.Daily.Days, strings.ToLower(d.Weekday().String()[:3])) {
				continue
			}
			first, last, next := w.minute(d.Add(from)), w.minute(d.Add(until)), w.minute(d.AddDate(0, 0, 1).Add(from))
			for m := first; (m <= last || m == first) && m < next; m += read(s.Daily.Every) {
				all = append(all, m)
			}
		}
	}
	return slices.DeleteFunc(all, func(m int64) bool {
		return m < w.begin || m >= end || !w.held(m, s, calendars) || s.From != "" && m < moment(s.From)
	})
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// TestPlanAgainstTheClocks compares random schedules with a walk over the minutes of a
// year with clock changes. It compares a cron line with the same line whose times are
// checked one by one; package cron tests the line itself.
func TestPlanAgainstTheClocks(t *testing.T) {
	calendars := someCalendars(t)
	examples := 25
	if testkit.Long() {
		examples = 1000
	}
	for i, a := range awkward {
		t.Run(strings.ReplaceAll(a.zone, "/", "-"), func(t *testing.T) {
			w := walk(t, a.zone, a.year)
			from := time.Date(a.year, 1, 1, 0, 0, 0, 0, time.UTC)
			until := from.AddDate(1, 0, 0)
			for n := range examples { // fixed seeds, so that a failure repeats
				s := rapid.Custom(func(t *rapid.T) *apiv1.Schedule { return drawSchedule(t, a.zone, a.year) }).Example(i*examples + n)
				p := mustPlan(t, s, calendars)
				var want []time.Time
				if s.Cron != "" {
					want = cronTimes(t, s, w, calendars, from.Add(-dayLength), until)
				} else {
					for _, m := range w.times(t, s, calendars) {
						want = append(want, time.Unix(m*60, 0))
					}
				}
				var shifted []time.Time
				for _, at := range want {
					if at = at.Add(p.shift); !at.Before(from) && at.Before(until) && (s.Until == "" || at.Before(p.until)) {
						shifted = append(shifted, at)
					}
				}
				got, more := p.Between(from, until, 1<<20)
				if more || !slices.EqualFunc(got, shifted, time.Time.Equal) {
					t.Fatalf("%v: %d times, want %d: %s", s, len(got), len(shifted), firstDifference(got, shifted))
				}
				if n := p.count(from, until); n != int64(len(shifted)) {
					t.Fatalf("%v: counts %d times, want %d", s, n, len(shifted))
				}
			}
		})
	}
}

// cronTimes returns the times of the bare line without those on dates that the calendars
// exclude. Only a date that a gap moves over midnight would need the fields of the line,
// and the lines of this test have none.
func cronTimes(t testing.TB, s *apiv1.Schedule, w *year, calendars Calendars, from, until time.Time) []time.Time {
	t.Helper()
	c, err := cron.Parse(s.Cron, w.loc, cron.Options{Gap: cron.GapPolicy(s.Gap), Fold: cron.FoldPolicy(s.Fold)})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(c.Between(from.Add(-1), until, 1<<20), func(at time.Time) bool {
		y, m, d := at.Date()
		on := func(name string) bool { return calendars(name).Has(y, m, d) }
		return s.From != "" && at.Before(instant(t, s.From)) ||
			len(s.Include) > 0 && !slices.ContainsFunc(s.Include, on) || slices.ContainsFunc(s.Exclude, on)
	})
}

func firstDifference(got, want []time.Time) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("lacks %s", want[i])
		case i >= len(want):
			return fmt.Sprintf("has %s too", got[i])
		case !got[i].Equal(want[i]):
			return fmt.Sprintf("the %d-th is %s, want %s", i, got[i], want[i])
		}
	}
	return "none"
}

func BenchmarkAfter(b *testing.B) {
	now := instant(b, "2026-03-08T06:00:00Z")
	for _, c := range []struct {
		name string
		s    *apiv1.Schedule
	}{
		{"every", &apiv1.Schedule{Every: "30s", From: "1971-01-01T00:00:00Z"}},
		{"every on workdays", &apiv1.Schedule{Every: "30s", From: "1971-01-01T00:00:00Z", Include: []string{"workdays"}, Zone: "America/New_York"}},
		{"every 7 days never", &apiv1.Schedule{Every: "168h", From: "1971-01-03T12:00:00Z", Exclude: []string{"weekend"}}},
		{"every second never", &apiv1.Schedule{Every: "1s", From: "1971-01-03T12:00:00Z", Exclude: []string{"all"}}},
		{"cron", &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York"}},
		{"cron on make-up days", &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York", Include: []string{"makeup"}}},
		{"cron never", &apiv1.Schedule{Cron: "30 2 * * *", Zone: "America/New_York", Exclude: []string{"all"}}},
		{"daily", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Every: "1m"}, Zone: "America/New_York"}},
		{"daily on workdays", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Every: "1m"}, Zone: "America/New_York", Include: []string{"workdays"}}},
		{"daily never", &apiv1.Schedule{Daily: &apiv1.Daily{From: "09:00", Every: "1m"}, Zone: "America/New_York", Exclude: []string{"all"}}},
		{"daily over midnight never", &apiv1.Schedule{Daily: &apiv1.Daily{From: "23:00", Until: "01:00"}, Zone: "America/New_York", Exclude: []string{"all"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := mustPlan(b, c.s, someCalendars(b))
			for b.Loop() {
				p.After(now)
			}
		})
	}
}

// FuzzSchedule compiles schedules of any text, and follows the valid ones.
func FuzzSchedule(f *testing.F) {
	f.Add("30 2 * * *", "America/New_York", "", "", "", "", "", "", "", "", "", "", int64(1_772_928_000_000))
	f.Add("", "Asia/Tehran", "", "", "", "", "22:00", "02:00", "7m", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "1h", int64(1_772_928_000_000))
	f.Add("", "", "30s", "", "", "", "", "", "", "", "", "5m", int64(0))
	f.Add("", "", "", "1m", "", "", "", "", "", "", "", "", int64(253_402_300_799_000))
	f.Add("", "", "", "", "2026-04-01T08:00:00+08:00", "", "", "", "", "", "", "", int64(-1))
	f.Add("", "", "", "", "", "8784h", "", "", "", "", "", "", int64(1_772_928_000_000))
	f.Fuzz(func(t *testing.T, line, zone, rate, delay, at, after, dailyFrom, dailyUntil, dailyEvery, from, until, jitter string, ms int64) {
		s := &apiv1.Schedule{Cron: line, Zone: zone, Every: rate, Delay: delay, At: at, After: after, From: from, Until: until, Jitter: jitter}
		if dailyFrom+dailyUntil+dailyEvery != "" {
			s.Daily = &apiv1.Daily{From: dailyFrom, Until: dailyUntil, Every: dailyEvery}
		}
		d := &apiv1.Job{Name: "x", Schedule: s}
		if err := Check(d); err != nil {
			if _, err := NewPlan(d, nil); err == nil {
				t.Fatal("NewPlan takes what is refused")
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("not one line: %q", err)
			}
			return
		}
		p, err := NewPlan(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.UnixMilli(ms % 253_402_300_799_000)
		next, ok := p.First(now)
		for range 3 {
			if !ok {
				return
			}
			if !next.After(now) || next.Nanosecond()%int(time.Millisecond) != 0 || !p.until.IsZero() && !next.Before(p.until) {
				t.Fatalf("%v: %s is planned after %s", s, next, now)
			}
			now = next
			next, ok = p.After(next)
		}
	})
}
