package schedule

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func planWith(t *testing.T, s *apiv1.Schedule) Plan {
	t.Helper()
	p, err := NewPlan(&apiv1.Job{App: "a", Name: "j", Schedule: s}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBack checks which times continue when the clock is set back and at which pace, and
// that a fixed rate repeats no earlier time.
func TestBack(t *testing.T) {
	next := time.Date(2026, 11, 24, 11, 0, 5, 7e6, time.UTC)
	for name, x := range map[string]struct {
		s      *apiv1.Schedule
		by     time.Duration
		goesOn bool
		late   time.Duration // the longest delay behind the pace
	}{
		"seconds":         {&apiv1.Schedule{Every: "5s"}, time.Hour, true, time.Second},
		"hours":           {&apiv1.Schedule{Every: "1h"}, 25 * time.Minute, true, time.Second},
		"milliseconds":    {&apiv1.Schedule{Every: "10ms"}, time.Hour, true, 10 * time.Millisecond},
		"an odd rate":     {&apiv1.Schedule{Every: "1501ms"}, 1501 * 2000 * time.Millisecond, true, 2 * time.Second},
		"a delay":         {&apiv1.Schedule{Delay: "700ms"}, time.Hour, true, 0},
		"once after":      {&apiv1.Schedule{After: "2h"}, time.Hour, true, 0},
		"jitter":          {&apiv1.Schedule{Every: "1m", Jitter: "30s"}, time.Hour, true, time.Second},
		"cron":            {&apiv1.Schedule{Cron: "* * * * *"}, time.Hour, false, 0},
		"daily":           {&apiv1.Schedule{Daily: &apiv1.Daily{Every: "1m"}}, time.Hour, false, 0},
		"at":              {&apiv1.Schedule{At: "2027-01-01T00:00:00Z"}, time.Hour, false, 0},
		"from a set time": {&apiv1.Schedule{Every: "5s", From: "2026-01-01T00:00:00Z"}, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := planWith(t, x.s)
			at, used := next, map[int64]bool{}
			for round := range 5 { // five steps back, with 200 planned times between them
				to, goesOn := p.Back(at, x.by)
				if goesOn != x.goesOn {
					t.Fatalf("it goes on: %v", goesOn)
				}
				if !goesOn {
					if !to.Equal(at) {
						t.Errorf("it waits for the clock, and moves to %v", to)
					}
					return
				}
				if late := to.Sub(at.Add(-x.by)); late < 0 || late > x.late {
					t.Errorf("round %d: it is %v behind its pace", round, late)
				}
				if x.s.Every == "" {
					return
				}
				step, _ := time.ParseDuration(x.s.Every)
				for back := int64(0); back < 200; back++ { // the times that were planned before the step
					used[at.Add(-time.Duration(back)*step).UnixMilli()] = true
				}
				at = to
				for range 200 {
					if used[at.UnixMilli()] {
						t.Fatalf("round %d: %v was planned before", round, at)
					}
					next, ok := p.Anchor(at).After(at)
					if !ok || next.Sub(at) != step {
						t.Fatalf("round %d: %v comes after %v", round, next, at)
					}
					at = next
				}
			}
		})
	}
}

// TestAhead checks how a server detects that the clock was set back while no server was
// up.
func TestAhead(t *testing.T) {
	now := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	const early = 2 * time.Second
	for name, x := range map[string]struct {
		s     *apiv1.Schedule
		ahead time.Duration
		want  time.Duration
	}{
		"a rate":            {&apiv1.Schedule{Every: "10s"}, 12 * time.Second, 0},
		"a rate, set back":  {&apiv1.Schedule{Every: "10s"}, time.Hour + 3*time.Second, time.Hour},
		"a delay":           {&apiv1.Schedule{Delay: "10s"}, 10 * time.Second, 0},
		"a delay, set back": {&apiv1.Schedule{Delay: "10s"}, time.Hour, time.Hour - 10*time.Second},
		"once":              {&apiv1.Schedule{After: "1h"}, time.Hour, 0},
		"cron":              {&apiv1.Schedule{Cron: "0 0 * * *"}, 48 * time.Hour, 0},
		"delay from a time": {&apiv1.Schedule{Delay: "10s", From: "2026-11-24T12:00:00Z"}, 2 * time.Hour, 0},
		"rate from a time":  {&apiv1.Schedule{Every: "10s", From: "2026-11-24T12:00:00Z"}, 2 * time.Hour, 0},
	} {
		if got := planWith(t, x.s).Ahead(now.Add(x.ahead), now, early); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
