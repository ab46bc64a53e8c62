package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

func TestCalendar(t *testing.T) {
	c := &apiv1.Calendar{
		Name: "cn", Dates: []string{"2026-10-03", "2026-02-28/2026-03-01", "2026-10-01/2026-10-02", "2026-10-02"},
		Yearly: []string{"12-25", "02-29"}, Days: []string{"Sun", "wed"},
	}
	compiled, err := CompileCalendar(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"2026-02-28/2026-03-01", "2026-10-01/2026-10-03"}; !slices.Equal(c.Dates, want) || c.App != naming.DefaultApp {
		t.Errorf("the calendar has become %v, want the dates %v", c, want)
	}
	// Compare each day with the text of the calendar.
	for d := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2030; d = d.AddDate(0, 0, 1) {
		s := d.Format(dateForm)
		want := d.Weekday() == time.Sunday || d.Weekday() == time.Wednesday || s[5:] == "12-25" || s[5:] == "02-29" ||
			s == "2026-02-28" || s == "2026-03-01" || s >= "2026-10-01" && s <= "2026-10-03"
		if got := compiled.Has(d.Date()); got != want {
			t.Errorf("%s %s: %t, want %t", d.Weekday(), s, got, want)
		}
	}
	for _, day := range []int{0, 29, 31, 32, -1} {
		if compiled.Has(2026, 2, day) {
			t.Errorf("there is a %d February 2026", day)
		}
	}
	again, err := CompileCalendar(c)
	if err != nil || !slices.Equal(c.Dates, []string{"2026-02-28/2026-03-01", "2026-10-01/2026-10-03"}) || again.Has(2026, 10, 4) != compiled.Has(2026, 10, 4) {
		t.Errorf("compiled again it is %v, %v", c, err)
	}
}

func TestCalendarSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		c    *apiv1.Calendar
		want string
	}{
		{nil, "the calendar is missing"},
		{&apiv1.Calendar{}, "name is missing"},
		{&apiv1.Calendar{App: "a b", Name: "x"}, "is not a name"},
		{&apiv1.Calendar{Name: "x", Description: strings.Repeat("x", 4097)}, "longer than 4096"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"25.12.2026"}}, "write it as 2026-12-25"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"2026-02-30"}}, "is not a date"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"0000-02-03"}}, "is not a date"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"2026-02-03/"}}, "is not a date"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"2026-12-26/2026-12-24"}}, "write the earlier date first"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"2000-01-01/2027-12-31"}}, "more than 10000"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"0001-01-01/9999-12-31"}}, "more than 10000"},
		{&apiv1.Calendar{Name: "x", Yearly: []string{"2026-12-25"}}, "write it as 12-25"},
		{&apiv1.Calendar{Name: "x", Yearly: []string{"02-30"}}, "is not a day of the year"},
		{&apiv1.Calendar{Name: "x", Days: []string{"Sunday"}}, "write mon, tue"},
		{&apiv1.Calendar{Name: "x", Ics: "hello"}, "ics: line 1"},
		{&apiv1.Calendar{Name: "x", Dates: []string{"2000-01-01/2026-12-31"}, Ics: file("DTSTART:20280101\nDTEND:20290101")}, "it has 10228 dates"},
	} {
		_, err := CompileCalendar(c.c)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v\n want it to say %q", c.c.GetDates(), err, c.want)
		}
	}
}

// file returns an iCalendar file with one event per text.
func file(events ...string) string {
	s := "BEGIN:VCALENDAR\nVERSION:2.0\n"
	for _, e := range events {
		s += "BEGIN:VEVENT\n" + e + "\nEND:VEVENT\n"
	}
	return strings.ReplaceAll(s+"END:VCALENDAR\n", "\n", "\r\n")
}

