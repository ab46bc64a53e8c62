package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const (
	plannedJobs = 500                   // jobs of one call
	plannedTime = 60 * time.Millisecond // after which a page ends
	plannedRows = 200                   // of the table
	plannedBars = 48
	// plannedEach bounds the times of one job that are placed one by one; more are spread over the window.
	plannedEach = 500
	longWindow  = 31 * 24 * time.Hour
)

// schedulesView shows what the schedules of an app plan in a window.
type schedulesView struct {
	From, To string // as a browser sends them, in the zone
	Zone     string
	Error    string          // why the window cannot be used
	Pause    *apiv1.AppPause // nil: the app is not paused
	Jobs     []plannedJob    // with planned times in the window, the first time first; at most plannedRows
	Planned  int             // all of these
	Bars     []plannedBar    // of equal parts of the window
	Max      int64           // of the highest bar
	Total    int64           // planned times of all of them
	Read     int             // jobs that were looked at
	Paused   int             // of these
	Next     string          // token of the next page; "": all were looked at
	Paged    bool            // this is not the first page
	Step     time.Duration   // of one bar
	Agenda   *agenda         // of the hours of a day, in place of the jobs; nil: the page has a window
	Today    string          // the day of now, as an address has it
}

// plannedJob is a job with planned times in the window.
type plannedJob struct {
	Job   *apiv1.Job
	Count int64
	First *timestamppb.Timestamp
	After *timestamppb.Timestamp // the first planned time after the window; nil: none
}

// plannedBar is one part of the window.
type plannedBar struct {
	X, Width, Y, H float64 // percent
	Start          *timestamppb.Timestamp
	Count          int64
}

// schedulesPage shows a window of planned times: the next day, or one that the visitor chooses, to find a time for
// maintenance. It reads jobs by
// name, as many as fit the time of a page.
func (c *console) schedulesPage(v *visit) error {
	zone := zoneOf(v.r)
	now := time.Now()
	from, to, err := plannedWindow(v.r, zone.Location, now)
	day, failed := agendaOf(v.r, zone.Location, now)
	if failed != nil {
		err = failed
	} else if day != nil {
		from, to, err = day.Hours[0].Start, day.Hours[len(day.Hours)-1].End, nil
	}
	view := schedulesView{Agenda: day, Today: now.In(zone.Location).Format(time.DateOnly), Zone: zone.String(), From: boundShown(v.r, "from", from, zone.Location), To: boundShown(v.r, "to", to, zone.Location), Paged: v.r.URL.Query().Get("page") != ""}
	if err != nil {
		view.Error = status.Convert(err).Message()
		return c.showStatus(v, http.StatusBadRequest, "schedules", "schedules", view)
	}
	if view.Pause, err = c.pauseOf(v.ctx, v.app); err != nil {
		return err
	}
	p := planning{c: c, v: v, from: from, to: to, agenda: day, calendars: map[string]*schedule.Calendar{}}
	if err := p.read(&view, now.Add(plannedTime)); err != nil {
		return err
	}
	if day != nil {
		day.finish()
	}
	view.draw(from, to, p.bars)
	return c.show(v, "schedules", "schedules", view)
}

// boundShown returns a bound of the window as a browser has it: to the minute, unless the visitor chose it.
func boundShown(r *http.Request, name string, at time.Time, zone *time.Location) string {
	if r.URL.Query().Get(name) == "" {
		at = at.Truncate(time.Minute)
	}
	return at.In(zone).Format(inputTime)
}

// plannedWindow reads the window of an address; default: the next 24 hours.
func plannedWindow(r *http.Request, zone *time.Location, now time.Time) (from, to time.Time, err error) {
	from = now.Truncate(time.Second).Add(time.Second) // no time that has passed
	to = from.Add(24 * time.Hour)
	for _, bound := range []struct {
		name string
		to   *time.Time
	}{{"from", &from}, {"to", &to}} {
		text := r.URL.Query().Get(bound.name)
		if text == "" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			*bound.to = at
			continue
		}
		at, err := readInputTime(text, zone)
		if err != nil {
			return from, to, err
		}
		*bound.to = at
	}
	switch {
	case !from.Before(to):
		return from, to, status.Error(codes.InvalidArgument, "the window ends before it begins")
	case to.Sub(from) > longWindow:
		return from, to, status.Errorf(codes.InvalidArgument, "the window is longer than %d days", longWindow/(24*time.Hour))
	}
	return from, to, nil
}

