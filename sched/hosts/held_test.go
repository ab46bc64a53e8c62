package hosts

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
)

// TestHeldCounts checks that dropping the runs of a host reverts the charges for them
// exactly, even if the pace of the job changed meanwhile, and that the presence of an app
// is forgotten after SharedFor.
func TestHeldCounts(t *testing.T) {
	a := &fair.App{Name: "a"}
	slot := job.NewSlot("a", job.SlotOf("j"))
	var runs []*job.Run
	slot.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "j"}}}}, nil)
	for i := range 3 {
		id := job.OccurrenceID("a", "j", time.UnixMilli(int64(i)), "")
		slot.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "j"}}}, nil)
		runs = append(runs, slot.Runs.Get(id))
	}
	var h Held
	for i, pace := range []uint8{0, fair.PaceOf(time.Millisecond), fair.PaceOf(time.Minute)} {
		h.Take(a, runs[i], pace, 1000)
	}
	if h.Slow != 2 || h.Quick != fair.Times[fair.PaceOf(time.Millisecond)] || len(h.Runs) != 3 || h.Presence(a).Slow != 2 {
		t.Errorf("held: %+v", h)
	}
	slot.Jobs.Get("j").Pace = fair.PaceOf(time.Second)
	for _, r := range runs {
		if !h.Drop(a, r, 2000) || h.Drop(a, r, 2000) {
			t.Error("a run is dropped once")
		}
	}
	if h.Slow != 0 || h.Quick != 0 || len(h.Runs) != 0 || h.Presence(a).Slow != 0 {
		t.Errorf("held afterwards: %+v", h)
	}
	h.Tidy(2000 + SharedFor.Milliseconds())
	if len(h.Apps) != 1 {
		t.Error("the app is forgotten too early")
	}
	if h.Tidy(2001 + SharedFor.Milliseconds()); len(h.Apps) != 0 {
		t.Error("the app is not forgotten")
	}
}
