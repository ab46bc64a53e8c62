package core

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/rule"
	alerts "github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file notes the events of a turn, and says which rules select a job and what the
// subjects of alerts are called.

func (al *Alerts) touch(a *app) {
	if !a.alerts.touched {
		a.alerts.touched = true
		al.touched = append(al.touched, a)
	}
}

// see notes an effect about a run or a job of an app with alerts.
func (al *Alerts) see(a *app, e *job.Effect) {
	s := seen{change: e.Change, run: e.Run, job: e.Job}
	if e.Run != nil {
		s.job = e.Run.Owner()
	}
	x := a.alerts
	if (e.Change == job.JobChanged || e.Change == job.JobDeleted) && x.own.noteJob(e) && al.serves {
		x.stale = true
		al.touch(a)
	}
	if !x.stale && len(x.state.Rules()) == 0 { // it has marks of errors or silences only
		return
	}
	switch e.Change {
	case job.JobChanged, job.JobDeleted:
		delete(x.byJob, e.Job)
	case job.RunEnded, job.RunPassed:
		if e.Run.IsPart() || len(al.selecting(x, s.job)) == 0 {
			return
		}
	case job.RunArmed, job.RunAccepted:
		if !x.late || e.Run.IsPart() || len(al.selecting(x, s.job)) == 0 {
			return
		}
	case job.RunStarted:
		if !x.late && !x.long || e.Run.IsPart() || len(al.selecting(x, s.job)) == 0 {
			return
		}
	default:
		return
	}
	x.seen = append(x.seen, s)
	al.touch(a)
}

// Report notes an event that is about no job, for all apps that have a rule for it. An event
// with Ends ends it.
func (al *Alerts) Report(name string, e rule.Event) {
	for _, a := range al.l.State.apps {
		al.report(a, name, e)
	}
}

// report is Report for one app. name is the event, which an end has too.
func (al *Alerts) report(a *app, name string, e rule.Event) {
	if a.alerts == nil || !al.serves {
		return
	}
	e.Name, e.App, e.AtMs = name, a.name, al.l.clock.nowMs
	a.alerts.seen = append(a.alerts.seen, seen{event: &e})
	al.touch(a)
}

// atLimit notes that a call was refused by a limit of the app.
func (x *appAlerts) atLimit(flag, text string) {
	nowMs := x.al.l.clock.nowMs
	if at, before := x.limited[flag]; before && nowMs >= at && nowMs-at < limitPause {
		return
	}
	set(&x.limited, flag, nowMs)
	x.al.report(x.a, rule.LimitReached, rule.Event{Error: text})
}

// maxSelected bounds the jobs of an app whose rules are cached: 4 MiB.
const maxSelected = 1 << 16

// selecting returns the rules that select a job.
func (al *Alerts) selecting(x *appAlerts, j *job.Job) []*alerts.Rule {
	rules, known := x.byJob[j]
	if !known && !x.stale {
		subject := subjectOf(j)
		rules = x.state.Selecting(&subject)
		if len(x.byJob) >= maxSelected {
			clear(x.byJob)
		}
		x.byJob[j] = rules
	}
	if x.stale { // the rules are not known yet: follow looks again
		return x.state.Rules()
	}
	return rules
}

func subjectOf(j *job.Job) rule.Subject {
	s := rule.Subject{Job: j.Name(), Labels: j.Labels(), Owner: j.OwnedBy()}
	if j.Slot() != nil {
		s.App = j.Slot().App
	}
	return s
}

// The subjects of a run or a job that are no end of its failures.
func aboutPaused(j *job.Job) string { return "paused/" + j.Name() }
func aboutLate(r *job.Run) string   { return "late/" + r.ID.String() }
func aboutLong(r *job.Run) string   { return "long/" + r.ID.String() }

// noteJob notes that a job was changed or deleted. It reports whether its alerts are others now.
func (x jobAlerts) noteJob(e *job.Effect) bool {
	name, now := e.Job.Name(), e.Job.Alerts()
	if e.Change == job.JobDeleted {
		now = nil
	}
	same := slices.EqualFunc(x[name], now, func(a, b *apiv1.JobAlert) bool { return proto.Equal(a, b) })
	if x[name] = now; len(now) == 0 {
		delete(x, name)
	}
	return !same
}
