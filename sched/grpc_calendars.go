package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// maxCalendars bounds the calendars of an app.
const maxCalendars = 1000

type calendarsAPI struct {
	apiv1.UnimplementedCalendarsServer
	s *Server
}

func noCalendar(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no calendar %q in app %q: `wheelwork calendar list` shows what there is", name, app)
}

func (a *calendarsAPI) PutCalendar(ctx context.Context, req *apiv1.PutCalendarRequest) (*apiv1.Calendar, error) {
	if req.Calendar == nil {
		return nil, status.Error(codes.InvalidArgument, "the calendar is missing")
	}
	c := proto.CloneOf(req.Calendar)
	c.App = appOf(c.App)
	if err := naming.Check("app", c.App); err != nil {
		return nil, invalid(err)
	}
	if err := naming.Check("name", c.Name); err != nil {
		return nil, invalid(err)
	}
	compiled, err := schedule.CompileCalendar(c)
	if err != nil {
		return nil, invalid(fmt.Errorf("calendar %s: %w", c.Name, err))
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Calendar, error)) {
		m, err := l.putCalendar(c, compiled)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(m, err) })
	})
}

func (a *calendarsAPI) GetCalendar(ctx context.Context, req *apiv1.GetCalendarRequest) (*apiv1.Calendar, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Calendar, error) {
		if c := l.calendarMessage(appOf(req.App), req.Name); c != nil {
			return c, nil
		}
		return nil, noCalendar(appOf(req.App), req.Name)
	})
}

func (a *calendarsAPI) ListCalendars(ctx context.Context, req *apiv1.ListCalendarsRequest) (*apiv1.ListCalendarsResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListCalendarsResponse, error) {
		resp := &apiv1.ListCalendarsResponse{}
		if a := l.apps[appOf(req.App)]; a != nil {
			for _, c := range a.slots[job.ModuleSlot].Calendars {
				resp.Calendars = append(resp.Calendars, c)
			}
		}
		slices.SortFunc(resp.Calendars, func(a, b *apiv1.Calendar) int { return strings.Compare(a.Name, b.Name) })
		return resp, nil
	})
}

func (a *calendarsAPI) DeleteCalendar(ctx context.Context, req *apiv1.DeleteCalendarRequest) (*apiv1.DeleteCalendarResponse, error) {
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.DeleteCalendarResponse, error)) {
		if err := l.deleteCalendar(appOf(req.App), req.Name); err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.DeleteCalendarResponse{}, err) })
	})
}

func (l *loop) calendarMessage(app, name string) *apiv1.Calendar {
	if a := l.apps[app]; a != nil {
		return a.slots[job.ModuleSlot].Calendars[name]
	}
	return nil
}

// calendar returns a compiled calendar; nil: there is none.
func (l *loop) calendar(app, name string) *schedule.Calendar {
	k := jobKey{app, name}
	if c := l.calendars[k]; c != nil {
		return c
	}
	m := l.calendarMessage(app, name)
	if m == nil {
		return nil
	}
	c, err := schedule.CompileCalendar(proto.CloneOf(m))
	if err != nil { // it was valid when it was put
		l.cfg.Logger.Error("a calendar cannot be read any more", "app", app, "calendar", name, "error", err)
		return nil
	}
	l.calendars[k] = c
	return c
}

// forgetCalendar drops the compiled form of a changed calendar, and with it the cached plans
// that use calendars. It is part of applying a record.
func (l *loop) forgetCalendar(c *apiv1.Calendar) {
	delete(l.calendars, jobKey{c.App, c.Name})
	l.calendarN++
}

// naming returns the jobs whose schedule names a calendar. It drops stale entries of the
// index.
func (l *loop) naming(app, name string) []*job.Job {
	k := jobKey{app, name}
	l.planned[k] = slices.DeleteFunc(l.planned[k], func(j *job.Job) bool { return !j.Current() || !slices.Contains(j.Calendars(), name) })
	if len(l.planned[k]) == 0 {
		delete(l.planned, k)
	}
	return l.planned[k]
}

// putCalendar records a calendar, and reschedules the jobs that name it.
func (l *loop) putCalendar(c *apiv1.Calendar, compiled *schedule.Calendar) (*apiv1.Calendar, error) {
	if err := l.refuse(); err != nil {
		return nil, err
	}
	s := l.app(c.App).slots[job.ModuleSlot]
	if s.Calendars[c.Name] == nil && len(s.Calendars) >= maxCalendars {
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d calendars, which is the limit", c.App, maxCalendars)
	}
	c.UpdatedAt = timestamppb.New(l.now)
	l.record(s, &apiv1.Record{Kind: &apiv1.Record_CalendarPut{CalendarPut: &apiv1.CalendarPut{Calendar: c}}})
	l.calendars[jobKey{c.App, c.Name}] = compiled
	for _, j := range slices.Clone(l.naming(c.App, c.Name)) {
		def := j.Definition()
		put := &apiv1.JobPut{Job: def, Rescheduled: true}
		plan, err := l.plan(def)
		if err != nil {
			return nil, invalid(err)
		}
		next, ok := l.first(plan, def)
		if ok && !def.GetPaused() && plan.Left(j.PlannedBy(l.nowMs)) > 0 {
			put.NextMs = next.UnixMilli()
		}
		l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: put}})
		if l.stage.bytes >= stageBytes {
			l.submit()
		}
	}
	return c, nil
}

func (l *loop) deleteCalendar(app, name string) error {
	if l.calendarMessage(app, name) == nil {
		return noCalendar(app, name)
	}
	if err := l.apps[app].errIfSplit(); err != nil {
		return err
	}
	if of := l.naming(app, name); len(of) > 0 {
		return status.Errorf(codes.FailedPrecondition, "calendar %s is named by %d jobs, %q among them: change these first", name, len(of), of[0].Name())
	}
	if err := l.refuseChange(); err != nil {
		return err
	}
	l.record(l.app(app).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_CalendarDelete{CalendarDelete: &apiv1.CalendarDelete{Name: name}}})
	return nil
}
