package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	alerts "github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file folds what happens to runs, jobs and hosts into the alerts of their apps. What a
// turn has seen is folded when its batch is submitted, so the batch has both the change and
// the notifications that it causes: after a crash the journal has both or neither (ADR 62).
// A run costs nothing unless a rule of its app selects its job.

// Notify sets what the loop calls when there may be messages to send: see [Alerts.Take]. It must not block. It is set
// before the loop runs.
func (al *Alerts) Notify(notify func()) { al.notify = notify }

// ensure returns the alerts of an app, and makes them if they are missing.
func (al *Alerts) ensure(a *app) *appAlerts {
	if a.alerts == nil {
		a.alerts = &appAlerts{
			al: al, a: a,
			state: alerts.New(a.name, func(name string) *schedule.Calendar { return al.l.Planner.calendar(a.name, name) }),
			byJob: map[*job.Job][]*alerts.Rule{}, own: jobAlerts{},
		}
		a.alerts.own.readJobs(a)
		a.alerts.watch.of = a.alerts
	}
	return a.alerts
}

// redefine notes that a rule, a channel or a calendar has changed.
func (al *Alerts) redefine(a *app) {
	if al.serves {
		al.ensure(a).stale = true
		al.touch(a)
	}
}

// follow folds the new events of the apps, and records the rows that changed.
func (al *Alerts) follow() {
	if len(al.touched) == 0 || al.l.commits.failure != nil {
		return
	}
	if al.l.commits.cramped() { // nothing can be recorded: try again in a window
		for _, a := range al.touched {
			al.l.timing.after(armWindow, &alertTimer{a, 0})
		}
		return
	}
	touched := al.touched
	al.touched = nil
	for _, a := range touched {
		x := a.alerts
		if x == nil { // the app was deleted in this turn
			continue
		}
		x.touched = false
		if x.stale {
			al.reload(a)
		}
		events := x.seen
		x.seen = nil
		for i := range events {
			al.observe(a, &events[i])
		}
		x.watch.fire(al, a)
		if at := x.state.Due(); at != 0 && at <= al.l.clock.nowMs {
			x.state.Tick(al.l.clock.nowMs)
		}
		al.store(a)
	}
}

// store records the parts of the state that have changed, and plans the next turn of the app.
func (al *Alerts) store(a *app) {
	x := a.alerts
	rows, err := x.state.Changes()
	if err != nil {
		al.l.commits.fail(fmt.Errorf("alerts of app %s: %w", a.name, err))
		return
	}
	if len(rows) > 0 {
		for _, rec := range alerted(rows) {
			al.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_Alerted{Alerted: rec}})
		}
		if x.state.Waiting() > 0 && al.notify != nil {
			al.l.commits.onDurable(func(err error) {
				if err == nil {
					al.notify()
				}
			})
		}
	}
	at := x.state.Due()
	if w := x.watch.next(); w != 0 && (at == 0 || w < at) {
		at = w
	}
	if at != 0 && at != x.timerMs {
		x.timerMs = at
		al.l.timing.wheel.add(at, &alertTimer{a, at})
	}
}

// maxAlerted is the size, in bytes, of the rows of one record: a record has at most 4 MiB, and one row may have most of it.
const maxAlerted = 1 << 20

// alerted divides rows into records.
func alerted(rows []alerts.Row) (all []*apiv1.Alerted) {
	size := maxAlerted
	for _, r := range rows {
		if size >= maxAlerted {
			all, size = append(all, &apiv1.Alerted{}), 0
		}
		rec := all[len(all)-1]
		rec.Rows = append(rec.Rows, &apiv1.AlertRow{Key: r.Key, Value: r.Value})
		size += len(r.Key) + len(r.Value)
	}
	return all
}

// forget drops the alerts of an app that was deleted.
func (al *Alerts) forget(a *app) { a.alerts = nil }

// alertTimer folds the alerts of an app at a time.
type alertTimer struct {
	a  *app
	at int64 // 0: whatever the app waits for
}

func (t *alertTimer) fire(l *Loop) {
	if !t.holds(l, 0) {
		return
	}
	t.a.alerts.timerMs = 0
	l.Alerts.touch(t.a)
}

func (t *alertTimer) holds(*Loop, int64) bool {
	return t.a.alerts != nil && (t.at == 0 || t.at == t.a.alerts.timerMs)
}

