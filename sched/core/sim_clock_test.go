package core

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
	"github.com/wheelworkhq/wheelwork/sched/projection"
	"github.com/wheelworkhq/wheelwork/store"
)

// The fake clock of a synctest bubble only goes forward, so these tests set back the
// clock of a loop directly.

// turnedBack returns a loop with one app, and a function that sets the clock of the loop
// back by an hour.
func turnedBack(t *testing.T) (l *Loop, a *app, setBack func()) {
	now := time.Now()
	l = bare(t, now)
	a = &app{name: "a"}
	for i := range a.slots {
		a.slots[i] = job.NewSlot(a.name, uint8(i))
		a.slots[i].Owner = a
	}
	l.State.apps[a.name] = a
	return l, a, func() {
		l.clock.nowMs -= time.Hour.Milliseconds() // l.now keeps its monotonic reading, as a real clock does
		l.timing.turnBack(time.Hour.Milliseconds())
		l.timing.rebuildTimers()
	}
}

func apply(a *app, name string, rec *apiv1.Record) []job.Effect {
	return a.slots[job.SlotOf(name)].Apply(rec, nil)
}

func TestRebuildTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, setBack := turnedBack(t)
		start := l.clock.nowMs
		hour := time.Hour.Milliseconds()
		// A run that was due half an hour ago is in the queue and stays due.
		const name = "j"
		apply(a, name, &apiv1.Record{AtMs: start - 2*hour, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
			Job: &apiv1.Job{App: "a", Name: name, Deadline: "1m"}, NextMs: start + 5000,
		}}})
		planned := start - hour/2
		apply(a, name, &apiv1.Record{AtMs: planned, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
			{Job: name, PlannedMs: planned, NextMs: start + 5000},
		}}}})
		limited := &readmitTimer{r: &job.Run{App: "a", Job: name}, b: &bucket{}}
		l.timing.wheel.add(start+60_000, limited)
		away := &hosts.Host{LostAt: l.clock.now.Add(10 * time.Second)}
		l.Sessions.hosts["h"] = away
		l.timing.wheel.add(start+1, workflowTimer{limited.r})

		setBack()
		got := map[string]int64{}
		l.timing.wheel.advance(start+2*hour, func(due int64, v timer) {
			switch x := v.(type) {
			case jobTimer:
				got["job"] = due
			case runTimer:
				got["run"] = due
			case deadlineTimer:
				got["deadline"] = due
			case *readmitTimer:
				got["again"] = due
			case *hostLease:
				got["lease"] = due
			default:
				t.Errorf("the new wheel holds %v", x)
			}
		})
		for what, want := range map[string]int64{
			"job": armAt(start + 5000), "run": start - hour, "deadline": start - hour, // at once
			"again": start - hour + armWindow, "lease": start - hour + 10_000,
		} {
			if got[what] != want {
				t.Errorf("the %s is due %d ms after the start, want %d", what, got[what]-start, want-start)
			}
		}
	})
}

// roomy is a journal that always has room.
type roomy struct{ journal.Journal }

func (roomy) Room() int64 { return 1 << 30 }

