package sdk

import (
	"context"
	"fmt"
	"io"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// PutCalendar creates or replaces a calendar and returns it as stored: dates sorted and
// joined to ranges, including those of an iCalendar file. The server replans the jobs
// that name the calendar. An empty App means [DefaultApp].
func (c *Client) PutCalendar(ctx context.Context, calendar *Calendar) (*Calendar, error) {
	kept, err := c.calendars.PutCalendar(forApp(ctx, calendar.GetApp()), &apiv1.PutCalendarRequest{Calendar: calendar})
	return kept, c.callError(ctx, "put calendar", err)
}

// Calendar returns a calendar.
func (c *Client) Calendar(ctx context.Context, app, name string) (*Calendar, error) {
	calendar, err := c.calendars.GetCalendar(ctx, &apiv1.GetCalendarRequest{App: appOf(app), Name: name})
	return calendar, c.callError(ctx, "get calendar "+name, err)
}

// Calendars returns the calendars of an app, sorted by name, at most 1000.
func (c *Client) Calendars(ctx context.Context, app string) ([]*Calendar, error) {
	r, err := c.calendars.ListCalendars(ctx, &apiv1.ListCalendarsRequest{App: appOf(app)})
	return r.GetCalendars(), c.callError(ctx, "list calendars", err)
}

// DeleteCalendar removes a calendar. It fails with [ErrPrecondition] while a job
// names it.
func (c *Client) DeleteCalendar(ctx context.Context, app, name string) error {
	_, err := c.calendars.DeleteCalendar(ctx, &apiv1.DeleteCalendarRequest{App: appOf(app), Name: name})
	return c.callError(ctx, "delete calendar "+name, err)
}

// ReadCalendars reads calendar documents in the formats of [ReadJobs], with the fields of
// [Calendar]. The server, not the reader, validates the dates.
func ReadCalendars(r io.Reader) ([]*Calendar, error) {
	kind, err := document.Find("Calendar")
	if err != nil {
		return nil, err
	}
	documents, err := document.Parse(r, document.Options{Kind: kind, Only: true, AnyValue: true})
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", firstProblem(err))
	}
	var calendars []*Calendar
	for _, d := range documents {
		calendars = append(calendars, d.Spec.(*Calendar))
	}
	return calendars, nil
}

// WriteCalendars writes calendars as YAML documents that [ReadCalendars] reads. It omits
// the fields that the server sets.
func WriteCalendars(w io.Writer, calendars ...*Calendar) error {
	return writeDocuments(w, calendars, func(c *Calendar) string { return "calendar " + c.GetName() })
}