// reload reads the rules and channels of an app.
func (al *Alerts) reload(a *app) {
	x, s, nowMs := a.alerts, a.slots[job.ModuleSlot], al.l.clock.nowMs
	x.stale = false
	clear(x.byJob)
	receivers := map[string]alerts.Receiver{}
	for _, d := range s.DefinitionsOf(job.KindAlertChannel) {
		c := d.(*apiv1.AlertChannel)
		receivers[c.Name] = alerts.Receiver{Kind: definition.KindOf(c), Language: definition.LanguageOf(c)}
	}
	x.state.SetReceivers(receivers, nowMs)
	var rules []*definition.Rule
	x.late, x.long, x.paused = false, false, false
	for _, d := range s.DefinitionsOf(job.KindAlertRule) {
		m := d.(*apiv1.AlertRule)
		_, r, err := definition.ReadRule(m)
		if err != nil { // a newer version of the program has accepted it
			al.l.cfg.Logger.Error("an alert rule is not followed", "app", a.name, "rule", m.Name, "error", err)
			continue
		}
		rules = append(rules, r)
	}
	rules = append(rules, x.own.asRules(al, a.name)...)
	for _, r := range rules {
		x.late, x.long = x.late || r.Lists(rule.LateStart), x.long || r.Lists(rule.RunningLongerThan)
		x.paused = x.paused || r.Lists(rule.SchedulePaused)
	}
	x.state.SetRules(rules, nowMs)
	x.watch.reload(al, a)
}

