package console

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const (
	// maxICS is the API's limit for an iCalendar file, and maxCalendar bounds the whole
	// form: ten thousand dates are 220 KiB.
	maxICS      = 1 << 20
	maxCalendar = maxICS + 1<<20
	// shownDates is the number of dates of each kind on a page, and dateYears is how far
	// ahead the page looks for them.
	shownDates = 12
	dateYears  = 10
)

// dated is a calendar with the next days that it holds, and the next that it does not.
type dated struct {
	*apiv1.Calendar
	In, Out []string
}

// newDated looks at the days from today on, in UTC.
func newDated(m *apiv1.Calendar, today time.Time) (dated, error) {
	d := dated{Calendar: m}
	c, err := schedule.CompileCalendar(m)
	if err != nil {
		return d, err
	}
	for end := today.AddDate(dateYears, 0, 0); today.Before(end) && len(d.In)+len(d.Out) < 2*shownDates; today = today.AddDate(0, 0, 1) {
		list := &d.Out
		if c.Has(today.Date()) {
			list = &d.In
		}
		if len(*list) < shownDates {
			*list = append(*list, today.Format(time.DateOnly))
		}
	}
	return d, nil
}

// DateCount returns the number of single days that the calendar lists, also in ranges.
func (d dated) DateCount() int {
	type days struct{ from, until time.Time } // both inclusive
	var all []days
	for _, text := range d.Dates {
		first, last, ranged := strings.Cut(text, "/")
		from, err := time.Parse(time.DateOnly, first)
		if err != nil {
			continue
		}
		until := from
		if t, err := time.Parse(time.DateOnly, last); ranged && err == nil {
			until = t
		}
		all = append(all, days{from, until})
	}
	slices.SortFunc(all, func(a, b days) int { return a.from.Compare(b.from) })
	n, next := 0, time.Time{} // next is the first day that is not counted yet
	for _, x := range all {
		if x.from.Before(next) {
			x.from = next
		}
		if !x.until.Before(x.from) {
			n += int(x.until.Sub(x.from)/(24*time.Hour)) + 1
			next = x.until.AddDate(0, 0, 1)
		}
	}
	return n
}

// Next returns the dates that fit into a list.
func (d dated) Next() string { return strings.Join(d.In[:min(3, len(d.In))], " ") }

type calendarsView struct {
	Calendars []dated
	Gone      string // name of the calendar that was just deleted
	Form      calendarForm
	Refused   string // reason for a refusal
}

// calendarSaved and calendarDeleted are notices; the latter has the name.
type (
	calendarSaved   struct{}
	calendarDeleted string
)

type calendarView struct {
	dated
	Saved bool
	Form  calendarForm
	Year  calendarYear
}

// calendarForm is the content of the form of a calendar.
type calendarForm struct {
	Name, Description, Dates, Yearly string
	Days                             []string
	Fixed                            bool // the name cannot be changed
}

// Weekdays returns the choices of the form.
func (calendarForm) Weekdays() []string {
	return []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
}

// Has reports whether a weekday is selected.
func (f calendarForm) Has(day string) bool { return slices.Contains(f.Days, day) }

func formOf(c *apiv1.Calendar) calendarForm {
	return calendarForm{
		Name: c.Name, Description: c.Description, Dates: strings.Join(c.Dates, "\n"), Yearly: strings.Join(c.Yearly, "\n"), Days: c.Days, Fixed: true,
	}
}

func (c *console) calendarsPage(v *visit) error {
	gone, _ := noticeOf[calendarDeleted](v)
	return c.showCalendars(v, http.StatusOK, calendarsView{Gone: string(gone)})
}

func (c *console) showCalendars(v *visit, code int, view calendarsView) error {
	answer, err := c.dates.ListCalendars(v.ctx, &apiv1.ListCalendarsRequest{App: v.app})
	if err != nil {
		return err
	}
	today := time.Now().UTC()
	for _, m := range answer.Calendars {
		d, err := newDated(m, today)
		if err != nil {
			return err
		}
		view.Calendars = append(view.Calendars, d)
	}
	return c.showStatus(v, code, "calendars", "calendars", view)
}

