package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// agendaJobs bounds the jobs that the agenda shows of one hour.
const agendaJobs = 10

// agenda is a day in the visitor's zone, hour by hour. A day on which clocks change has another
// number of hours than 24.
type agenda struct {
	Day          string // as an address has it
	Before, Next string // the days around it
	Hours        []agendaHour
}

// agendaHour is an hour with the jobs that have planned times in it.
type agendaHour struct {
	Start, End time.Time
	From, To   string // offsets, if clocks have changed since the hour before; "": they have not
	Now        bool
	Count      int64        // planned times
	Jobs       []agendaTime // the first time first; at most agendaJobs
	More       int          // further jobs
}

// agendaTime is a job with its first planned time in an hour.
type agendaTime struct {
	Job   *apiv1.Job
	First time.Time
	Count int64
}

// agendaOf returns the day of an address, without planned times; nil: the address has none.
func agendaOf(r *http.Request, zone *time.Location, now time.Time) (*agenda, error) {
	text := r.URL.Query().Get("day")
	if text == "" {
		return nil, nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%.40q is not a day: write it as 2026-03-08", text)
	}
	a := &agenda{Day: day.Format(time.DateOnly), Before: day.AddDate(0, 0, -1).Format(time.DateOnly), Next: day.AddDate(0, 0, 1).Format(time.DateOnly)}
	end := beginningOf(day.AddDate(0, 0, 1), zone)
	for at := beginningOf(day, zone); at.Before(end); {
		h := agendaHour{Start: at, End: hourAfter(at, end)}
		if was, is := at.Add(-time.Nanosecond).Format("-07:00"), at.Format("-07:00"); was != is {
			h.From, h.To = was, is
		}
		h.Now = !now.Before(h.Start) && now.Before(h.End)
		a.Hours = append(a.Hours, h)
		at = h.End
	}
	return a, nil
}

// beginningOf returns the first instant of a day, which is not midnight where clocks skip that.
func beginningOf(day time.Time, zone *time.Location) time.Time {
	at := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	if at.Day() != day.Day() {
		at = at.Add(time.Hour)
	}
	return at
}

// hourAfter returns the end of the hour that begins at a time: an hour later, or the next full hour of the
// clock if a change of clocks by half an hour came before.
func hourAfter(at, end time.Time) time.Time {
	next := at.Add(time.Hour)
	if at.Minute() != 0 {
		if full := next.Add(-time.Duration(next.Minute()) * time.Minute); full.After(at) {
			next = full
		}
	}
	if next.After(end) {
		return end
	}
	return next
}

// add places the planned times of a job in the hours. times has all of them unless more is set.
func (a *agenda) add(j *apiv1.Job, plan schedule.Plan, times []time.Time, more bool) {
	for i := range a.Hours {
		h := &a.Hours[i]
		var first time.Time
		var n int64
		if more {
			if some, _ := plan.Between(h.Start, h.End, 1); len(some) > 0 {
				first, n = some[0], plan.Count(h.Start, h.End)
			}
		} else {
			from, _ := slices.BinarySearchFunc(times, h.Start, time.Time.Compare)
			to, _ := slices.BinarySearchFunc(times, h.End, time.Time.Compare)
			if n = int64(to - from); n > 0 {
				first = times[from]
			}
		}
		if n > 0 {
			h.Count += n
			h.Jobs = append(h.Jobs, agendaTime{j, first.In(h.Start.Location()), n})
		}
	}
}

// finish sorts the jobs of each hour, and leaves the first of them.
func (a *agenda) finish() {
	for i := range a.Hours {
		h := &a.Hours[i]
		slices.SortFunc(h.Jobs, func(x, y agendaTime) int {
			return cmp.Or(x.First.Compare(y.First), cmp.Compare(x.Job.Name, y.Job.Name))
		})
		h.More = max(0, len(h.Jobs)-agendaJobs)
		h.Jobs = h.Jobs[:min(len(h.Jobs), agendaJobs)]
	}
}

// Window returns an address with the hour as a window.
func (h agendaHour) Window(address string) string {
	return withQuery(address, "from", h.Start.Format(time.RFC3339), "to", h.End.Format(time.RFC3339))
}

// Clock returns the beginning of the hour, with its zone after a change of clocks.
func (h agendaHour) Clock() string {
	if h.From != "" {
		return h.Start.Format("15:04 MST")
	}
	return h.Start.Format("15:04")
}