// TestGoesOnWhenTheClockIsSetBack sets back the clock of a loop at work. Jobs with a
// rate, with a delay and with a single later time continue within two seconds, at planned
// times that they never had. Cron jobs wait for the clock.
func TestGoesOnWhenTheClockIsSetBack(t *testing.T) {
	st, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close() //nolint:errcheck // the test is over
	l, err := newLoop(Config{Journal: roomy{}, History: st, View: projection.New(projection.Config{Store: st}), MaxLive: 1000})
	if err != nil {
		t.Fatal(err)
	}
	const app = "a"
	start, hour := l.clock.nowMs, time.Hour.Milliseconds()
	slot := func(name string) *job.Slot { return l.State.app(app).slots[job.SlotOf(name)] }
	schedules := map[string]*apiv1.Schedule{"rate": {Every: "1s"}, "slow rate": {Every: "1h"}, "delay": {Delay: "1s"}, "after": {After: "1m"}, "cron": {Cron: "* * * * * *"}}
	next := map[string]int64{"rate": 700, "slow rate": hour / 2, "delay": 900, "after": 30_000, "cron": 4000 - start%1000} // ms from the start
	for name, s := range schedules {
		next[name] += start
		l.commits.record(slot(name), &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
			Job: &apiv1.Job{App: app, Name: name, Handler: &apiv1.Handler{Name: "native:x"}, Schedule: s}, NextMs: next[name],
		}}})
	}
	// Each of the two jobs has a run that is due at the step and an armed run that is
	// not.
	l.commits.record(slot("rate"), &apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
		{Job: "rate", PlannedMs: start - 300, NextMs: next["rate"] + 1000}, {Job: "rate", PlannedMs: next["rate"], NextMs: next["rate"] + 3000},
	}}}})
	l.commits.record(slot("cron"), &apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
		{Job: "cron", PlannedMs: start - 1, NextMs: next["cron"] - 1000}, {Job: "cron", PlannedMs: next["cron"] - 1000, NextMs: next["cron"]},
	}}}})
	had := map[string]map[job.RunID]bool{}
	var late, came []*job.Run
	for name := range schedules {
		had[name] = map[job.RunID]bool{}
		for r := range slot(name).Runs.All() {
			if r.Job != name {
				continue // of another job in the slot
			}
			had[name][r.ID] = true
			if r.PlannedMs < start {
				came = append(came, r)
			} else {
				late = append(late, r)
			}
		}
	}
	if len(came) != 2 || len(late) != 2 {
		t.Fatalf("%d runs whose time has come, %d others", len(came), len(late))
	}

	l.clock.set(time.UnixMilli(start - hour))
	l.timing.turnBack(hour)
	l.timing.rebuildTimers()
	for _, r := range came {
		if !l.timing.due(r) {
			t.Errorf("the run of job %s stood in line, and is not due", r.Job)
		}
	}
	advance := func(ms int64) {
		l.clock.set(l.clock.now.Add(time.Duration(ms) * time.Millisecond))
		l.timing.wheel.advance(l.clock.nowMs, func(_ int64, v timer) {
			if x, ok := v.(jobTimer); ok {
				x.fire(l)
			}
		})
		l.timing.arm()
		for i := range l.commits.stage.fx { // as if they were durable
			l.perform(&l.commits.stage.fx[i])
		}
		l.commits.stage.fx = nil
	}
	advance(0)
	advance(2000)
	for _, r := range late {
		if got, want := l.timing.due(r), r.Job != "cron"; got != want {
			t.Errorf("two seconds after the step the armed run of job %s is due: %v", r.Job, got)
		}
	}
	if x := l.Dispatcher.Explain(late[slices.IndexFunc(late, func(r *job.Run) bool { return r.Job == "cron" })]); !strings.Contains(x.Why, "waits for the clock until") {
		t.Errorf("the armed run of the cron job: %q", x.Why)
	}
	for range 40 {
		advance(1000)
	}
	for name := range schedules {
		fresh := 0
		for r := range slot(name).Runs.All() {
			if r.Job != name || had[name][r.ID] {
				continue
			}
			fresh++
			if ahead := r.PlannedMs - l.clock.nowMs; ahead > knownEarly {
				t.Errorf("%s: a run is planned %d ms ahead", name, ahead)
			}
		}
		want := map[string]int{"rate": 38, "delay": 1, "after": 1}[name]
		if fresh < want || fresh > want+6 || want == 0 && fresh > 0 {
			t.Errorf("%s: %d runs in 42 s, want about %d", name, fresh, want)
		}
	}
	slow := slot("slow rate").Jobs.Get("slow rate")
	if left := l.timing.ahead.next(slow) - l.clock.nowMs; left < hour/2-42_000 || left > hour/2-40_000 {
		t.Errorf("the slow rate comes in %d ms", left)
	}
	if why := l.timing.whyNext(slow); why != "" {
		t.Errorf("the slow rate: %q", why)
	}
	if why := l.timing.whyNext(slot("cron").Jobs.Get("cron")); !strings.Contains(why, "waits for the clock until "+clockText(next["cron"])) {
		t.Errorf("cron: %q", why)
	}
}

