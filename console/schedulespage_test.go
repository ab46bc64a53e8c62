package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestSchedulesPage: the page counts the planned times of a window, says when each job is planned
// after it, and leaves out paused jobs.
func TestSchedulesPage(t *testing.T) {
	f := newFake()
	f.calendars = map[string]*apiv1.Calendar{"off": {App: "default", Name: "off", Dates: []string{"2027-03-09"}}}
	for _, j := range []*apiv1.Job{
		{Name: "often", Schedule: &apiv1.Schedule{Cron: "* * * * * *"}},
		{Name: "daily", Schedule: &apiv1.Schedule{Cron: "0 12 * * *", Exclude: []string{"off"}}},
		{Name: "twice", Schedule: &apiv1.Schedule{Cron: "0 10,11 * * *"}},
		{Name: "later", Schedule: &apiv1.Schedule{At: "2027-04-01T00:00:00Z"}},
		{Name: "paused", Schedule: &apiv1.Schedule{Cron: "* * * * *"}, Paused: proto.Bool(true)},
		{Name: "manual"},
	} {
		j.App = "default"
		f.jobs = append(f.jobs, j)
	}
	s := newSite(t, f).signIn(t)
	for _, lang := range []string{"en", "zh"} {
		_, body := s.do(t, "GET", "/apps/default/schedules?from=2027-03-09T09:00&to=2027-03-09T13:00", nil, "Accept-Language", lang)
		checkPage(t, body)
		for _, want := range []string{`id="plan-often"`, "14\u202f400", `id="plan-twice"`, "2027-03-10T10:00:00Z"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page lacks %s", lang, want)
			}
		}
		for _, not := range []string{`id="plan-daily"`, `id="plan-later"`, `id="plan-paused"`, `id="plan-manual"`} { // a calendar excludes that day
			if strings.Contains(body, not) {
				t.Errorf("%s: the page has %s", lang, not)
			}
		}
	}
	_, body := s.do(t, "GET", "/apps/default/schedules?from=2027-03-08T00:00&to=2027-03-09T00:00", nil)
	if !strings.Contains(body, `id="plan-daily"`) || !strings.Contains(body, "2027-03-10T12:00:00Z") {
		t.Error("the page lacks the daily job, or the first time after the window and the calendar")
	}
	for query, want := range map[string]string{"from=2027-03-09T09:00&to=2027-03-09T09:00": "before it begins", "from=2027-03-09T09:00&to=2027-06-09T09:00": "longer than 31 days", "from=soon": "is not a time"} {
		resp, body := s.do(t, "GET", "/apps/default/schedules?"+query, nil)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %q", query, resp.Status, want)
		}
	}
}

// BenchmarkSchedules plans a day of 500 jobs, as one page does.
func BenchmarkSchedules(b *testing.B) {
	from := time.Date(2027, 3, 9, 0, 0, 0, 0, time.UTC)
	var jobs []*apiv1.Job
	for i := range plannedJobs {
		jobs = append(jobs, &apiv1.Job{Name: fmt.Sprint("j", i), Schedule: &apiv1.Schedule{Cron: fmt.Sprintf("0 */%d * * * *", 5+i%50), Zone: "Europe/Berlin"}})
	}
	for b.Loop() {
		p := planning{from: from, to: from.Add(24 * time.Hour)}
		for _, j := range jobs {
			if _, ok := p.plan(j); !ok {
				b.Fatal(j.Name)
			}
		}
	}
}
