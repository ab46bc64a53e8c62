package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestAgendaHours: a day has its hours as the clocks of its zone show them.
func TestAgendaHours(t *testing.T) {
	for _, tt := range []struct {
		zone, day string
		hours     int
		changed   string // the hours that begin after a change of clocks
	}{
		{"UTC", "2027-03-28", 24, ""},
		{"Europe/Berlin", "2027-03-28", 23, "03:00 CEST +01:00 +02:00"},
		{"Europe/Berlin", "2027-10-31", 25, "02:00 CET +02:00 +01:00"},
		{"Australia/Lord_Howe", "2027-10-03", 24, "02:30 +11 +10:30 +11:00"},
		{"Asia/Kolkata", "2027-03-28", 24, ""},
		{"America/Santiago", "2027-09-05", 23, "01:00 -03 -04:00 -03:00"}, // it has no midnight
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{URL: &url.URL{RawQuery: "day=" + tt.day}}
		a, err := agendaOf(r, zone, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var changed []string
		for i, h := range a.Hours {
			if h.From != "" {
				changed = append(changed, h.Clock()+" "+h.From+" "+h.To)
			}
			if !h.Start.Before(h.End) || i > 0 && !h.Start.Equal(a.Hours[i-1].End) || h.Start.Format(time.DateOnly) != tt.day {
				t.Errorf("%s %s: hour %d is %v to %v", tt.zone, tt.day, i, h.Start, h.End)
			}
		}
		if len(a.Hours) != tt.hours || strings.Join(changed, ", ") != tt.changed {
			t.Errorf("%s %s: %d hours, changed %q; want %d, %q", tt.zone, tt.day, len(a.Hours), changed, tt.hours, tt.changed)
		}
	}
}

// TestAgenda: each hour has the first jobs with their times, and the number of the others leads to the hour.
func TestAgenda(t *testing.T) {
	f := newFake()
	for _, j := range []*apiv1.Job{
		{Name: "often", Schedule: &apiv1.Schedule{Cron: "* * * * * *"}},
		{Name: "daily", Schedule: &apiv1.Schedule{Cron: "30 12 * * *"}},
		{Name: "twice", Schedule: &apiv1.Schedule{Cron: "5,35 10 * * *"}},
	} {
		j.App = "default"
		f.jobs = append(f.jobs, j)
	}
	for i := range agendaJobs + 3 {
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: fmt.Sprintf("night-%02d", i), Schedule: &apiv1.Schedule{Cron: "15 3 * * *"}})
	}
	s := newSite(t, f).signIn(t)
	for _, lang := range []string{"en", "zh"} {
		_, body := s.do(t, "GET", "/apps/default/schedules?day=2027-03-09", nil, "Accept-Language", lang)
		checkPage(t, body)
		for _, want := range []string{
			`<time datetime="2027-03-09T12:30:00Z">12:30:00</time> <a href="/apps/default/jobs/daily">`, `>10:05:00</time> <a href="/apps/default/jobs/twice">twice</a> <span class="hint">×2<`,
			"×3\u202f600", "night-08", "from=2027-03-09T03%3A00%3A00Z&amp;to=2027-03-09T04%3A00%3A00Z", "day=2027-03-08", "day=2027-03-10",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page lacks %s", lang, want)
			}
		}
		for _, not := range []string{"night-09", `id="plan-`} { // often is the first of that hour
			if strings.Contains(body, not) {
				t.Errorf("%s: the page has %s", lang, not)
			}
		}
		if n := strings.Count(body, `T03:15:00Z">`); n != agendaJobs-1 {
			t.Errorf("%s: %d jobs at 03:15, want %d", lang, n, agendaJobs-1)
		}
	}
	_, body := s.do(t, "GET", "/apps/default/schedules?day=2027-10-31", nil, "Cookie", "wheelwork_zone=Europe/Berlin")
	checkPage(t, body)
	if strings.Count(body, `class="shift"`) != 1 || !strings.Contains(body, "02:00 CET") {
		t.Error("the page does not tell the change of clocks")
	}
	if resp, body := s.do(t, "GET", "/apps/default/schedules?day=soon", nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "is not a day") {
		t.Errorf("no day: %s", resp.Status)
	}
}
