package console

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// calendarBody builds the form of a calendar as a browser sends it.
func calendarBody(t testing.TB, ics string, fields ...string) (contentType, body string) {
	t.Helper()
	b := &bytes.Buffer{}
	m := multipart.NewWriter(b)
	for i := 0; i < len(fields); i += 2 {
		if err := m.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	w, err := m.CreateFormFile("ics", map[bool]string{true: "x.ics"}[ics != ""]) // a browser sends an empty one too
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(ics)); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return m.FormDataContentType(), b.String()
}

const oneEvent = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20300501\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

func TestPutCalendar(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	put := func(ics string, fields ...string) (*http.Response, string) {
		t.Helper()
		contentType, body := calendarBody(t, ics, fields...)
		return s.do(t, "POST", "/apps/default/calendars", strings.NewReader(body), "Content-Type", contentType)
	}
	resp, _ := put(oneEvent, "name", " off ", "description", "days <off>", "dates", "2026-12-24/2026-12-26,\r\n 2027-01-01", "yearly", "05-01\n10-03", "days", "sat", "days", "sun")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/apps/default/calendars/off" {
		t.Fatalf("%s to %q", resp.Status, to)
	}
	c := s.fake.calendars["off"]
	if !slices.Contains(c.Dates, "2030-05-01") || len(c.Dates) < 3 || !slices.Equal(c.Yearly, []string{"05-01", "10-03"}) || !slices.Equal(c.Days, []string{"sat", "sun"}) || c.Description != "days <off>" || c.App != "default" {
		t.Errorf("kept: %v", c)
	}
	_, body := s.do(t, "GET", "/apps/default/calendars/off", nil)
	if !strings.Contains(body, "2030-05-01") || !strings.Contains(body, "days &lt;off&gt;") {
		t.Errorf("the page: %s", body)
	}
	checkPage(t, body)
	// A refused form shows the input again.
	for what, tc := range map[string]struct {
		ics, dates string
		want       string
	}{
		"date":  {"", "2026-13-01", "2026-13-01"},
		"ics":   {"nonsense", "2026-01-01", "ics"},
		"large": {strings.Repeat("x", maxICS+1), "2026-01-01", "larger than 1 MiB"},
	} {
		resp, body := put(tc.ics, "name", "other", "dates", tc.dates, "days", "wed", "description", "<typed>")
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, tc.want) || !strings.Contains(body, "&lt;typed&gt;") ||
			!strings.Contains(body, `value="wed" checked`) || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s: %s %s", what, resp.Status, body)
		}
		checkPage(t, body)
	}
	if resp, body := put(strings.Repeat("x", maxCalendar+1), "name", "other"); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "larger than 2 MiB") {
		t.Errorf("a form that is too large: %s", resp.Status)
	}
	if resp, _ := s.post(t, "/apps/default/calendars", url.Values{"name": {"other"}}.Encode()); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a form of another kind: %s", resp.Status)
	}
	if s.fake.calendars["other"] != nil {
		t.Error("what was refused is kept")
	}
}

