package fair

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestPaces checks that a pace represents its duration within 5 %, and is never 0.
func TestPaces(t *testing.T) {
	for d := time.Microsecond; d < time.Hour; d += d/7 + 1 {
		p := PaceOf(d)
		if got := Times[p]; p == 0 || float64(got) < 0.95*float64(d) || float64(got) > 1.05*float64(d) {
			t.Fatalf("%v has the pace %d, which is %v", d, p, got)
		}
	}
	if PaceOf(0) == 0 || PaceOf(100*time.Hour) != 255 || IsQuick(0) || !IsQuick(PaceOf(900*time.Millisecond)) || IsQuick(PaceOf(time.Second)) {
		t.Error("a pace at the edge is wrong")
	}
}

// TestComing checks that within reports planned times of this minute and the next, and
// that forget drops earlier ones.
func TestComing(t *testing.T) {
	var c Coming
	const minute = 60_000
	for _, at := range []int64{10*minute + 5, 12 * minute} {
		c.Add(at)
	}
	for at, want := range map[int64]bool{8: false, 9: true, 10: true, 11: true, 12: true, 13: false} {
		if got := c.Within(at * minute); got != want {
			t.Errorf("in minute %d: %v", at, got)
		}
	}
	if c.Forget(12); len(c) != 1 || !c.Within(12*minute) {
		t.Errorf("left: %v", c)
	}
}

// TestLaneTurns checks that jobs take turns in a lane, that the runs of each job stay in
// order, and that an empty lane holds no job.
func TestLaneTurns(t *testing.T) {
	slots := map[string]*job.Slot{}
	var ln Lane
	runOf := func(name string, n int64) *job.Run {
		s := slots[name]
		if s == nil {
			s = job.NewSlot("a", job.SlotOf(name))
			s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: name}}}}, nil)
			slots[name] = s
		}
		id := job.OccurrenceID("a", name, time.UnixMilli(n), "")
		s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: name}}}, nil)
		return s.Runs.Get(id)
	}
	for range 3 { // the ring buffer is reused
		for n := range int64(40) {
			ln.push(runOf("many", n))
		}
		ln.push(runOf("one", 1))
		for n := range int64(3) {
			ln.push(runOf("few", n))
		}
		var order []string
		last := map[string]int64{"many": -1, "one": -1, "few": -1}
		for ln.Len() > 0 {
			if ln.Peek() == nil {
				t.Fatal("a lane with turns shows no run")
			}
			r := ln.pop(4).run
			if r.PlannedMs <= last[r.Job] {
				t.Fatalf("run %d of %s comes after run %d", r.PlannedMs, r.Job, last[r.Job])
			}
			last[r.Job] = r.PlannedMs
			order = append(order, r.Job)
		}
		few := 0
		for i, name := range order[:12] {
			if name == "few" {
				few = i
			}
		}
		if len(order) != 44 || few == 0 {
			t.Errorf("the order is %v", order)
		}
		if len(ln.queues) != 0 || slots["many"].Jobs.Get("many").Mark != 0 || slots["few"].Jobs.Get("few").Mark != 0 {
			t.Error("an empty lane remembers jobs")
		}
		clear(slots)
	}
}

// TestLaneOfAJobThatNeverEnds checks that a job which always has queued runs takes no
// more memory than those runs need.
func TestLaneOfAJobThatNeverEnds(t *testing.T) {
	slot := job.NewSlot("a", job.SlotOf("j"))
	slot.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "j"}}}}, nil)
	id := job.OccurrenceID("a", "j", time.UnixMilli(1), "")
	slot.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "j"}}}, nil)
	var ln Lane
	for n := range 100_000 {
		if ln.push(slot.Runs.Get(id)); n >= 100 {
			ln.pop(1)
		}
	}
	queue := ln.queues[slot.Jobs.Get("j")]
	if queue == nil || cap(queue.runs) > 8192 {
		t.Errorf("100 waiting runs take room for %d", cap(queue.runs))
	}
}
