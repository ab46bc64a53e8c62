package console

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

const (
	// tickDays is how far the page of a schedule looks back, with at most tickCalls calls of
	// pageSize runs each.
	tickDays  = 7
	tickCalls = 4
	// tickSlack is the lateness up to which a run is not delayed. A planned time that is no older has
	// no run missing yet.
	tickSlack = 5 * time.Second
	// comingTimes is the number of planned times that the page shows.
	comingTimes = 50
)

// scheduleView are the coming and the past planned times of a job.
type scheduleView struct {
	Coming     []comingTime
	Zone       string // of the schedule
	Ticks      []tick // the newest first
	Since      time.Time
	Cut        bool // there are more than the page shows, before Since
	Odd        bool // only those that were not on time
	Changed    bool // the definition is younger than the days that the page shows
	Unreadable int32
}

// comingTime is a planned time in the zone of its schedule.
type comingTime struct {
	At       time.Time
	From, To string // offsets before and after a clock change since the planned time before; "": none
}

// markChanges returns planned times with the clock changes of their zone between them, and between
// now and the first.
func markChanges(times []time.Time, now time.Time) []comingTime {
	marked := make([]comingTime, len(times))
	for i, t := range times {
		before := now.In(t.Location())
		if i > 0 {
			before = times[i-1]
		}
		marked[i].At = t
		if was, is := before.Format("-07:00"), t.Format("-07:00"); was != is {
			marked[i].From, marked[i].To = was, is
		}
	}
	return marked
}

// tick is a planned time of the past, or several without a run.
type tick struct {
	Kind   string // fired, delayed, waiting, skipped, missed, cancelled or norun: a key under tick.
	At     time.Time
	Until  time.Time  // norun: the planned times are between At and Until
	Count  int64      // norun: the planned times
	Run    *apiv1.Run // nil: norun
	Late   time.Duration
	Before time.Duration // of Late: until the server accepted the run
}

// Mark returns the state whose colour and icon the kind has.
func (t tick) Mark() string {
	switch t.Kind {
	case "fired":
		return "succeeded"
	case "delayed", "waiting":
		return "waiting"
	case "norun":
		return "none"
	}
	return t.Kind
}

// Lateness returns Late as text.
func (t tick) Lateness() string { return span(t.Late) }

// Acceptance returns Before as text.
func (t tick) Acceptance() string { return span(t.Before) }

// Wait returns the rest of Late as text.
func (t tick) Wait() string { return span(t.Late - t.Before) }

// tickOf tells the outcome of the planned time of a run.
func tickOf(r *apiv1.Run, now time.Time) tick {
	t := tick{Run: r, At: stamp(r.PlannedAt)}
	started := stamp(r.StartedAt)
	switch {
	case r.State == "skipped" || r.State == "missed":
		t.Kind = r.State
		return t
	case started.IsZero() && r.FinishedAt != nil && len(r.Attempts) > 0: // quick: its start was not reported
		started = stamp(r.Attempts[0].DispatchedAt)
	case started.IsZero() && r.FinishedAt != nil:
		t.Kind = "cancelled"
		return t
	case started.IsZero():
		started, t.Kind = now, "waiting"
	}
	t.Late = max(0, started.Sub(t.At))
	t.Before = min(t.Late, max(0, stamp(r.AcceptedAt).Sub(t.At)))
	if t.Kind == "" {
		t.Kind = "fired"
		if t.Late > tickSlack {
			t.Kind = "delayed"
		}
	}
	return t
}

// ticksOf returns the outcomes of the planned times from since until now, the newest first: the runs,
// and between them the planned times without a run. The plan is that of the definition since changed;
// nothing is said about planned times before that without a run.
func ticksOf(runs []*apiv1.Run, plan schedule.Plan, changed, since, now time.Time) []tick {
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b *apiv1.Run) int { return stamp(a.PlannedAt).Compare(stamp(b.PlannedAt)) })
	var ticks []tick
	gap := func(after, until time.Time, covered int64) {
		if after.Before(changed) {
			after = changed
		}
		if !after.Before(until) {
			return
		}
		if n := plan.Count(after, until) - covered; n > 0 {
			ticks = append(ticks, tick{Kind: "norun", At: after, Until: until, Count: n})
		}
	}
	from, covered := since, int64(0) // covered are planned times at or after from that the last run is for
	for _, r := range runs {
		at := stamp(r.PlannedAt)
		if at.Before(since) || at.After(now) {
			continue
		}
		gap(from, at, covered)
		ticks = append(ticks, tickOf(r, now))
		from, covered = at.Add(time.Millisecond), r.Covers
	}
	gap(from, now.Add(-tickSlack), covered)
	slices.Reverse(ticks)
	return ticks
}

// scheduleTab returns the planned times of a job.
func (c *console) scheduleTab(v *visit, j *apiv1.Job, calendars schedule.Calendars, now time.Time) (*scheduleView, error) {
	plan, err := schedule.NewPlan(j, calendars)
	if err != nil {
		return &scheduleView{Zone: j.GetSchedule().GetZone(), Since: now}, nil // a newer server may have other schedules
	}
	view := &scheduleView{
		Zone: plan.Location().String(), Coming: markChanges(upcoming(j, calendars, now, comingTimes), now),
		Since: now.AddDate(0, 0, -tickDays), Odd: v.r.URL.Query().Get("only") == "odd",
	}
	runs, err := c.scheduledRuns(v.ctx, v.app, j.Name, view)
	if err != nil {
		return nil, err
	}
	if view.Cut {
		view.Since = stamp(slices.MinFunc(runs, func(a, b *apiv1.Run) int { return stamp(a.PlannedAt).Compare(stamp(b.PlannedAt)) }).PlannedAt)
	}
	changed := stamp(j.UpdatedAt)
	if j.NextAt != nil {
		plan = plan.Anchor(stamp(j.NextAt))
	} else if j.GetSchedule().GetEvery() != "" && j.GetSchedule().GetFrom() == "" {
		plan = schedule.Plan{} // the server does not say from where a paused rate counts
	}
	view.Changed = changed.After(view.Since)
	view.Ticks = ticksOf(runs, plan, changed, view.Since, now)
	if view.Odd {
		view.Ticks = slices.DeleteFunc(view.Ticks, func(t tick) bool { return t.Kind == "fired" })
	}
	return view, nil
}

// scheduledRuns returns the newest runs of the schedule of a job that are live or ended since a time, and
// tells the view whether there are more.
func (c *console) scheduledRuns(ctx context.Context, app, name string, view *scheduleView) ([]*apiv1.Run, error) {
	var runs []*apiv1.Run
	token := ""
	for range tickCalls {
		answer, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{
			App: app, Job: name, Triggers: []string{"schedule"}, Since: timestamppb.New(view.Since), PageSize: pageSize, PageToken: token,
		})
		if err != nil {
			return nil, err
		}
		runs, token = append(runs, answer.Runs...), answer.NextPageToken
		view.Unreadable += answer.UnreadableBlocks
		if token == "" {
			return runs, nil
		}
	}
	view.Cut = len(runs) > 0
	return runs, nil
}
