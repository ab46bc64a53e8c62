package core

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/projection"
	"github.com/wheelworkhq/wheelwork/store"
)

// alertClock is a loop whose clock the test sets, with alerts that come with a time.
type alertClock struct {
	t *testing.T
	l *Loop
	a *app
}

// newAlertClock begins at 10:00 UTC. The job "rule" is selected by rules of documents, "own" has the same alerts itself.
func newAlertClock(t *testing.T, start time.Time) *alertClock {
	t.Helper()
	st, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	l, err := newLoop(Config{Journal: roomy{}, History: st, View: projection.New(projection.Config{Store: st}), MaxLive: 1000, Now: func() time.Time { return start }})
	if err != nil {
		t.Fatal(err)
	}
	l.clock.set(start)
	l.timing.rebuildTimers()
	c := &alertClock{t, l, l.State.app("a")}
	l.Alerts.serves = true
	l.ChangeSets.define(c.a, &apiv1.AlertChannel{App: "a", Name: "ops", Slack: &apiv1.AlertRobot{Url: "https://example.com/hook"}})
	own := []*apiv1.JobAlert{
		{Events: []string{"no_success_since"}, When: &apiv1.JobAlertTimes{NoSuccessSince: "7h"}, Channels: []string{"ops"}},
		{Events: []string{"not_finished_by"}, When: &apiv1.JobAlertTimes{NotFinishedBy: "18:30"}, Channels: []string{"ops"}},
	}
	l.ChangeSets.define(c.a, &apiv1.AlertRule{App: "a", Name: "since", Events: own[0].Events, When: &apiv1.AlertTimes{NoSuccessSince: "7h"}, Select: &apiv1.AlertSelection{Jobs: []string{"rule"}}, Channels: []string{"ops"}})
	l.ChangeSets.define(c.a, &apiv1.AlertRule{App: "a", Name: "by", Events: own[1].Events, When: &apiv1.AlertTimes{NotFinishedBy: "18:30"}, Select: &apiv1.AlertSelection{Jobs: []string{"rule"}}, Channels: []string{"ops"}})
	for name, alerts := range map[string][]*apiv1.JobAlert{"rule": nil, "own": own} {
		l.commits.record(c.a.slots[job.SlotOf(name)], &apiv1.Record{AtMs: start.UnixMilli(), Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{
			Job: &apiv1.Job{App: "a", Name: name, Handler: &apiv1.Handler{Name: "native:x"}, Alerts: alerts, CreatedAt: timestamppb.New(start), UpdatedAt: timestamppb.New(start)},
		}}})
	}
	c.turn()
	return c
}

// turn does what a turn does for alerts: the timers that are due, and the fold.
func (c *alertClock) turn() {
	for range 3 { // a scan is a turn of its own
		c.l.timing.wheel.advance(c.l.clock.nowMs, func(_ int64, v timer) {
			if x, ok := v.(*alertTimer); ok {
				x.fire(c.l)
			}
		})
		c.l.Alerts.follow()
		c.l.commits.stage.fx = nil
	}
}

// step sets the clock, as [Loop.tick] does when it finds that the clock was set.
func (c *alertClock) step(by time.Duration) {
	c.l.clock.set(c.l.clock.now.Add(by))
	if by < 0 {
		c.l.timing.turnBack(-by.Milliseconds())
		c.l.timing.rebuildTimers()
	}
	c.turn()
}

// restart loads the alerts again, as the next owner of the partition does.
func (c *alertClock) restart() {
	if err := c.l.Alerts.resume(); err != nil {
		c.t.Fatal(err)
	}
	c.turn()
}

// fires goes on to a time of the clock, in turns at the times for which the loop has timers, and returns when each rule fired.
func (c *alertClock) fires(until time.Time) map[string]time.Time {
	at := map[string]time.Time{}
	note := func() {
		for _, x := range c.a.alerts.state.Alerts(c.l.clock.nowMs) {
			if _, seen := at[x.Rule.Name]; !seen {
				at[x.Rule.Name] = c.l.clock.now
			}
		}
	}
	for note(); c.l.clock.now.Before(until); note() {
		next := until
		if ms, ok := c.l.timing.wheel.next(); ok && time.UnixMilli(ms).Before(next) {
			next = time.UnixMilli(ms)
		}
		if !next.After(c.l.clock.now) {
			next = c.l.clock.now.Add(time.Millisecond)
		}
		c.l.clock.set(next.UTC())
		c.turn()
	}
	return at
}

// TestAlertsByTheClock: no_success_since and not_finished_by fire within a second of their times, although the server was
// restarted before, or the clock was set.
func TestAlertsByTheClock(t *testing.T) {
	start := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	since, by := start.Add(7*time.Hour), time.Date(2026, 3, 2, 18, 30, 0, 0, time.UTC)
	for name, do := range map[string]func(c *alertClock){
		"nothing":        func(*alertClock) {},
		"a restart":      func(c *alertClock) { c.fires(start.Add(3 * time.Hour)); c.restart() },
		"forwards":       func(c *alertClock) { c.fires(start.Add(time.Hour)); c.step(2 * time.Hour) },
		"backwards":      func(c *alertClock) { c.fires(start.Add(3 * time.Hour)); c.step(-2 * time.Hour) },
		"backwards, far": func(c *alertClock) { c.fires(start.Add(3 * time.Hour)); c.step(-9 * time.Hour) },
		"there and back": func(c *alertClock) {
			c.step(6 * time.Hour)
			c.fires(start.Add(6*time.Hour + time.Minute))
			c.step(-5 * time.Hour)
		},
		"backwards, restarted": func(c *alertClock) { c.fires(start.Add(3 * time.Hour)); c.step(-time.Hour); c.restart() },
		"restarted, backwards": func(c *alertClock) {
			c.fires(start.Add(time.Hour))
			c.restart()
			c.step(-time.Hour)
			c.step(-time.Second)
		},
		"many restarts": func(c *alertClock) {
			for i := range 20 {
				c.fires(start.Add(time.Duration(i) * 20 * time.Minute))
				c.restart()
			}
		},
		"backwards many times": func(c *alertClock) {
			for i := range 20 {
				c.fires(start.Add(time.Duration(i) * 10 * time.Minute))
				c.step(-time.Minute)
			}
		},
	} {
		c := newAlertClock(t, start)
		do(c)
		if early := c.a.alerts.state.Alerts(c.l.clock.nowMs); len(early) != 0 {
			t.Fatalf("%s: %d alerts before their times", name, len(early))
		}
		got := c.fires(by.Add(time.Hour))
		for rule, want := range map[string]time.Time{"since": since, "by": by, "job:own:0": since, "job:own:1": by} {
			if at := got[rule]; at.Before(want) || at.After(want.Add(time.Second)) {
				t.Errorf("%s: rule %s fired at %s, want %s", name, rule, at.Format(time.TimeOnly), want.Format(time.TimeOnly))
			}
		}
	}

	// A clock that is set beyond the times fires at once.
	c := newAlertClock(t, start)
	c.step(12 * time.Hour)
	if got := c.fires(c.l.clock.now.Add(time.Second)); len(got) != 4 {
		t.Errorf("beyond the times: %s", fmt.Sprint(got))
	}
}