// TestRetryAfterTheClockWasSetBack checks that a retry is due after its remaining delay,
// although the clock was set back.
func TestRetryAfterTheClockWasSetBack(t *testing.T) {
	l, a, setBack := turnedBack(t)
	start := l.clock.nowMs
	const name = "j"
	apply(a, name, &apiv1.Record{AtMs: start, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{App: "a", Name: name, Retry: &apiv1.Retry{Max: 1}}}}})
	id := job.NewRunID(job.SlotOf(name), l.clock.now, [9]byte{1})
	fx := apply(a, name, &apiv1.Record{AtMs: start, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: name}}})
	r := fx[0].Run
	apply(a, name, &apiv1.Record{AtMs: start, Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Session: "s", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: 1}}}}})
	apply(a, name, &apiv1.Record{AtMs: start, Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{
		{Run: id[:], Attempt: 1, Host: "h", State: string(job.Waiting), RetryMs: start + 6000},
	}}}})
	if r.State != job.Waiting {
		t.Fatalf("the run is %s", r.State)
	}
	setBack()
	l.clock.nowMs += 5000
	if l.timing.due(r) {
		t.Error("the retry is due a second early")
	}
	if l.clock.nowMs += 1001; !l.timing.due(r) {
		t.Error("the retry is not due")
	}
	l.timing.ahead.account(&job.Effect{Change: job.RunWaiting, Run: r})
	if l.timing.due(r) {
		t.Error("what an attempt after the step waits for is taken as before it")
	}

	// A restarted server derives the due time from the end of the attempt.
	l.timing.turnBack(0)
	if l.timing.due(r) {
		t.Error("the retry is due at once")
	}
	if l.clock.nowMs += 6000; !l.timing.due(r) {
		t.Error("the retry is not due six seconds after the start")
	}
}

// TestRateAfterTheClockWasSetBack checks that a rate continues at its pace after the
// clock was set back.
func TestRateAfterTheClockWasSetBack(t *testing.T) {
	l, _, setBack := turnedBack(t)
	p := &job.Policy{Rate: 2, RatePer: time.Second}
	start := func() bool { return !l.admission.limited(&job.Run{App: "a", Job: "j", Policy: p}) }
	for i, want := range []bool{true, true, false} {
		if got := start(); got != want {
			t.Fatalf("start %d: %v", i, got)
		}
	}
	if setBack(); start() {
		t.Error("a start beyond the rate as the clock is set back")
	}
	l.clock.nowMs += 500
	if !start() || start() {
		t.Error("half a second later there is not one start")
	}
}

// TestRevokedLeavesTheLine checks that a run in the overlap queue is removed from it when
// it is revoked, which is possible once the clock was set back to before its planned
// time.
func TestRevokedLeavesTheLine(t *testing.T) {
	l, a, setBack := turnedBack(t)
	const name = "j"
	put := &apiv1.JobPut{Job: &apiv1.Job{App: "a", Name: name, Overlap: &apiv1.Overlap{Policy: "queue"}}, Rescheduled: true}
	apply(a, name, &apiv1.Record{AtMs: l.clock.nowMs, Kind: &apiv1.Record_JobPut{JobPut: put}})
	for _, planned := range []int64{l.clock.nowMs - 2, l.clock.nowMs - 1} {
		fx := apply(a, name, &apiv1.Record{AtMs: planned, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{
			{Job: name, PlannedMs: planned},
		}}}})
		l.admission.admit(fx[len(fx)-1].Run)
	}
	if ln := l.admission.overlapQueues[jobKey{"a", name}]; ln == nil || len(ln.in) != 1 || len(ln.held) != 1 {
		t.Fatalf("the overlap queue is %+v", ln)
	}
	setBack()
	for _, e := range apply(a, name, &apiv1.Record{AtMs: l.clock.nowMs, Kind: &apiv1.Record_JobPut{JobPut: put}}) {
		l.perform(&e)
	}
	if len(l.admission.overlapQueues) != 0 {
		t.Errorf("the overlap queue is %+v", l.admission.overlapQueues[jobKey{"a", name}])
	}
}
