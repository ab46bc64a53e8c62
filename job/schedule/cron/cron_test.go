package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustParse(t testing.TB, expr string, loc *time.Location, opt Options) *Schedule {
	t.Helper()
	s, err := Parse(expr, loc, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func format(times []time.Time) []string {
	var out []string
	for _, at := range times {
		out = append(out, at.Format(time.RFC3339))
	}
	return out
}

// far is later than all instants that the tests expect.
var far = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	tests := []struct {
		name, expr, zone, from string
		opt                    Options
		want                   []string
	}{
		{
			"issue example", "30 2 * * *", "America/New_York", "2026-03-08T00:00:00-05:00",
			Options{},
			[]string{"2026-03-08T03:30:00-04:00", "2026-03-09T02:30:00-04:00"},
		},
		{
			"quartz five minutes", "0 */5 * * * *", "Asia/Shanghai", "2026-01-01T00:03:00+08:00",
			Options{},
			[]string{"2026-01-01T00:05:00+08:00", "2026-01-01T00:10:00+08:00"},
		},
		{
			"seconds", "*/20 * * * * *", "", "2026-01-01T00:00:00.5Z",
			Options{},
			[]string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"},
		},
		{"strictly after", "0 0 * * *", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-02T00:00:00Z"}},
		{
			"year", "0 0 0 1 1 ? 2027,2030", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2027-01-01T00:00:00Z", "2030-01-01T00:00:00Z"},
		},
		{
			"year step", "0 0 0 1 1 ? 2196/2", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2196-01-01T00:00:00Z", "2198-01-01T00:00:00Z"},
		},
		{
			"L", "0 0 0 L * ?", "", "2027-01-31T00:00:00Z",
			Options{},
			[]string{"2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z", "2027-04-30T00:00:00Z"},
		},
		{"L-3", "0 0 0 L-3 * ?", "", "2028-02-01T00:00:00Z", Options{}, []string{"2028-02-26T00:00:00Z", "2028-03-28T00:00:00Z"}},
		{"LW", "0 0 0 LW * ?", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-31T00:00:00Z"}},
		{"L-2W", "0 0 0 L-2W * ?", "", "2026-08-01T00:00:00Z", Options{}, []string{"2026-08-28T00:00:00Z"}},
		{"15W on Sunday", "0 0 0 15W * ?", "", "2026-02-01T00:00:00Z", Options{}, []string{"2026-02-16T00:00:00Z"}},
		{"15W on Saturday", "0 0 0 15W * ?", "", "2026-08-01T00:00:00Z", Options{}, []string{"2026-08-14T00:00:00Z"}},
		{"1W on Saturday stays in the month", "0 0 0 1W * ?", "", "2026-07-31T00:00:00Z", Options{}, []string{"2026-08-03T00:00:00Z"}},
		{"31W on Sunday stays in the month", "0 0 0 31W * ?", "", "2026-05-01T00:00:00Z", Options{}, []string{"2026-05-29T00:00:00Z", "2026-07-31T00:00:00Z"}},
		{
			"list of rules", "0 0 0 1,15W,L * ?", "", "2026-02-01T00:00:00Z",
			Options{},
			[]string{"2026-02-16T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"},
		},
		{"third Thursday, quartz", "0 0 0 ? * 5#3", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-15T00:00:00Z"}},
		{"third Friday, unix", "0 0 * * 5#3", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-16T00:00:00Z"}},
		{"fifth Friday", "0 0 * * FRI#5", "", "2026-02-01T00:00:00Z", Options{}, []string{"2026-05-29T00:00:00Z"}},
		{"last Friday", "0 0 * * 5L", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"}},
		{"last Friday, quartz", "0 0 0 ? * 6L", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-30T00:00:00Z"}},
		{"L alone, quartz", "0 0 0 ? * L", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-03T00:00:00Z"}},
		{"29 Feb", "0 0 29 2 *", "", "2024-02-29T00:00:00Z", Options{}, []string{"2028-02-29T00:00:00Z"}},
		{"29 Feb over 2100", "0 0 29 2 *", "", "2096-02-29T00:00:00Z", Options{}, []string{"2104-02-29T00:00:00Z"}},
		{"29 Feb on a weekend over 2100", "0 0 29 2 */6", "", "2088-03-01T00:00:00Z", Options{}, []string{"2116-02-29T00:00:00Z"}},
		{"last Sunday is unix 7", "0 0 * * 7L", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-25T00:00:00Z"}},
		{
			"wrapped weekdays", "0 0 * * FRI-MON", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-09T00:00:00Z"},
		},
		{
			"weekdays to seven", "0 0 * * 5-7", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-09T00:00:00Z"},
		},
		{
			"wrapped hours", "0 22-2/2 * * *", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2026-01-01T02:00:00Z", "2026-01-01T22:00:00Z", "2026-01-02T00:00:00Z"},
		},
		{
			"wrapped months", "0 0 1 NOV-jan *", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		},
		{
			"either day", "0 0 13 * 5", "", "2026-01-01T00:00:00Z",
			Options{},
			[]string{"2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"},
		},
		{"both days after a starred step", "0 0 */2 * 1", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-05T00:00:00Z", "2026-01-19T00:00:00Z"}},
		{"nickname", "@weekly", "", "2026-01-01T00:00:00Z", Options{}, []string{"2026-01-04T00:00:00Z"}},
		{"nickname, quartz", "@weekly", "", "2026-01-01T00:00:00Z", Options{Dialect: DialectQuartz}, []string{"2026-01-04T00:00:00Z"}},

		{"gap shift", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00", Options{Gap: GapShift}, []string{"2026-03-08T03:30:00-04:00"}},
		{"gap skip", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00", Options{Gap: GapSkip}, []string{"2026-03-09T02:30:00-04:00"}},
		{
			"hourly over the gap", "0 * * * *", "America/New_York", "2026-03-08T00:30:00-05:00",
			Options{},
			[]string{"2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00"},
		},
		{
			"shifted run meets another", "30 2,3 * * *", "America/New_York", "2026-03-08T00:00:00-05:00",
			Options{},
			[]string{"2026-03-08T03:30:00-04:00", "2026-03-09T02:30:00-04:00"},
		},
		{
			"fold first", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			Options{},
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			"fold second", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			Options{Fold: FoldSecond},
			[]string{"2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			"fold both", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			Options{Fold: FoldBoth},
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			"hourly over the overlap", "0 * * * *", "America/New_York", "2026-11-01T00:30:00-04:00",
			Options{},
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"},
		},
		{"half-hour gap", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", Options{}, []string{"2026-10-04T02:45:00+11:00"}},
		{
			"half-hour overlap", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
			Options{},
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		},
		{
			"midnight gap", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
			Options{},
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		{"London gap", "30 1 * * *", "Europe/London", "2026-03-28T12:00:00Z", Options{}, []string{"2026-03-29T02:30:00+01:00"}},
		{"Tehran midnight gap", "30 0 * * *", "Asia/Tehran", "2022-03-21T12:00:00+03:30", Options{}, []string{"2022-03-22T01:30:00+04:30"}},
		{
			"Casablanca falls back for Ramadan", "30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00:00+01:00",
			Options{},
			[]string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z"},
		},
		{"two-hour gap", "30 1 * * *", "Antarctica/Troll", "2026-03-28T12:00:00Z", Options{}, []string{"2026-03-29T03:30:00+02:00"}},
		{
			"missing day", "0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00-10:00",
			Options{},
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00", "2012-01-01T12:00:00+14:00"},
		},
		{
			"only the missing day", "0 0 12 30 12 ? 2011", "Pacific/Apia", "2011-01-01T00:00:00-11:00",
			Options{},
			[]string{"2011-12-31T12:00:00+14:00"},
		},
		{"Shanghai 1986", "30 2 * * *", "Asia/Shanghai", "1986-05-03T12:00:00+08:00", Options{}, []string{"1986-05-04T03:30:00+09:00"}},
		{"rule years", "30 2 * * *", "America/New_York", "2500-03-13T12:00:00-05:00", Options{}, []string{"2500-03-14T03:30:00-04:00"}},
		{
			"31 December of a leap year", "0 * * * *", "America/New_York", "2040-12-30T23:30:00Z",
			Options{},
			[]string{"2040-12-30T19:00:00-05:00", "2040-12-30T20:00:00-05:00"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustParse(t, tt.expr, zone(t, tt.zone), tt.opt)
			got := format(s.Between(instant(t, tt.from), far, len(tt.want)))
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s after %s:\n got %v\nwant %v", tt.expr, tt.from, got, tt.want)
			}
		})
	}
}

func TestNextEnds(t *testing.T) {
	ny := zone(t, "America/New_York")
	tests := []struct {
		name, expr, after string
		opt               Options
		last              string
	}{
		{"past year", "0 0 0 1 1 ? 2020", "2026-01-01T00:00:00Z", Options{}, "2020-01-01T00:00:00-05:00"},
		{"always in the gap", "0 30 2 ? 3 1#2", "2026-01-01T00:00:00Z", Options{Gap: GapSkip}, "2006-03-12T02:30:00-05:00"},
		{"interval always in the gap", "0 30 2/23 ? 3 1#2", "2026-01-01T00:00:00Z", Options{}, "2006-03-12T02:30:00-05:00"},
		{"end of time", "0 0 0 1 1 ?", "9999-12-01T00:00:00Z", Options{}, "9999-01-01T00:00:00-05:00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustParse(t, tt.expr, ny, tt.opt)
			after := instant(t, tt.after)
			if next, ok := s.Next(after); ok {
				t.Errorf("Next(%s) = %s, want none", tt.after, next)
			}
			if prev, ok := s.Prev(after); !ok || prev.Format(time.RFC3339) != tt.last {
				t.Errorf("Prev(%s) = %s, %t, want %s", tt.after, prev, ok, tt.last)
			}
		})
	}
	s := mustParse(t, "0 0 * * *", ny, Options{})
	if first, ok := s.Next(time.Time{}.AddDate(-5, 0, 0)); !ok || first.UTC().Year() != 1 {
		t.Errorf("Next before year 1 = %s, %t, want a time in year 1", first, ok)
	}
	if prev, ok := s.Prev(time.Time{}); ok {
		t.Errorf("Prev of year 1 = %s, want none", prev)
	}
	if last, ok := s.Prev(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok || last.Year() != 9999 {
		t.Errorf("Prev after year 9999 = %s, %t, want a time in year 9999", last, ok)
	}
}

func TestBetween(t *testing.T) {
	s := mustParse(t, "0 * * * *", nil, Options{})
	from, to := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-01T03:00:00Z")
	want := []string{"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"}
	if got := format(s.Between(from, to, 10)); !slices.Equal(got, want) {
		t.Errorf("Between = %v, want %v", got, want)
	}
	if got := format(s.Between(from, to, 2)); !slices.Equal(got, want[:2]) {
		t.Errorf("Between, limit 2 = %v, want %v", got, want[:2])
	}
	if got := s.Between(from, to, 0); got != nil {
		t.Errorf("Between, limit 0 = %v, want none", got)
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		expr string
		opt  Options
		want string // part of the message
	}{
		{"", Options{}, "it is empty"},
		{"* * * *", Options{}, "4 fields"},
		{"* * * * * * * *", Options{}, "8 fields"},
		{"* * * * *", Options{Dialect: DialectQuartz}, "it has 5 fields, the quartz dialect has 6 or 7"},
		{"0 * * * * *", Options{Dialect: DialectUnix}, "it has 6 fields, the unix dialect has 5"},
		{"* * * * *", Options{Dialect: "vixie"}, `unknown dialect "vixie"`},
		{"* * * * *", Options{Gap: "jump"}, `unknown gap policy "jump"`},
		{"* * * * *", Options{Fold: "none"}, `unknown fold policy "none"`},
		{"61 * * * *", Options{}, "minute: 61 is out of range, allowed are 0-59"},
		{"0 24 * * *", Options{}, "hour: 24 is out of range, allowed are 0-23"},
		{"0 0 0 * *", Options{}, "day of month: 0 is out of range, allowed are 1-31"},
		{"0 0 * 13 *", Options{}, "month: 13 is out of range, allowed are 1-12 or JAN-DEC"},
		{"0 0 * * 8", Options{}, "day of week: 8 is out of range, allowed are 0-7 or SUN-SAT"},
		{"0 0 0 ? * 0", Options{}, "day of week: 0 is out of range, allowed are 1-7 or SUN-SAT"},
		{"0 0 0 1 1 ? 1969", Options{}, "year: 1969 is out of range, allowed are 1970-2199"},
		{"0 0 0 1 1 ? 2030-2027", Options{}, "runs backwards"},
		{"60 * * * * *", Options{}, "second: 60 is out of range"},
		{"x * * * *", Options{}, `minute: "X" is not a value, allowed are 0-59`},
		{"1, * * * *", Options{}, "minute: an item of the list is empty"},
		{"-1 * * * *", Options{}, `minute: "" is not a value`},
		{"*/0 * * * *", Options{}, `minute: step "0"`},
		{"*/60 * * * *", Options{}, "allowed are 1-59"},
		{"1/2/3 * * * *", Options{}, "minute: step"},
		{"? * * * *", Options{}, "minute: \"?\" is not allowed"},
		{"0 0 ?,3 * *", Options{}, "? is the whole field"},
		{"0 0 ? * ?", Options{}, "? is in both day fields"},
		{"0 0 0 13 * 6", Options{}, "write ? in one of them"},
		{"0 0 30 2 *", Options{}, "day of month: 30 never occurs in February, which has at most 29 days"},
		{"0 0 31 4,6,9,11 *", Options{}, "31 never occurs in April, June, September and November"},
		{"0 0 0 30 2 ?", Options{}, "30 never occurs in February"},
		{"0 0 0 31W 2 ?", Options{}, "31W never occurs in February"},
		{"0 0 0 L-29 2 ?", Options{}, "L-29 never occurs in February"},
		{"0 0 0 29 2 ? 2027", Options{}, "no date in year 2027 has day 29 in February"},
		{"0 0 L-31 * *", Options{}, `"L-31" is not a day`},
		{"0 0 32W * *", Options{}, `"32W" is not a day`},
		{"0 0 W * *", Options{}, `"W" is not a day`},
		{"0 0 -3W * *", Options{}, `"-3W" is not a day`},
		{"0 0 * * 1#6", Options{}, `position "6"`},
		{"0 0 * * 9L", Options{}, "9 is out of range"},
		{"0 0 * * L", Options{}, "L needs a weekday"},
		{"H(5-2) * * * *", Options{}, "must ascend"},
		{"H(5) * * * *", Options{}, "is not a hash"},
		{"H(0-5)/7 * * * *", Options{}, "step 7 is larger"},
		{"0 0 0 1 1 ? H", Options{}, "a hash (H) is not allowed"},
		{"@every 90s", Options{}, "use `schedule: {every: 90s}` instead"},
		{"@every", Options{}, "use `schedule: {every: 90s}` instead"},
		{"@reboot", Options{}, "unknown nickname @reboot"},
		{"TZ=UTC 0 0 * * *", Options{}, "a zone is not part of the expression"},
		{strings.Repeat("1,", 300) + "1 * * * *", Options{}, "at most 512"},
		{"99999999999999999999 * * * *", Options{}, "is not a value"},
	}
	for _, tt := range tests {
		s, err := Parse(tt.expr, nil, tt.opt)
		if err == nil {
			t.Errorf("Parse(%q) = %s, want an error with %q", tt.expr, s, tt.want)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q): %q\nwant it to contain %q", tt.expr, err, tt.want)
		}
	}
}

func TestString(t *testing.T) {
	tests := []struct{ expr, want string }{
		{"0 */5 * * * *", "0 */5 * * * ?"},
		{"0 0/5 * ? * MON-FRI", "0 */5 * ? * 2-6"},
		{"0 0 * * MON,TUE,WED,7", "0 0 * * 0-3"},
		{"5,1,3 0-23 1-31 * FRIL,MON#2", "1-5/2 0-23 1-31 * 1#2,5L"},
		{"0 3/8 L,LW,L-3,15W * ?", "0 3/8 15W,L,L-3,LW * *"},
		{"0 22-2 * * *", "0 0-2,22,23 * * *"},
		{"*,5 */6,3 * * *", "* */6,3 * * *"},
		{"0 0 0 L * ? 2027-2030", "0 0 0 L * ? 2027-2030"},
		{"0 0 0 *,L * ? *", "0 0 0 * * ?"},
		{"@monthly", "0 0 1 * *"},
	}
	for _, tt := range tests {
		if got := mustParse(t, tt.expr, nil, Options{}).String(); got != tt.want {
			t.Errorf("%q prints as %q, want %q", tt.expr, got, tt.want)
		}
	}
}

func TestIntervalLike(t *testing.T) {
	tests := map[string]bool{
		"* * * * *": true, "0 * * * *": true, "0 */2 * * *": true, "0 3/8 * * *": true, "0 H/4 * * *": true,
		"0 0-23 * * *": false, "*/5 2 * * *": false, "0 1,2 * * *": false, "H H * * *": false, "0 0-22/2 * * *": false,
	}
	for expr, want := range tests {
		if got := mustParse(t, expr, nil, Options{}).IntervalLike(); got != want {
			t.Errorf("%q: interval-like %t, want %t", expr, got, want)
		}
	}
}

func TestHash(t *testing.T) {
	minutes := map[string]bool{}
	for job := range 200 {
		opt := Options{Seed: fmt.Sprintf("default/job-%d", job)}
		s := mustParse(t, "H H(9-17) H * H", nil, opt)
		if again := mustParse(t, "H H(9-17) H * H", nil, opt); again.String() != s.String() {
			t.Fatalf("seed %q gives %s, then %s", opt.Seed, s, again)
		}
		f := strings.Fields(s.String())
		minutes[f[0]] = true
		if hours := s.calendar.hours; hours.first() < 9 || hours.last() > 17 {
			t.Errorf("H(9-17) chose %s", f[1])
		}
		if s.calendar.days.last() > 28 {
			t.Errorf("H chose day of month %s, which some months lack", f[2])
		}
		steps := mustParse(t, "H/15 H(0-10)/4 * * *", nil, opt).calendar
		if n := len(members(steps.minutes)); n != 4 {
			t.Errorf("H/15 gave %d minutes, want 4", n)
		}
		if n := len(members(steps.hours)); n < 2 || n > 3 {
			t.Errorf("H(0-10)/4 gave %d hours, want 2 or 3", n)
		}
	}
	if len(minutes) < 50 {
		t.Errorf("200 jobs share %d minutes, want them spread over at least 50", len(minutes))
	}
	// The hash must never change: that would move the planned times of jobs.
	if got, want := mustParse(t, "H H H * *", nil, Options{Seed: "default/totals"}).String(), "54 20 6 * *"; got != want {
		t.Errorf("H H H of default/totals = %q, want %q", got, want)
	}
}

func members(s set) []int {
	var out []int
	for n := s.next(0); n >= 0; n = s.next(n + 1) {
		out = append(out, n)
	}
	return out
}

func TestExplain(t *testing.T) {
	tests := []struct{ expr, en, zh string }{
		{"30 2 * * *", "At 02:30, every day (UTC)", "每天 02:30（UTC）"},
		{"* * * * * *", "Every second, every day (UTC)", "每天 每秒（UTC）"},
		{"*/5 * * * *", "Every 5 minutes, every day (UTC)", "每天 每5分钟（UTC）"},
		{"0 * * * *", "At minute 0, every hour, every day (UTC)", "每天 每小时的第0分（UTC）"},
		{"30 9-17 * * MON-FRI", "At minute 30, in hour 9-17, on Monday to Friday (UTC)", "周一至周五 第9至17时的第30分（UTC）"},
		{"0 9,17 1,15 * *", "At 09:00 and 17:00, on day 1 and day 15 of the month (UTC)", "每月1日、15日 09:00、17:00（UTC）"},
		{"0 0 L 3 *", "At 00:00, on the last day of the month, in March (UTC)", "3月 每月最后一天 00:00（UTC）"},
		{"0 0 * * 5L", "At 00:00, on the last Friday of the month (UTC)", "当月最后一个周五 00:00（UTC）"},
		{"0 0 13 * FRI", "At 00:00, on day 13 of the month or on Friday (UTC)", "每月13日或周五 00:00（UTC）"},
		{
			"15 30 9 LW * ? 2027-2030", "At 09:30:15, on the last Monday-to-Friday day of the month, in 2027-2030 (UTC)",
			"2027-2030年 每月最后一个工作日（周一至周五） 09:30:15（UTC）",
		},
		{
			"0 3/8 */2 * 1", "At minute 0, every 8 hours from hour 3, every 2 days of the month from day 1 if it is also on Monday (UTC)",
			"每月1日起每2天且为周一 从3时起每8小时的第0分（UTC）",
		},
	}
	for _, tt := range tests {
		s := mustParse(t, tt.expr, nil, Options{})
		if got := s.Explain("en"); got != tt.en {
			t.Errorf("Explain(en) of %q:\n got %s\nwant %s", tt.expr, got, tt.en)
		}
		if got := s.Explain("zh-CN"); got != tt.zh {
			t.Errorf("Explain(zh) of %q:\n got %s\nwant %s", tt.expr, got, tt.zh)
		}
	}
}

func TestLint(t *testing.T) {
	tests := []struct {
		expr, zone string
		opt        Options
		want       []string
	}{
		{"30 2 * * *", "America/New_York", Options{}, []string{
			"on 2026-03-08 the clocks in America/New_York go from 02:00:00 to 03:00:00, so 02:30:00 does not exist: that run fires at 2026-03-08T03:30:00-04:00",
		}},
		{"30 2 * * *", "America/New_York", Options{Gap: GapSkip}, []string{
			"on 2026-03-08 the clocks in America/New_York go from 02:00:00 to 03:00:00, so 02:30:00 does not exist: that run is skipped",
		}},
		{"30 2,3 * * *", "America/New_York", Options{}, []string{
			"on 2026-03-08 the clocks in America/New_York go from 02:00:00 to 03:00:00, so 02:30:00 does not exist: that run fires at 2026-03-08T03:30:00-04:00",
			"on 2026-03-08 the runs of 02:30:00 and 03:30:00 are less than a second apart and fire once",
		}},
		{"30 * * * *", "America/New_York", Options{}, nil},
		{"30 4 * * *", "America/New_York", Options{}, nil},
		{"30 2 * * *", "", Options{}, nil},
		{"0 0 0 1 1 ? 2020", "", Options{}, []string{"it never fires again, the last time was 2020-01-01T00:00:00Z"}},
		{"0 0 30 2 1", "", Options{}, []string{"day of month 30 never occurs in February, only the day of week 1 fires"}},
	}
	for _, tt := range tests {
		got := mustParse(t, tt.expr, zone(t, tt.zone), tt.opt).Lint(instant(t, "2026-01-01T00:00:00Z"))
		if !slices.Equal(got, tt.want) {
			t.Errorf("Lint of %q in %q:\n got %q\nwant %q", tt.expr, tt.zone, got, tt.want)
		}
	}
}

func TestLoadZone(t *testing.T) {
	for name, want := range map[string]string{"": "UTC", "UTC": "UTC", "Asia/Shanghai": "Asia/Shanghai", "Antarctica/Troll": "Antarctica/Troll"} {
		if got := zone(t, name).String(); got != want {
			t.Errorf("LoadZone(%q) = %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"Local": "depends on the machine", "localtime": "depends on the machine", "right/UTC": "not a zone name",
		"Asia/Shangai": "did you mean Asia/Shanghai?", "asia/shanghai": "did you mean Asia/Shanghai?",
		"Shanghai": "did you mean Asia/Shanghai?", "Beijing": "did you mean Asia/Shanghai?",
		"New York": "did you mean America/New_York?", "America/NewYork": "did you mean America/New_York?",
		"PST": "did you mean America/Los_Angeles?", "UTC+8": "did you mean Asia/Shanghai?",
		"Mars/Olympus_Mons": "there is no such zone, give a name such as", "../../etc/passwd": "there is no such zone",
		"a\x00b": "there is no such zone", strings.Repeat("x", 1000): "not a zone name",
	} {
		loc, err := LoadZone(name)
		if err == nil {
			t.Errorf("LoadZone(%q) = %s, want an error with %q", name, loc, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("LoadZone(%q): %q\nwant it to contain %q", name, err, want)
		}
	}
}

// TestZoneSegments checks the assumptions of zone.go about every zone: segments adjoin,
// advance, and are longer than the gaps next to them.
func TestZoneSegments(t *testing.T) {
	from := time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(2110, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for name := range strings.Lines(zoneNames) {
		name = strings.TrimSpace(name)
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Errorf("zones.txt lists %s: %v", name, err)
			continue
		}
		changed := int64(minInstant)
		for at := from; at < to; {
			g := segmentAt(loc, at)
			if g.start > at || g.end <= at {
				t.Fatalf("%s at %d: segment %+v does not contain it", name, at, g)
			}
			if g.after != g.offset {
				if jump := max(g.after-g.offset, g.offset-g.after); g.end-changed <= max(jump, farOffset) || jump > farOffset {
					t.Fatalf("%s: change of %d s at %d follows the one at %d too closely", name, jump, g.end, changed)
				}
				changed = g.end
			}
			at = g.end
		}
	}
}

func TestCivilConversions(t *testing.T) {
	day := time.Date(0, 12, 1, 0, 0, 0, 0, time.UTC)
	for n := day.Unix() / secondsPerDay; day.Year() < 2810; n, day = n+1, day.AddDate(0, 0, 1) {
		y, m, d := civil(n)
		if y != day.Year() || m != int(day.Month()) || d != day.Day() {
			t.Fatalf("civil(%d) = %d-%d-%d, want %s", n, y, m, d, day)
		}
		if got := dayNumber(y, m, d); got != n {
			t.Fatalf("dayNumber(%d, %d, %d) = %d, want %d", y, m, d, got, n)
		}
		if got := weekday(n); got != int(day.Weekday()) {
			t.Fatalf("weekday(%d) = %d, want %s", n, got, day.Weekday())
		}
	}
}
