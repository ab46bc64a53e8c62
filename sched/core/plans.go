package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// JobSchedule is a copy of the schedule of a job, with which a call computes planned times
// outside the loop: there may be ten thousand.
type JobSchedule struct {
	job       *job.Job
	text      string
	calendars []*schedule.Calendar
	Plan      schedule.Plan
	NextMs    int64
	Now       time.Time
}

// ScheduleOf returns a copy of the schedule of a job.
func (pl *Planner) ScheduleOf(app, name string) (JobSchedule, error) {
	j := pl.l.State.Job(app, name)
	if j == nil {
		return JobSchedule{}, noJob(app, name)
	}
	plan, err := pl.planOf(j)
	if err != nil {
		return JobSchedule{}, Invalid(err)
	}
	if j.NextMs > 0 { // a fixed rate counts from the planned times of the job
		plan = plan.Anchor(time.UnixMilli(pl.l.timing.ahead.next(j)))
	}
	return JobSchedule{j, j.Schedule(), pl.calendarsOf(j), plan, pl.l.timing.ahead.next(j), pl.l.clock.now}, nil
}

// calendarsOf returns the compiled calendars that the schedule of a job names. The entry of a
// calendar that does not exist is nil.
func (pl *Planner) calendarsOf(j *job.Job) []*schedule.Calendar {
	var of []*schedule.Calendar
	for _, name := range j.Calendars() {
		of = append(of, pl.calendar(j.Slot().App, name))
	}
	return of
}

// Check fails if the job was deleted, or has another schedule or other calendars now.
func (s *JobSchedule) Check(l *Loop, app, name string) error {
	j := l.State.Job(app, name)
	switch {
	case j == nil:
		return noJob(app, name)
	case j != s.job || j.Schedule() != s.text || !slices.Equal(l.Planner.calendarsOf(j), s.calendars):
		return status.Errorf(codes.Aborted, "the schedule of job %s was changed while its times were filled in", name)
	}
	return nil
}

// first returns the first future planned time of a schedule that is set now. It leaves out
// times that were given up in advance, because they were skipped by request or their run was
// cancelled, and times that had a run before the clock was set back (ADR 36).
func (pl *Planner) first(plan schedule.Plan, def *apiv1.Job) (time.Time, bool) {
	next, ok := plan.First(pl.l.clock.now)
	j := pl.l.State.Job(def.App, def.Name)
	for ok && j != nil && (j.GaveUp(next.UnixMilli()) || pl.l.timing.plannedBefore(j, next)) {
		next, ok = behind(plan, next)
	}
	return next, ok
}

// behind returns the planned time after one that was given up in advance.
func behind(plan schedule.Plan, at time.Time) (time.Time, bool) {
	if next, ok := plan.AfterEnd(at); ok {
		return next, true
	}
	return plan.Anchor(at).After(at)
}

// maxPlans bounds the cache of parsed schedules.
const maxPlans = 10_000

// planOf returns the parsed schedule of a job.
func (pl *Planner) planOf(j *job.Job) (schedule.Plan, error) {
	if p, ok := pl.plans[j.Schedule()]; ok {
		return p, nil
	}
	return pl.plan(j.Definition())
}

// plan parses the schedule of a definition. Results are cached, because a million jobs have
// few different schedules. The cache key is the encoded schedule. It includes the name of the
// job if the planned times depend on that, and the version of the calendars if they are used.
func (pl *Planner) plan(def *apiv1.Job) (schedule.Plan, error) {
	s := def.GetSchedule()
	fields, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		return schedule.Plan{}, err
	}
	k := string(fields)
	if strings.ContainsAny(s.GetCron(), "Hh") || s.GetJitter() != "" { // depends on a hash of the job's name
		k += "|" + def.App + "/" + def.Name
	}
	if len(s.GetInclude())+len(s.GetExclude()) > 0 {
		k += fmt.Sprintf("|%s|%d", def.App, pl.calendarN)
	}
	if p, ok := pl.plans[k]; ok {
		return p, nil
	}
	p, err := schedule.NewPlan(def, func(name string) *schedule.Calendar { return pl.calendar(def.App, name) })
	if err != nil {
		return p, err
	}
	if len(pl.plans) >= maxPlans {
		clear(pl.plans)
	}
	pl.plans[k] = p
	return p, nil
}

// planWith is plan with the calendars that are applied together with the definition.
func (pl *Planner) planWith(def *apiv1.Job, with *Together) (schedule.Plan, error) {
	if !with.changesCalendarOf(def) {
		return pl.plan(def)
	}
	return schedule.NewPlan(def, func(name string) *schedule.Calendar {
		if c, changes := with.calendars[name]; changes {
			return c
		}
		return pl.calendar(def.App, name)
	})
}

// calendar returns a compiled calendar; nil: there is none.
func (pl *Planner) calendar(app, name string) *schedule.Calendar {
	k := jobKey{app, name}
	if c := pl.calendars[k]; c != nil {
		return c
	}
	m := pl.l.State.CalendarMessage(app, name)
	if m == nil {
		return nil
	}
	c, err := schedule.CompileCalendar(proto.CloneOf(m))
	if err != nil { // it was valid when it was put
		pl.l.cfg.Logger.Error("a calendar cannot be read any more", "app", app, "calendar", name, "error", err)
		return nil
	}
	pl.calendars[k] = c
	return c
}

// forgetCalendar drops the compiled form of a changed calendar, and with it the cached plans
// that use calendars. It is part of applying a record.
func (pl *Planner) forgetCalendar(c *apiv1.Calendar) {
	delete(pl.calendars, jobKey{c.App, c.Name})
	pl.calendarN++
}

// naming returns the jobs whose schedule names a calendar. It drops stale entries of the
// index.
func (pl *Planner) naming(app, name string) []*job.Job {
	k := jobKey{app, name}
	pl.planned[k] = slices.DeleteFunc(pl.planned[k], func(j *job.Job) bool { return !j.Current() || !slices.Contains(j.Calendars(), name) })
	if len(pl.planned[k]) == 0 {
		delete(pl.planned, k)
	}
	return pl.planned[k]
}

// CalendarMessage returns a calendar; nil: there is none.
func (st *state) CalendarMessage(app, name string) *apiv1.Calendar {
	if a := st.apps[app]; a != nil {
		return a.slots[job.ModuleSlot].Calendars[name]
	}
	return nil
}

// depends adds j to the index of the calendars that its schedule names. It is part of
// applying a record, and of loading the store.
func (pl *Planner) depends(j *job.Job) {
	for _, name := range j.Calendars() {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(pl.planned[k], j) {
			pl.planned[k] = append(pl.planned[k], j)
		}
	}
}
