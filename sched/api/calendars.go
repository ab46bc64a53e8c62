package api

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type calendarsAPI struct {
	apiv1.UnimplementedCalendarsServer
	s *Services
}

func (a *calendarsAPI) PutCalendar(ctx context.Context, req *apiv1.PutCalendarRequest) (*apiv1.Calendar, error) {
	c, compiled, err := core.CalendarDefinition(req.Calendar)
	if err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Calendar, error) { return l.Planner.PutCalendar(c, compiled) })
}

func (a *calendarsAPI) GetCalendar(ctx context.Context, req *apiv1.GetCalendarRequest) (*apiv1.Calendar, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Calendar, error) {
		if c := l.State.CalendarMessage(core.AppOf(req.App), req.Name); c != nil {
			return c, nil
		}
		return nil, core.NoCalendar(core.AppOf(req.App), req.Name)
	})
}

func (a *calendarsAPI) ListCalendars(ctx context.Context, req *apiv1.ListCalendarsRequest) (*apiv1.ListCalendarsResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListCalendarsResponse, error) {
		return &apiv1.ListCalendarsResponse{Calendars: l.Planner.ListCalendars(core.AppOf(req.App))}, nil
	})
}

func (a *calendarsAPI) DeleteCalendar(ctx context.Context, req *apiv1.DeleteCalendarRequest) (*apiv1.DeleteCalendarResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.DeleteCalendarResponse, error) {
		return &apiv1.DeleteCalendarResponse{}, l.Planner.DeleteCalendar(core.AppOf(req.App), req.Name)
	})
}
