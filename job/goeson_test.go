package job

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestGoesOn checks which schedules continue at their pace when the clock is set back.
func TestGoesOn(t *testing.T) {
	for name, x := range map[string]struct {
		s    *apiv1.Schedule
		want bool
	}{
		"seconds":         {&apiv1.Schedule{Every: "5s"}, true},
		"hours":           {&apiv1.Schedule{Every: "1h"}, true},
		"milliseconds":    {&apiv1.Schedule{Every: "10ms"}, true},
		"an odd rate":     {&apiv1.Schedule{Every: "1501ms"}, true},
		"a delay":         {&apiv1.Schedule{Delay: "700ms"}, true},
		"once after":      {&apiv1.Schedule{After: "2h"}, true},
		"jitter":          {&apiv1.Schedule{Every: "1m", Jitter: "30s"}, true},
		"cron":            {&apiv1.Schedule{Cron: "* * * * *"}, false},
		"daily":           {&apiv1.Schedule{Daily: &apiv1.Daily{Every: "1m"}}, false},
		"at":              {&apiv1.Schedule{At: "2027-01-01T00:00:00Z"}, false},
		"from a set time": {&apiv1.Schedule{Every: "5s", From: "2026-01-01T00:00:00Z"}, false},
	} {
		slot := NewSlot("a", SlotOf("j"))
		slot.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{App: "a", Name: "j", Schedule: x.s}}}}, nil)
		if got := slot.Jobs.Get("j").GoesOn(); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