func TestICS(t *testing.T) {
	for _, c := range []struct {
		name, ics string
		want      string
	}{
		{"one day", file("DTSTART;VALUE=DATE:20261225"), "2026-12-25"},
		{"with its end, the day after", file("UID:a\nDTSTART;VALUE=DATE:20261001\nDTEND;VALUE=DATE:20261004\nSUMMARY:国庆节"), "2026-10-01/2026-10-03"},
		{"an end on the same day", file("DTSTART;VALUE=DATE:20261001\nDTEND;VALUE=DATE:20261001"), "2026-10-01"},
		{"a length", file("DTSTART;VALUE=DATE:20261001\nDURATION:P3D", "DTSTART;VALUE=DATE:20261101\nDURATION:P1W"), "2026-10-01/2026-10-03 2026-11-01/2026-11-07"},
		{"without VALUE", file("DTSTART:20261225"), "2026-12-25"},
		{"folded", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTST\n ART;VALUE=DA\n\tTE:2026\n 1225\nEND:VEVENT\nEND:VCALENDAR", "2026-12-25"},
		{"with a byte order mark and lower case", "\ufeffbegin:vcalendar\nbegin:vevent\ndtstart;value=date:20261225\nend:vevent\nend:vcalendar\n", "2026-12-25"},
		{"a parameter in quotes", file(`DTSTART;X-NOTE="a:b;c";VALUE=DATE:20261225`), "2026-12-25"},
		{"an alarm inside", file("DTSTART;VALUE=DATE:20261225\nBEGIN:VALARM\nDURATION:PT15M\nDTSTART:what\nEND:VALARM"), "2026-12-25"},
		{"events with a time are left out", file("DTSTART:20261224T180000Z\nRRULE:FREQ=SECONDLY", "DTSTART;VALUE=DATE:20261225"), "2026-12-25"},
		{"cancelled", file("DTSTART;VALUE=DATE:20261224\nSTATUS:CANCELLED", "DTSTART;VALUE=DATE:20261225\nSTATUS:CONFIRMED"), "2026-12-25"},
		{"each year", file("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3"), "2026-12-25 2027-12-25 2028-12-25"},
		{"each year, said twice", file("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=2;BYMONTH=12;BYMONTHDAY=25"), "2026-12-25 2027-12-25"},
		{"29 February", file("DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY;COUNT=3"), "2024-02-29 2028-02-29 2032-02-29"},
		{"each second year until a day", file("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=2;UNTIL=20301225"), "2026-12-25 2028-12-25 2030-12-25"},
		{"until a time", file("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;UNTIL=20271225T000000Z"), "2026-12-25 2027-12-25"},
		{"each week", file("DTSTART;VALUE=DATE:20261106\nRRULE:FREQ=WEEKLY;COUNT=2"), "2026-11-06 2026-11-13"},
		{"each second week, two days", file("DTSTART;VALUE=DATE:20261107\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;COUNT=4"), "2026-11-07/2026-11-08 2026-11-21/2026-11-22"},
		{"a week begins on Sunday", file("DTSTART;VALUE=DATE:20261107\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;COUNT=3;WKST=SU"), "2026-11-07 2026-11-15 2026-11-21"},
		{"each third day", file("DTSTART;VALUE=DATE:20261107\nRRULE:FREQ=DAILY;INTERVAL=3;UNTIL=20261113"), "2026-11-07 2026-11-10 2026-11-13"},
		{"without some", file("DTSTART;VALUE=DATE:20261107\nRRULE:FREQ=DAILY;COUNT=5\nEXDATE;VALUE=DATE:20261108,20261110\nEXDATE;VALUE=DATE:20261111"), "2026-11-07 2026-11-09"},
		{"and others", file("DTSTART;VALUE=DATE:20261107\nRDATE;VALUE=DATE:20261109,20261111"), "2026-11-07 2026-11-09 2026-11-11"},
		{"one is moved", file("UID:a\nDTSTART;VALUE=DATE:20261107\nRRULE:FREQ=WEEKLY;COUNT=3", "UID:a\nRECURRENCE-ID;VALUE=DATE:20261114\nDTSTART;VALUE=DATE:20261116", "UID:b\nDTSTART;VALUE=DATE:20261114"), "2026-11-07 2026-11-14 2026-11-16 2026-11-21"},
		{"one is cancelled", file("UID:a\nDTSTART;VALUE=DATE:20261107\nRRULE:FREQ=WEEKLY;COUNT=2", "UID:a\nRECURRENCE-ID;VALUE=DATE:20261114\nDTSTART;VALUE=DATE:20261114\nSTATUS:CANCELLED"), "2026-11-07"},
	} {
		cal := &apiv1.Calendar{Name: "x", Ics: c.ics}
		if _, err := CompileCalendar(cal); err != nil || strings.Join(cal.Dates, " ") != c.want || cal.Ics != "" {
			t.Errorf("%s: %v, %v\n want %s", c.name, cal.Dates, err, c.want)
		}
	}
	endless := &apiv1.Calendar{Name: "x", Ics: file("DTSTART;VALUE=DATE:19701225\nRRULE:FREQ=YEARLY")}
	if _, err := CompileCalendar(endless); err != nil || len(endless.Dates) != 130 || endless.Dates[129] != "2099-12-25" {
		t.Errorf("a rule without an end: %d dates, %v", len(endless.Dates), err)
	}
}

func TestICSSaysWhatIsWrong(t *testing.T) {
	date := "DTSTART;VALUE=DATE:20261107\n"
	for _, c := range []struct{ ics, want string }{
		{"", "it does not begin with BEGIN:VCALENDAR"},
		{"<html>", "it does not begin with BEGIN:VCALENDAR"},
		{strings.Repeat("x", MaxICS+1), "the limit is 1048576 (1 MiB)"},
		{file(), "it holds no all-day event"},
		{file("DTSTART:20261224T180000Z"), "it holds no all-day event"},
		{file("SUMMARY:x"), "line 3: BEGIN: the event has no DTSTART"},
		{file(date + "SUMMARY:x\nDTEND;VALUE=DATE:soon"), `line 6: DTEND: "soon" is not a date: write it as 20261225`},
		{file("DTSTART;VALUE=DATE:20260230"), "line 4: DTSTART: "},
		{file(date + "DTEND;VALUE=DATE:20261106"), "line 5: DTEND: the event ends before it begins"},
		{file(date + "DTEND;VALUE=DATE:20961106"), "the limit is 10000"},
		{file(date + "DURATION:PT3H"), "write it as P2D"},
		{file(date + "RRULE:FREQ=MONTHLY"), `line 5: RRULE: FREQ="MONTHLY" is not understood: use DAILY, WEEKLY or YEARLY`},
		{file(date + "RRULE:FREQ=YEARLY;BYDAY=1MO"), "is not a day of the week: list the dates with RDATE"},
		{file(date + "RRULE:FREQ=YEARLY;BYDAY=MO"), "BYDAY goes with FREQ=WEEKLY only"},
		{file(date + "RRULE:FREQ=YEARLY;BYMONTH=10"), `"BYMONTH=10" is not the month of DTSTART`},
		{file(date + "RRULE:FREQ=YEARLY;BYMONTHDAY=8"), `"BYMONTHDAY=8" is not the day of DTSTART`},
		{file(date + "RRULE:FREQ=DAILY;BYMONTH=11"), "go with FREQ=YEARLY only"},
		{file(date + "RRULE:FREQ=YEARLY;BYSETPOS=1"), `"BYSETPOS=1" is not understood`},
		{file(date + "RRULE:FREQ=YEARLY;COUNT=0"), "is not a number from 1"},
		{file(date + "RRULE:FREQ=YEARLY;INTERVAL=x"), "is not a number from 1"},
		{file(date + "RRULE:FREQ=YEARLY;UNTIL=x"), "is not a date"},
		{file(date + "RRULE:FREQ=YEARLY;COUNT=1\nRRULE:FREQ=DAILY;COUNT=1"), "second rule"},
		{file(date + "EXRULE:FREQ=YEARLY"), "with EXDATE instead"},
		{file(date + "EXDATE:x"), "line 5: EXDATE: "},
		{file(date + "RDATE:20261108/P1D"), "line 5: RDATE: "},
		{file(date + "RECURRENCE-ID;RANGE=THISANDFUTURE:20261107"), "RANGE is not understood"},
		{file(date+"RRULE:FREQ=DAILY;COUNT=9000", date+"RRULE:FREQ=DAILY"), "line 7: BEGIN: with this event there are more than 10000 dates"},
		{"BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + date, `the file ends within "VEVENT"`},
		{"BEGIN:VCALENDAR\nEND:VEVENT\n", `line 2: END: "VEVENT" was not begun`},
		{strings.Repeat("BEGIN:VCALENDAR\n", 9), "nested more than 8 deep"},
	} {
		_, err := readICS(c.ics)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: %v\n want it to say %q", c.ics, err, c.want)
		}
	}
}

func FuzzCalendar(f *testing.F) {
	f.Add("2026-12-24/2026-12-26", "12-25", "sun", file("UID:a\nDTSTART;VALUE=DATE:20261107\nRRULE:FREQ=WEEKLY;COUNT=3;BYDAY=SA,SU\nEXDATE:20261114"))
	f.Add("2026-10-03", "02-29", "MON", file("DTSTART:20240229\nRRULE:FREQ=YEARLY;UNTIL=20400101\nDURATION:P2D", "DTSTART:20261224T180000Z"))
	f.Add("", "", "", file("UID:a\nRECURRENCE-ID:20261114\nDTSTART;VALUE=DATE:20261116\nRDATE:20270101"))
	f.Fuzz(func(t *testing.T, date, yearly, day, ics string) {
		c := &apiv1.Calendar{Name: "x", Dates: []string{date}, Yearly: []string{yearly}, Days: []string{day}, Ics: ics}
		for _, list := range []*[]string{&c.Dates, &c.Yearly, &c.Days} {
			if (*list)[0] == "" {
				*list = nil
			}
		}
		compiled, err := CompileCalendar(c)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("not one line: %q", err)
			}
			return
		}
		dates, err := readDates(c.Dates)
		if err != nil || len(dates) > MaxDates || !slices.IsSorted(dates) {
			t.Fatalf("%d dates, %v", len(dates), err)
		}
		for _, d := range dates {
			if y, m, day := d.date(); !compiled.Has(y, time.Month(m), day) {
				t.Fatalf("%s is not in the calendar", d)
			}
		}
	})
}

func BenchmarkCalendarHas(b *testing.B) {
	c, err := CompileCalendar(&apiv1.Calendar{Name: "x", Dates: []string{"2000-01-01/2026-12-31"}, Yearly: []string{"12-25"}, Days: []string{"sun"}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.Has(2027, 3, 8)
	}
}