func (c *console) calendarPage(v *visit) error {
	m, err := c.dates.GetCalendar(v.ctx, &apiv1.GetCalendarRequest{App: v.app, Name: v.r.PathValue("name")})
	if err != nil {
		return err
	}
	view := calendarView{Form: formOf(m)}
	_, view.Saved = noticeOf[calendarSaved](v)
	today := time.Now().UTC()
	if view.dated, err = newDated(m, today); err != nil {
		return err
	}
	if view.Year, err = yearOf(m, v.r.URL.Query().Get("year"), today); err != nil {
		return err
	}
	return c.show(v, "calendar", "calendars", view)
}

// calendarJobsPage lists the jobs whose schedules name a calendar.
func (c *console) calendarJobsPage(v *visit) error {
	name := v.r.PathValue("name")
	view, err := c.jobsThat(v, func(j *apiv1.Job) bool {
		return slices.Contains(j.GetSchedule().GetInclude(), name) || slices.Contains(j.GetSchedule().GetExclude(), name)
	})
	if err != nil {
		return err
	}
	return c.show(v, "calendarjobs", "calendars", view)
}

// putCalendar handles the form of a calendar. A refused form is shown again with the
// reason and the visitor's input.
func (c *console) putCalendar(v *visit) error {
	// If the body is not read to its end, browsers report a broken connection instead of
	// showing the response.
	defer func() { _, _ = io.Copy(io.Discard, v.r.Body) }()
	form, m, err := readCalendarForm(v)
	if err == nil {
		_, err = c.dates.PutCalendar(v.ctx, &apiv1.PutCalendarRequest{Calendar: m})
	}
	switch status.Code(err) {
	case codes.OK:
		v.redirectWith(href("apps", v.app, "calendars", form.Name), calendarSaved{})
		return nil
	case codes.InvalidArgument, codes.ResourceExhausted:
		return c.showCalendars(v, http.StatusUnprocessableEntity, calendarsView{Form: form, Refused: status.Convert(err).Message()})
	}
	return err
}

func readCalendarForm(v *visit) (form calendarForm, m *apiv1.Calendar, err error) {
	if err := v.r.ParseMultipartForm(maxCalendar); err != nil { // keeps all of it in memory
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return form, nil, status.Errorf(codes.ResourceExhausted, "the form and its file are larger than %d MiB", maxCalendar>>20)
		}
		return form, nil, status.Errorf(codes.InvalidArgument, "read the form: %v", err)
	}
	f := v.r.PostForm
	form = calendarForm{
		Name: strings.TrimSpace(f.Get("name")), Description: f.Get("description"), Dates: f.Get("dates"), Yearly: f.Get("yearly"), Days: f["days"],
		Fixed: f.Get("fixed") != "",
	}
	m = &apiv1.Calendar{
		App: v.app, Name: form.Name, Description: strings.TrimSpace(form.Description),
		Dates: entries(form.Dates), Yearly: entries(form.Yearly), Days: form.Days,
	}
	m.Ics, err = readICSFile(v)
	return form, m, err
}

// entries splits the input at spaces, line breaks and commas.
func entries(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;，；、", r) })
}

// readICSFile reads the optional file of the form.
func readICSFile(v *visit) (string, error) {
	file, head, err := v.r.FormFile("ics")
	if errors.Is(err, http.ErrMissingFile) || err == nil && head.Size == 0 {
		return "", nil
	}
	if err != nil {
		return "", status.Errorf(codes.InvalidArgument, "read the file: %v", err)
	}
	defer file.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(file, maxICS+1))
	switch {
	case err != nil:
		return "", status.Errorf(codes.InvalidArgument, "read the file: %v", err)
	case len(b) > maxICS:
		return "", status.Errorf(codes.InvalidArgument, "the iCalendar file is larger than %d MiB", maxICS>>20)
	}
	return strings.ToValidUTF8(string(b), "\ufffd"), nil
}

func (c *console) deleteCalendarPage(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.dates.GetCalendar(v.ctx, &apiv1.GetCalendarRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	return c.show(v, "confirm", "calendars", confirmView{
		Question: "calendar.delete.question", Effect: "calendar.delete.effect", Button: "calendar.delete.button",
		Subject: name, Back: href("apps", v.app, "calendars", name),
	})
}

func (c *console) deleteCalendar(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.dates.DeleteCalendar(v.ctx, &apiv1.DeleteCalendarRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "calendars"), calendarDeleted(name))
	return nil
}
