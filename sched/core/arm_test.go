package core

import (
	"fmt"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

// TestSweep checks that the wheel holds at most as many stale timers as valid ones,
// however often jobs are planned again, and that a sweep drops no valid timer.
func TestSweep(t *testing.T) {
	const (
		now   = int64(1_800_000_000_000)
		hour  = int64(3_600_000)
		jobs  = 3000
		edits = 20
	)
	l := bare(t, time.UnixMilli(now))
	a := &app{name: "a"}
	for i := range a.slots {
		a.slots[i] = job.NewSlot(a.name, uint8(i))
		a.slots[i].Owner = a
	}
	l.State.apps[a.name] = a
	put := func(name string, revision, next int64) {
		rec := &apiv1.Record{AtMs: now, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
			Job: &apiv1.Job{App: "a", Name: name, Revision: revision}, NextMs: next,
		}}}
		for _, e := range a.slots[job.SlotOf(name)].Apply(rec, nil) {
			if e.Change == job.JobPlanned {
				l.perform(&e)
			}
		}
		l.timing.sweep()
	}
	name := func(i int) string { return fmt.Sprintf("job-%d", i) }
	for edit := range edits {
		for i := range jobs { // alternates between two times, so old timers become valid again
			put(name(i), int64(edit+1), now+hour*int64(100+edit%2*1000)+int64(i))
		}
	}
	for i := range jobs / 2 {
		a.slots[job.SlotOf(name(i))].Apply(&apiv1.Record{AtMs: now, Kind: &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: name(i)}}}, nil)
	}
	gone := &hosts.Host{Connected: false, Generation: 3}
	l.timing.wheel.add(now+hour, &hostLease{gone, 3})
	for range leastSweep {
		l.timing.wheel.add(now+hour, &hostLease{gone, 2})                                // of an older session
		l.timing.wheel.add(now+hour, runTimer{&job.Run{App: "a", State: job.Cancelled}}) // revoked
		l.timing.sweep()
	}
	if n := l.timing.wheel.len(); n > 2*(jobs+1)+leastSweep {
		t.Fatalf("%d timers for %d jobs", n, jobs)
	}
	l.timing.sweepAt = 0
	l.timing.sweep()
	jobTimers, leases := map[string]int64{}, 0
	l.timing.wheel.advance(now+hour*2000, func(due int64, v timer) {
		switch v := v.(type) {
		case jobTimer:
			if _, twice := jobTimers[v.j.Name()]; twice || !v.j.Current() {
				t.Fatalf("%s has a stale timer", v.j.Name())
			}
			jobTimers[v.j.Name()] = due
		case *hostLease:
			leases++
		default:
			t.Fatalf("a timer of %T is left", v)
		}
	})
	if len(jobTimers) != jobs/2 || leases != 1 {
		t.Fatalf("%d jobs and %d leases have a timer, want %d and 1", len(jobTimers), leases, jobs/2)
	}
	for i := jobs / 2; i < jobs; i++ {
		if got, want := jobTimers[name(i)], armAt(now+hour*1100+int64(i)); got != want {
			t.Fatalf("%s has a timer at %d, want %d", name(i), got, want)
		}
	}
}

// TestSweepKeepsTheEarliest checks that a job which is rescheduled to an earlier time
// fires at that time, wherever its older timer lies in the wheel.
func TestSweepKeepsTheEarliest(t *testing.T) {
	const hour = int64(3_600_000)
	for part := range int64(64) { // fractions of a turn of the wheel level that holds both times
		now := int64(1_800_000_000_000) + part*hour*20
		s := job.NewSlot("a", 0)
		a := &app{name: "a"}
		s.Owner = a
		for i := range a.slots {
			a.slots[i] = s
		}
		l := bare(t, time.UnixMilli(now))
		l.timing.sweepAt = 0
		l.State.apps["a"] = a
		for revision, next := range []int64{now + 1100*hour, now + 100*hour} {
			rec := &apiv1.Record{AtMs: now, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
				Job: &apiv1.Job{App: "a", Name: "j", Revision: int64(revision + 1)}, NextMs: next,
			}}}
			for _, e := range s.Apply(rec, nil) {
				if e.Change == job.JobPlanned {
					l.perform(&e)
				}
			}
		}
		l.timing.sweep()
		var fired []int64
		l.timing.wheel.advance(now+1200*hour, func(due int64, _ timer) { fired = append(fired, due) })
		if want := armAt(now + 100*hour); len(fired) != 1 || fired[0] != want {
			t.Fatalf("part %d: timers at %d, want one at %d", part, fired, want)
		}
	}
}