// resume loads the alerts of all apps, when the loop begins to own the partition.
func (al *Alerts) resume() error {
	al.serves, al.touched = true, nil
	for _, a := range al.l.State.apps {
		a.alerts = nil
		s := a.slots[job.ModuleSlot]
		if len(s.DefinitionsOf(job.KindAlertRule))+len(s.DefinitionsOf(job.KindAlertChannel)) == 0 && !s.HasAlerts() {
			continue
		}
		x := al.ensure(a)
		var failed error
		s.Alerts(func(key string, value []byte) {
			if err := x.state.Load(key, value); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return fmt.Errorf("app %s: %w", a.name, failed)
		}
		al.redefine(a)
	}
	return nil
}

// observe folds one event into the groups of the rules that select it.
func (al *Alerts) observe(a *app, s *seen) {
	x := a.alerts
	switch {
	case s.event != nil:
		al.observeOther(x, s.event)
	case s.change == job.JobChanged:
		al.jobChanged(a, s.job)
	case s.change == job.JobDeleted:
		for _, r := range x.state.Rules() {
			x.state.End(r, s.job.Name(), al.l.clock.nowMs)
			x.state.End(r, aboutPaused(s.job), al.l.clock.nowMs)
		}
	case s.change == job.RunArmed || s.change == job.RunAccepted:
		for _, r := range al.selecting(x, s.job) {
			if r.Lists(rule.LateStart) {
				x.watch.lateStart(s.run, r)
			}
		}
	case s.change == job.RunStarted:
		for _, r := range al.selecting(x, s.job) {
			if r.Lists(rule.LateStart) {
				x.state.End(r, aboutLate(s.run), al.l.clock.nowMs)
			}
			if r.Lists(rule.RunningLongerThan) {
				x.watch.runningLong(s.run, r)
			}
		}
	default:
		al.runEnded(x, s.run, s.job)
	}
}

// observeOther folds an event about no job.
func (al *Alerts) observeOther(x *appAlerts, e *rule.Event) {
	for _, r := range x.state.Rules() {
		if !r.Lists(e.Name) || !r.Selects(&e.Subject) {
			continue
		}
		switch {
		case e.Ends:
			x.state.End(r, e.About, e.AtMs)
		case e.About == "" || !x.state.Troubled(r, e):
			x.state.Observe(r, e)
		}
	}
}

// jobChanged folds the pause of a schedule, and watches a job that is new.
func (al *Alerts) jobChanged(a *app, j *job.Job) {
	x := a.alerts
	if !j.Current() {
		return
	}
	x.watch.watchJob(al, j)
	if !x.paused {
		return
	}
	paused := j.Definition().GetPaused()
	for _, r := range al.selecting(x, j) {
		if !r.Lists(rule.SchedulePaused) {
			continue
		}
		e := rule.Event{Name: rule.SchedulePaused, Subject: subjectOf(j), AtMs: al.l.clock.nowMs, About: aboutPaused(j)}
		switch {
		case !paused:
			x.state.End(r, e.About, e.AtMs)
		case !x.state.Troubled(r, &e):
			x.state.Observe(r, &e)
		}
	}
}

// runEnded folds the end of a run.
func (al *Alerts) runEnded(x *appAlerts, r *job.Run, j *job.Job) {
	var e rule.Event // made once there is a rule for it
	for _, to := range al.selecting(x, j) {
		if to.Open > 0 && (x.late || x.long) {
			x.state.End(to, aboutLate(r), al.l.clock.nowMs)
			x.state.End(to, aboutLong(r), al.l.clock.nowMs)
		}
		if r.State == job.Succeeded {
			x.watch.succeeded(al, j, to)
			x.state.End(to, j.Name(), al.l.clock.nowMs)
		}
		name := eventOf(to, r)
		if name == "" {
			continue
		}
		if e.Run == "" {
			e = rule.Event{Subject: subjectOf(j), Host: r.Host, Run: r.ID.String(), Error: r.Error, AtMs: al.l.clock.nowMs}
			e.App = r.App
		}
		if e.Name, e.About = name, j.Name(); name == rule.Succeeded || to.EachRun() {
			e.About = "" // no later run ends it
		}
		x.state.Observe(to, &e)
	}
}

// eventOf returns the most exact event that a rule lists for a run that has ended; "":
// none.
func eventOf(to *alerts.Rule, r *job.Run) string {
	var events []string
	switch r.State {
	case job.Succeeded:
		events = []string{rule.Succeeded}
	case job.TimedOut:
		events = []string{rule.FailedInRow, rule.TimedOut, rule.RetryExhausted, rule.Failed}
	case job.Failed:
		events = []string{rule.FailedInRow, rule.RetryExhausted, rule.Failed}
	case job.Missed:
		events = []string{rule.Missed}
	}
	if r.Policy.Retries == 0 || r.Attempt < r.MaxAttempts() {
		events = slices.DeleteFunc(events, func(e string) bool { return e == rule.RetryExhausted })
	}
	for _, e := range events {
		if to.Lists(e) {
			return e
		}
	}
	return ""
}

// Take hands out the messages that may be sent now, of all apps, and returns when to ask again;
// zero: when what Notify has set is called.
func (al *Alerts) Take(now time.Time) (work []alerts.Work, next time.Time) {
	for _, name := range slices.Sorted(maps.Keys(al.l.State.apps)) {
		x := al.l.State.apps[name].alerts
		if x != nil && x.stale {
			al.follow()
		}
		if x == nil || x.stale { // the disk is full: its timer looks again
			continue
		}
		w, at := x.state.Take(now)
		work = append(work, w...)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return work, next
}

// TurnTime returns the time of the turn.
func (al *Alerts) TurnTime() time.Time { return al.l.clock.now }

// Firing is the number of alerts of an app that fire with a severity.
type Firing struct {
	App, Severity string
	Alerts        int
}

// Firing counts the alerts that fire in each app with rules, by severity.
func (al *Alerts) Firing() (all []Firing) {
	for name, a := range al.l.State.apps {
		if a.alerts == nil || len(a.alerts.state.Rules()) == 0 {
			continue
		}
		for severity, n := range a.alerts.state.Firing() {
			all = append(all, Firing{name, string(severity), n})
		}
	}
	return all
}

// Read returns the alerts of an app for a call that reads them; nil: it has none.
func (al *Alerts) Read(app string) *alerts.State {
	a := al.l.State.apps[app]
	if a == nil || a.alerts == nil {
		return nil
	}
	if a.alerts.stale {
		al.follow()
	}
	return a.alerts.state
}

// Sent notes the result of a message.
func (al *Alerts) Sent(w alerts.Work, at time.Time, r channel.Result) {
	a := al.l.State.apps[w.App]
	if a == nil || a.alerts == nil {
		return
	}
	a.alerts.state.Done(w, at, r)
	al.touch(a)
}

// Edit runs a call that changes the alerts of an app, and records what it has changed. code is
// that of its audit event, and object what it is about.
func (al *Alerts) Edit(app, code, object string, fn func(st *alerts.State, now time.Time) error) error {
	if err := al.l.commits.refuseChange(); err != nil {
		return err
	}
	a := al.l.State.apps[app]
	if a == nil || a.gone() {
		return status.Errorf(codes.NotFound, "there is no app %q", app)
	}
	al.ensure(a)
	if a.alerts.stale {
		al.follow()
	}
	if err := fn(a.alerts.state, al.l.clock.now); err != nil {
		return err
	}
	al.l.Audit.called(code, app, object)
	al.touch(a)
	return nil
}

// Channel returns the definition of a channel; nil: there is none. It is immutable.
func (al *Alerts) Channel(app, name string) *apiv1.AlertChannel {
	a := al.l.State.apps[app]
	if a == nil {
		return nil
	}
	c, _ := a.slots[job.ModuleSlot].Definition(job.KindAlertChannel, name).(*apiv1.AlertChannel)
	return c
}

// Definitions returns the definitions of a kind by name.
func (al *Alerts) Definitions(app, kind string) []job.AppDefinition {
	a := al.l.State.apps[app]
	if a == nil {
		return nil
	}
	return a.slots[job.ModuleSlot].DefinitionsOf(kind)
}

// readJobs reads the jobs of an app.
func (x jobAlerts) readJobs(a *app) {
	clear(x)
	for _, s := range a.slots {
		for j := range s.Jobs.All() {
			if len(j.Alerts()) > 0 {
				x[j.Name()] = j.Alerts()
			}
		}
	}
}

// asRules returns the alerts as rules.
func (x jobAlerts) asRules(al *Alerts, app string) (all []*definition.Rule) {
	for _, name := range slices.Sorted(maps.Keys(x)) {
		rules, err := definition.ReadJobAlerts(app, name, x[name])
		if err != nil { // a newer version of the program has accepted them
			al.l.cfg.Logger.Error("the alerts of a job are not followed", "app", app, "job", name, "error", err)
		}
		all = append(all, rules...)
	}
	return all
}
