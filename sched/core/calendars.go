package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// fewJobs is the number of jobs up to which a change of their calendar is one batch of the
// journal.
const fewJobs = 128

// maxCalendars bounds the calendars of an app.
const maxCalendars = 1000

// NoCalendar returns the error for a calendar that does not exist.
func NoCalendar(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no calendar %q in app %q: `wheelwork calendar list` shows what there is", name, app)
}

// PutCalendar records a calendar, and reschedules the jobs that name it.
func (pl *Planner) PutCalendar(c *apiv1.Calendar, compiled *schedule.Calendar) (*apiv1.Calendar, error) {
	if err := cmp.Or(pl.l.Holds.Free(c.App), pl.l.limits.mayAddApp(c.App), pl.l.commits.refuse()); err != nil {
		return nil, err
	}
	s := pl.l.State.app(c.App).slots[job.ModuleSlot]
	if s.Calendars[c.Name] == nil && len(s.Calendars) >= maxCalendars {
		return nil, status.Errorf(codes.ResourceExhausted, "app %s has %d calendars, which is the limit", c.App, maxCalendars)
	}
	return c, pl.setCalendar(s, c, compiled)
}

// setCalendar is PutCalendar without its checks.
func (pl *Planner) setCalendar(s *job.Slot, c *apiv1.Calendar, compiled *schedule.Calendar) error {
	c.UpdatedAt = timestamppb.New(pl.l.clock.now)
	pl.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_CalendarPut{CalendarPut: &apiv1.CalendarPut{Calendar: c}}})
	pl.calendars[jobKey{c.App, c.Name}] = compiled
	of := slices.Clone(pl.naming(c.App, c.Name))
	for _, j := range of {
		def := j.Definition()
		put := &apiv1.JobPut{Job: def, Rescheduled: true}
		plan, err := pl.plan(def)
		if err != nil {
			return Invalid(err)
		}
		next, ok := pl.first(plan, def)
		if ok && !def.GetPaused() && plan.Left(j.PlannedBy(pl.l.clock.nowMs)) > 0 {
			put.NextMs = next.UnixMilli()
		}
		pl.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: put}})
		if len(of) > fewJobs && pl.l.commits.stage.bytes >= stageBytes { // few are in one batch, for a change set
			pl.l.commits.submit()
		}
	}
	return nil
}

// DeleteCalendar records that a calendar is deleted. It fails if a schedule names it.
func (pl *Planner) DeleteCalendar(app, name string) error {
	if err := pl.l.Holds.Free(app); err != nil {
		return err
	}
	if pl.l.State.CalendarMessage(app, name) == nil {
		return NoCalendar(app, name)
	}
	if err := pl.l.State.apps[app].errIfSplit(); err != nil {
		return err
	}
	if of := pl.naming(app, name); len(of) > 0 {
		return status.Errorf(codes.FailedPrecondition, "calendar %s is named by %d jobs, %q among them: change these first", name, len(of), of[0].Name())
	}
	if err := pl.l.commits.refuseChange(); err != nil {
		return err
	}
	pl.dropCalendar(app, name)
	return nil
}

// dropCalendar records that a calendar is deleted.
func (pl *Planner) dropCalendar(app, name string) {
	pl.l.commits.record(pl.l.State.app(app).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_CalendarDelete{CalendarDelete: &apiv1.CalendarDelete{Name: name}}})
}

// ListCalendars returns the calendars of an app by name.
func (pl *Planner) ListCalendars(app string) (all []*apiv1.Calendar) {
	if a := pl.l.State.apps[app]; a != nil {
		all = slices.AppendSeq(all, maps.Values(a.slots[job.ModuleSlot].Calendars))
	}
	slices.SortFunc(all, func(a, b *apiv1.Calendar) int { return strings.Compare(a.Name, b.Name) })
	return all
}