// planning computes the planned times of jobs in a window.
type planning struct {
	c         *console
	v         *visit
	from, to  time.Time
	agenda    *agenda                       // nil: the page has none
	calendars map[string]*schedule.Calendar // nil: it does not exist
	bars      [plannedBars]int64
}

// read looks at jobs until its time is over.
func (p *planning) read(view *schedulesView, end time.Time) error {
	view.Next = p.v.r.URL.Query().Get("page")
	for first := true; first || view.Next != "" && time.Now().Before(end); first = false {
		answer, err := p.c.jobs.ListJobs(p.v.ctx, &apiv1.ListJobsRequest{App: p.v.app, PageSize: plannedJobs, PageToken: view.Next})
		if err != nil {
			return err
		}
		view.Next = answer.NextPageToken
		for _, d := range answer.Jobs {
			view.Read++
			if d.GetPaused() {
				view.Paused++
				continue
			}
			if j, ok := p.plan(d); ok {
				view.Jobs = append(view.Jobs, j)
				view.Total += j.Count
			}
		}
	}
	view.Planned = len(view.Jobs)
	slices.SortFunc(view.Jobs, func(a, b plannedJob) int {
		return cmp.Or(a.First.AsTime().Compare(b.First.AsTime()), cmp.Compare(a.Job.Name, b.Job.Name))
	})
	view.Jobs = view.Jobs[:min(len(view.Jobs), plannedRows)]
	return nil
}

// plan returns the planned times of one job; ok is false if it has none in the window. A schedule that cannot be read, as
// that of a newer server, has none.
func (p *planning) plan(d *apiv1.Job) (j plannedJob, ok bool) {
	if d.Schedule == nil {
		return j, false
	}
	plan, err := schedule.NewPlan(d, p.calendar)
	if err != nil {
		return j, false
	}
	if d.NextAt != nil {
		plan = plan.Anchor(d.NextAt.AsTime())
	}
	times, more := plan.Between(p.from, p.to, plannedEach)
	if len(times) == 0 {
		return j, false
	}
	if p.agenda != nil {
		p.agenda.add(d, plan, times, more)
	}
	j = plannedJob{Job: d, Count: int64(len(times)), First: timestamppb.New(times[0])}
	if more {
		j.Count = plan.Count(p.from, p.to)
		for i := range p.bars {
			p.bars[i] += plan.Count(p.edge(i), p.edge(i+1))
		}
	} else {
		for _, t := range times {
			p.bars[min(plannedBars-1, int(t.Sub(p.from)*plannedBars/p.to.Sub(p.from)))]++
		}
	}
	if next, ok := plan.After(p.to.Add(-time.Millisecond)); ok {
		j.After = timestamppb.New(next)
	}
	return j, true
}

// edge returns the beginning of a bar.
func (p *planning) edge(i int) time.Time {
	return p.from.Add(p.to.Sub(p.from) / plannedBars * time.Duration(i)).Truncate(time.Millisecond)
}

// calendar returns a compiled calendar of the app.
func (p *planning) calendar(name string) *schedule.Calendar {
	if c, known := p.calendars[name]; known {
		return c
	}
	p.calendars[name] = nil
	if m, err := p.c.dates.GetCalendar(p.v.ctx, &apiv1.GetCalendarRequest{App: p.v.app, Name: name}); err == nil {
		p.calendars[name], _ = schedule.CompileCalendar(m) // the server has compiled it before
	}
	return p.calendars[name]
}

// Link returns an address with the window or the day, and with pairs of further parameters.
func (s schedulesView) Link(address string, pairs ...string) string {
	if s.Agenda != nil {
		return withQuery(address, append([]string{"day", s.Agenda.Day}, pairs...)...)
	}
	return withQuery(address, append([]string{"from", s.From, "to", s.To}, pairs...)...)
}

// Bar returns the length of a bar.
func (s schedulesView) Bar() string { return span(s.Step) }

// draw makes the bars.
func (s *schedulesView) draw(from, to time.Time, counts [plannedBars]int64) {
	s.Max = slices.Max(counts[:])
	s.Step = to.Sub(from) / plannedBars
	const slot = 100.0 / plannedBars
	for i, n := range counts {
		b := plannedBar{X: slot * float64(i), Width: slot * 0.72, Y: 100, Start: timestamppb.New(from.Add(s.Step * time.Duration(i))), Count: n}
		if s.Max > 0 {
			b.H = 100 * float64(n) / float64(s.Max)
			b.Y = 100 - b.H
		}
		s.Bars = append(s.Bars, b)
	}
}