func TestDeleteCalendar(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	if resp, _ := s.post(t, "/apps/default/calendars/weekend/delete", ""); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/calendars" || s.fake.calendars["weekend"] != nil {
		t.Errorf("%s to %q", resp.Status, resp.Header.Get("Location"))
	}
	if resp, body := s.post(t, "/apps/default/calendars/holidays/delete", ""); resp.StatusCode < 400 || !strings.Contains(body, "is named by 1 jobs") {
		t.Errorf("one that a job names: %s %s", resp.Status, body)
	}
	for _, path := range []string{"/apps/default/calendars/gone", "/apps/default/calendars/gone/delete"} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestDatesOfACalendar(t *testing.T) {
	today := time.Date(2026, 12, 20, 23, 59, 0, 0, time.UTC)
	for _, tc := range []struct {
		calendar *apiv1.Calendar
		in, out  []string // the first dates of each kind
	}{
		{&apiv1.Calendar{Name: "c", Dates: []string{"2026-12-20", "2026-12-24/2026-12-25"}, Yearly: []string{"02-29"}}, []string{"2026-12-20", "2026-12-24", "2026-12-25", "2028-02-29"}, []string{"2026-12-21", "2026-12-22", "2026-12-23", "2026-12-26"}},
		{&apiv1.Calendar{Name: "c", Days: []string{"sun"}}, []string{"2026-12-20", "2026-12-27"}, []string{"2026-12-21"}},
		{&apiv1.Calendar{Name: "c", Days: []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}}, []string{"2026-12-20", "2026-12-21"}, nil},
		{&apiv1.Calendar{Name: "c", Dates: []string{"2020-01-01"}}, nil, []string{"2026-12-20"}},
	} {
		d, err := newDated(tc.calendar, today)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.In) < len(tc.in) || !slices.Equal(d.In[:len(tc.in)], tc.in) || len(tc.in) == 0 && len(d.In) > 0 {
			t.Errorf("%v holds %q, want %q", tc.calendar, d.In, tc.in)
		}
		if len(d.Out) < len(tc.out) || !slices.Equal(d.Out[:len(tc.out)], tc.out) || len(tc.out) == 0 && len(d.Out) > 0 {
			t.Errorf("%v leaves out %q, want %q", tc.calendar, d.Out, tc.out)
		}
		if len(d.In) > shownDates || len(d.Out) > shownDates {
			t.Errorf("%d and %d dates", len(d.In), len(d.Out))
		}
	}
}

// TestCalendarsCountDays counts the days of ranges, and a day in two ranges once.
func TestCalendarsCountDays(t *testing.T) {
	for want, dates := range map[int][]string{
		0:  {},
		1:  {"2026-01-01"},
		11: {"2026-12-24/2026-12-31", "2027-01-01", "2027-05-01/2027-05-02"},
		5:  {"2026-01-03/2026-01-05", "2026-01-01/2026-01-04", "2026-01-02"},
	} {
		if got := (dated{Calendar: &apiv1.Calendar{Dates: dates}}).DateCount(); got != want {
			t.Errorf("%v: %d, want %d", dates, got, want)
		}
	}
}

func TestYearOfACalendar(t *testing.T) {
	today := time.Date(2026, 3, 5, 23, 59, 0, 0, time.UTC)
	y, err := yearOf(&apiv1.Calendar{Name: "c", Dates: []string{"2026-03-01", "2026-12-31/2027-01-01"}, Yearly: []string{"02-29"}}, "", today)
	if err != nil || y.Year != 2026 || y.Days != 2 {
		t.Fatalf("%d has %d days: %v", y.Year, y.Days, err)
	}
	march := y.Months[2] // the first is a Sunday
	if len(march.Weeks) != 6 || march.Weeks[0][6] != (calendarDay{Number: 1, In: true}) || march.Weeks[0][5].Number != 0 || march.Weeks[1][3] != (calendarDay{Number: 5, Today: true}) || march.Weeks[5][1].Number != 31 || march.Weeks[5][2].Number != 0 {
		t.Errorf("%+v", march)
	}
	if y, err = yearOf(&apiv1.Calendar{Name: "c", Yearly: []string{"02-29"}}, "2028", today); err != nil || y.Months[1].Days != 1 || len(y.Others()) != 2 {
		t.Errorf("%+v %v", y.Months[1], err)
	}
	for _, text := range []string{"1969", "10000", "x", "-1"} {
		if _, err := yearOf(&apiv1.Calendar{Name: "c"}, text, today); err == nil {
			t.Errorf("%q is a year", text)
		}
	}
	if y, err := yearOf(&apiv1.Calendar{Name: "c"}, "9999", today); err != nil || len(y.Others()) != 1 {
		t.Errorf("%v %v", y.Others(), err)
	}
}
