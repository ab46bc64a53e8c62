package sched

import (
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// The clock of a bubble only goes forward, so what a clock that was set back
// does to the loop is tested on the loop itself.

// turnedBack returns a loop with one app, and what sets its clock back by an hour.
func turnedBack() (l *loop, a *app, setBack func()) {
	now := time.Now()
	l = &loop{
		apps: map[string]*app{}, wheel: newTimers(now.UnixMilli()), sweepAt: leastSweep,
		rates: map[jobKey]*bucket{}, hosts: map[string]*host{}, lines: map[jobKey]*line{}, hub: newHub(),
	}
	l.setNow(now)
	a = &app{name: "a"}
	for i := range a.slots {
		a.slots[i] = job.NewSlot(a.name, uint8(i))
		a.slots[i].Owner = a
	}
	l.apps[a.name] = a
	return l, a, func() {
		l.nowMs -= time.Hour.Milliseconds() // l.now keeps its monotonic reading, as a real clock does
		l.rewind()
	}
}

func apply(a *app, name string, rec *apiv1.Record) []job.Effect {
	return a.slots[job.SlotOf(name)].Apply(rec, nil)
}

func TestRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, setBack := turnedBack()
		start := l.nowMs
		hour := time.Hour.Milliseconds()
		// A run that was due half an hour ago is due again in half an hour.
		const name = "j"
		apply(a, name, &apiv1.Record{AtMs: start - 2*hour, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
			Job: &apiv1.Job{App: "a", Name: name, Deadline: "1m"}, NextMs: start + 5000,
		}}})
		planned := start - hour/2
		apply(a, name, &apiv1.Record{AtMs: planned, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
			{Job: name, PlannedMs: planned, NextMs: start + 5000},
		}}}})
		limited := &again{r: &job.Run{App: "a", Job: name}, b: &bucket{}}
		l.wheel.Add(start+60_000, limited)
		away := &host{lostAt: l.now.Add(10 * time.Second)}
		l.hosts["h"] = away
		l.wheel.Add(start+1, "stale")

		setBack()
		got := map[any]int64{}
		l.wheel.Advance(start+2*hour, func(due int64, v any) {
			switch x := v.(type) {
			case *job.Job:
				got["job"] = due
			case *job.Run:
				got["run"] = due
			case *deadline:
				got["deadline"] = due
			case *again:
				got["again"] = due
			case *hostLease:
				got["lease"] = due
			default:
				t.Errorf("the new wheel holds %v", x)
			}
		})
		for what, want := range map[string]int64{
			"job": armAt(start + 5000), "run": planned, "deadline": planned + time.Minute.Milliseconds() + 1,
			"again": start - hour + armWindow, "lease": start - hour + 10_000,
		} {
			if got[what] != want {
				t.Errorf("the %s is due %d ms after the start, want %d", what, got[what]-start, want-start)
			}
		}
	})
}

// A rate goes on at its pace when the clock was set back.
func TestRateAfterTheClockWasSetBack(t *testing.T) {
	l, _, setBack := turnedBack()
	p := &job.Policy{Rate: 2, RatePer: time.Second}
	start := func() bool { return !l.limited(&job.Run{App: "a", Job: "j", Policy: p}) }
	for i, want := range []bool{true, true, false} {
		if got := start(); got != want {
			t.Fatalf("start %d: %v", i, got)
		}
	}
	if setBack(); start() {
		t.Error("a start beyond the rate as the clock is set back")
	}
	l.nowMs += 500
	if !start() || start() {
		t.Error("half a second later there is not one start")
	}
}

// A run that stood in line when the clock was set back before its time may be
// revoked: it leaves the line.
func TestRevokedLeavesTheLine(t *testing.T) {
	l, a, setBack := turnedBack()
	const name = "j"
	put := &apiv1.JobPut{Job: &apiv1.Job{App: "a", Name: name, Overlap: &apiv1.Overlap{Policy: "queue"}}, Rescheduled: true}
	apply(a, name, &apiv1.Record{AtMs: l.nowMs, Kind: &apiv1.Record_JobPut{JobPut: put}})
	for _, planned := range []int64{l.nowMs - 2, l.nowMs - 1} {
		fx := apply(a, name, &apiv1.Record{AtMs: planned, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
			{Job: name, PlannedMs: planned},
		}}}})
		l.admit(fx[len(fx)-1].Run)
	}
	if ln := l.lines[jobKey{"a", name}]; ln == nil || len(ln.in) != 1 || len(ln.held) != 1 {
		t.Fatalf("the line is %+v", ln)
	}
	setBack()
	for _, e := range apply(a, name, &apiv1.Record{AtMs: l.nowMs, Kind: &apiv1.Record_JobPut{JobPut: put}}) {
		l.perform(&e)
	}
	if len(l.lines) != 0 {
		t.Errorf("the line is %+v", l.lines[jobKey{"a", name}])
	}
}
