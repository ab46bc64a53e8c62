package planned

import (
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// shortest is the shortest time between two planned times.
const shortest = time.Minute

// Schedule plans backups. Its zero value plans none.
type Schedule struct {
	text string
	plan schedule.Plan
}

// ParseSchedule reads a cron expression, whose times are in UTC, or "every" with a duration.
// "" plans nothing.
func ParseSchedule(text string) (Schedule, error) {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return Schedule{}, nil
	}
	s := &apiv1.Schedule{Cron: text}
	if every, ok := strings.CutPrefix(text, "every "); ok {
		s = &apiv1.Schedule{Every: every}
	}
	plan, err := schedule.NewPlan(&apiv1.Job{Name: "backup", Schedule: s}, nil)
	if err != nil {
		return Schedule{}, fmt.Errorf(`%q plans no backup: write a cron expression like "30 2 * * *", or "every 6h": %w`, text, err)
	}
	first, ok := plan.After(time.Now())
	if !ok {
		return Schedule{}, fmt.Errorf("%q has no time in the future: choose another schedule", text)
	}
	if second, ok := plan.After(first); ok && second.Sub(first) < shortest {
		return Schedule{}, fmt.Errorf("%q plans backups %v apart: let at least a minute be between them", text, second.Sub(first))
	}
	return Schedule{text, plan}, nil
}

// String returns the schedule as it was written.
func (s Schedule) String() string { return s.text }

// after returns the first planned time after t; zero: there is none.
func (s Schedule) after(t time.Time) time.Time {
	if s.text == "" {
		return time.Time{}
	}
	next, ok := s.plan.After(t)
	if !ok {
		return time.Time{}
	}
	return next.UTC()
}
