package environment

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const (
	// horizon is the time from now on in which fires are compared.
	horizon = 7 * 24 * time.Hour
	// maxFires bounds the fires of one schedule that are compared.
	maxFires = 100
)

// Fires says how the planned times of a job change in the next seven days, of which the first 100 are
// compared. A job that is paused has none.
type Fires struct {
	Moved int        `json:"moved"` // planned times that only one of the two schedules has
	Next  *time.Time `json:"next,omitempty"`
}

// fires plans schedules with the calendars of both sides.
type fires struct {
	now           time.Time
	before, after map[string]*schedule.Calendar
}

func newFires(in Input) *fires {
	f := &fires{in.Now, map[string]*schedule.Calendar{}, map[string]*schedule.Calendar{}}
	for _, d := range in.Target {
		compile(d, f.before, f.after)
	}
	for _, d := range in.Wanted {
		compile(d, f.after)
	}
	return f
}

// compile adds a calendar to maps. One that the server would refuse is left out.
func compile(d *document.Document, to ...map[string]*schedule.Calendar) {
	calendar, ok := d.Spec.(*apiv1.Calendar)
	if !ok {
		return
	}
	if c, err := schedule.CompileCalendar(proto.CloneOf(calendar)); err == nil {
		for _, m := range to {
			m[calendar.GetName()] = c
		}
	}
}

// of returns how the fires of a job change; nil: they do not, or depend on events.
func (f *fires) of(old *document.Document, next *apiv1.Job) *Fires {
	if old == nil {
		if times := f.times(next, f.after, 1); len(times) > 0 {
			return &Fires{Next: &times[0]}
		}
		return nil
	}
	was := old.Spec.(*apiv1.Job)
	if next.Paused == nil {
		next = proto.CloneOf(next)
		next.Paused = was.Paused
	}
	if was.GetPaused() == next.GetPaused() && proto.Equal(was.GetSchedule(), next.GetSchedule()) {
		return nil
	}
	x := &Fires{}
	if x.Moved, x.Next = compare(f.times(was, f.before, maxFires), f.times(next, f.after, maxFires)); x.Moved == 0 {
		return nil
	}
	return x
}

// ofCalendar returns how the fires of the jobs move that name a calendar which changes, and whose own
// schedules do not.
func (f *fires) ofCalendar(name string, jobs []*document.Document) *Fires {
	x := &Fires{}
	for _, d := range jobs {
		job, ok := d.Spec.(*apiv1.Job)
		if s := job.GetSchedule(); !ok || !slices.Contains(s.GetInclude(), name) && !slices.Contains(s.GetExclude(), name) {
			continue
		}
		moved, next := compare(f.times(job, f.before, maxFires), f.times(job, f.after, maxFires))
		if x.Moved += moved; moved > 0 && next != nil && (x.Next == nil || next.Before(*x.Next)) {
			x.Next = next
		}
	}
	if x.Moved == 0 {
		return nil
	}
	return x
}

// compare returns the number of times that only one of two lists has, and the first of the second one.
func compare(before, after []time.Time) (moved int, next *time.Time) {
	same, was := 0, make(map[int64]bool, len(before))
	for _, at := range before {
		was[at.UnixNano()] = true
	}
	for _, at := range after {
		if was[at.UnixNano()] {
			same++
		}
	}
	if len(after) > 0 {
		next = &after[0]
	}
	return max(len(before), len(after)) - same, next
}

// times returns the planned times of a job within the horizon, at most limit; none for a schedule that counts from
// an event, or that the server would refuse.
func (f *fires) times(job *apiv1.Job, calendars map[string]*schedule.Calendar, limit int) (times []time.Time) {
	s := job.GetSchedule()
	if s == nil || job.GetPaused() || s.GetEvery() != "" && s.GetFrom() == "" || s.GetDelay() != "" || s.GetAfter() != "" {
		return nil
	}
	plan, err := schedule.NewPlan(job, func(name string) *schedule.Calendar { return calendars[name] })
	if err != nil {
		return nil
	}
	end := f.now.Add(horizon)
	for at, ok := plan.First(f.now); ok && len(times) < limit && (limit == 1 || at.Before(end)); at, ok = plan.After(at) {
		times = append(times, at.In(plan.Location()))
	}
	return times
}
