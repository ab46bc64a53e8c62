package core

import (
	"time"

	"github.com/wheelworkhq/wheelwork/alert/rule"
	alerts "github.com/wheelworkhq/wheelwork/alert/state"
	"github.com/wheelworkhq/wheelwork/internal/timeheap"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file has the events that come with a time, and not with a change: a run that has not
// started or ended, a job that has had no success. What is watched follows from the rules, the
// jobs and the live runs, so it is in no record: a restart watches the same again. Only up to
// when the times of day were looked at is stored, because a server may be off at one.

// watchSlice bounds the jobs that one turn looks at.
const watchSlice = 20_000

// next returns the time of the next watch, in Unix ms; 0: there is none.
func (w *watches) next() int64 {
	switch {
	case w.scan != nil:
		return 1 // at once
	}
	at, _, _ := w.queue.First()
	return at
}

func (w *watches) add(atMs int64, x watch) { w.queue.Add(atMs, x) }

func (w *watches) lateStart(r *job.Run, to *alerts.Rule) {
	if at := startOf(r) + to.LateStart.Milliseconds(); !started(r) {
		w.add(at, watch{rule: to.Name, run: r, what: rule.LateStart})
	}
}

// startOf returns when a run should start, in Unix ms.
func startOf(r *job.Run) int64 { return max(r.PlannedMs, r.AcceptedMs) }

func started(r *job.Run) bool { return r.Attempt > 0 || r.StartedMs > 0 }

func (w *watches) runningLong(r *job.Run, to *alerts.Rule) {
	if r.StartedMs > 0 {
		w.add(r.StartedMs+to.RunningLongerThan.Milliseconds(), watch{rule: to.Name, run: r, what: rule.RunningLongerThan})
	}
}

// watchJob watches a job that is new or was changed.
func (w *watches) watchJob(al *Alerts, j *job.Job) {
	for _, r := range al.selecting(w.of, j) {
		if r.Lists(rule.NoSuccessSince) {
			w.noSuccess(al, j, r)
		}
	}
}

// succeeded watches a job for its next success.
func (w *watches) succeeded(al *Alerts, j *job.Job, r *alerts.Rule) {
	if r.Lists(rule.NoSuccessSince) && j.Current() {
		w.noSuccess(al, j, r)
	}
}

// noSuccess watches a job for a success within the time of a rule. One watch for each pair suffices: when it is due,
// it looks at the last success.
func (w *watches) noSuccess(al *Alerts, j *job.Job, r *alerts.Rule) {
	k := watchedJob{r.Name, j}
	if w.jobs[k] {
		return
	}
	at := w.successDue(al, j, r)
	if at == 0 {
		return
	}
	set(&w.jobs, k, true)
	w.add(at, watch{rule: r.Name, job: j, what: rule.NoSuccessSince})
}

// successDue returns when a job must have had a success; 0: never, because it is paused. The time begins with the last
// success, with the last change of the job, as when it was resumed, or with the end of the last pause of its app.
func (w *watches) successDue(_ *Alerts, j *job.Job, r *alerts.Rule) int64 {
	d := j.Definition()
	wakesMs, wakes := w.of.a.wakesMs()
	if d.GetPaused() || !wakes {
		return 0
	}
	return max(j.SuccessMs(), wakesMs, d.GetUpdatedAt().AsTime().UnixMilli()) + r.NoSuccessSince.Milliseconds()
}

// reload derives all that is watched from the rules.
func (w *watches) reload(al *Alerts, a *app) {
	w.queue, w.jobs, w.scan = timeheap.Heap[watch]{}, nil, nil
	nowMs := al.l.clock.nowMs
	var scan []watchRule
	for _, r := range w.of.state.Rules() {
		switch {
		case !r.Lists(rule.NoSuccessSince):
		case r.Job != "": // its job is known
			if j := al.l.State.Job(a.name, r.Job); j != nil {
				w.noSuccess(al, j, r)
			}
		default:
			scan = append(scan, watchRule{rule: r.Name})
		}
		if r.Lists(rule.NotFinishedBy) {
			from := w.of.state.Watched(r.Name)
			if from == 0 {
				from = nowMs
				w.of.state.SetWatched(r.Name, from)
			}
			w.add(nextDeadline(r, from), watch{rule: r.Name, what: rule.NotFinishedBy})
		}
	}
	w.begin(al, a, scan)
	if !w.of.late && !w.of.long {
		return
	}
	for _, s := range a.slots {
		for run := range s.Runs.All() {
			if run.IsPart() {
				continue
			}
			for _, r := range al.selecting(w.of, run.Owner()) {
				if r.Lists(rule.LateStart) {
					w.lateStart(run, r)
				}
				if r.Lists(rule.RunningLongerThan) {
					w.runningLong(run, r)
				}
			}
		}
	}
}

// nextDeadline returns the first deadline of not_finished_by after a time.
func nextDeadline(r *alerts.Rule, afterMs int64) int64 {
	year, month, day := time.UnixMilli(afterMs).In(r.Zone).Date()
	hour, minute := int(r.NotFinishedBy.Hours()), int(r.NotFinishedBy.Minutes())%60
	for {
		if at := time.Date(year, month, day, hour, minute, 0, 0, r.Zone).UnixMilli(); at > afterMs {
			return at
		}
		day++
	}
}

// begin begins a scan for some rules, behind the one that is under way.
func (w *watches) begin(_ *Alerts, a *app, rules []watchRule) {
	if len(rules) == 0 {
		return
	}
	if w.scan != nil {
		rules = append(w.scan.rules, rules...) // jobs are looked at twice, which changes nothing
	}
	w.scan = &watchScan{rules: rules}
	for _, s := range a.slots {
		if s.Ownership.State != job.Here {
			continue
		}
		for j := range s.Jobs.All() {
			w.scan.jobs = append(w.scan.jobs, j)
		}
	}
}

// fire handles the entries that are due now.
func (w *watches) fire(al *Alerts, a *app) {
	nowMs := al.l.clock.nowMs
	for at, x, ok := w.queue.First(); ok && at <= nowMs; at, x, ok = w.queue.First() {
		w.queue.Remove()
		if r := w.of.state.Rule(x.rule); r != nil {
			w.due(al, a, r, at, x)
		}
	}
	w.step(al, nowMs)
}

func (w *watches) due(al *Alerts, a *app, r *alerts.Rule, atMs int64, x watch) {
	nowMs := al.l.clock.nowMs
	switch x.what {
	case rule.NotFinishedBy:
		if r.Job == "" {
			w.begin(al, a, []watchRule{{r.Name, time.UnixMilli(atMs)}})
		} else if j := al.l.State.Job(a.name, r.Job); j != nil {
			w.unfinished(al, j, r, time.UnixMilli(atMs), nowMs)
		}
		w.of.state.SetWatched(r.Name, atMs)
		w.add(nextDeadline(r, atMs), watch{rule: r.Name, what: rule.NotFinishedBy})
	case rule.NoSuccessSince:
		delete(w.jobs, watchedJob{r.Name, x.job})
		if !x.job.Current() {
			return
		}
		at := w.successDue(al, x.job, r)
		switch {
		case at == 0:
		case at > nowMs:
			w.noSuccess(al, x.job, r)
		default: // the next success watches again
			w.tell(r, x.job, rule.NoSuccessSince, "it had no success for "+r.NoSuccessSince.String(), nowMs)
		}
	default:
		if al.l.State.LiveRun(x.run.App, x.run.ID) != x.run || x.what == rule.LateStart && started(x.run) {
			return
		}
		if x.what == rule.LateStart && a.pausedAt(nowMs) != nil { // it has as much time after the pause
			w.add(nowMs+r.LateStart.Milliseconds(), x)
			return
		}
		e := rule.Event{Name: x.what, Subject: subjectOf(x.run.Owner()), Host: x.run.Host, Run: x.run.ID.String(), AtMs: nowMs}
		e.App = x.run.App
		if e.About, e.Error = aboutLate(x.run), "it did not start within "+r.LateStart.String(); x.what == rule.RunningLongerThan {
			e.About, e.Error = aboutLong(x.run), "it runs longer than "+r.RunningLongerThan.String()
		}
		if !w.of.state.Troubled(r, &e) {
			w.of.state.Observe(r, &e)
		}
	}
}

// step looks at some jobs of the scan.
func (w *watches) step(al *Alerts, nowMs int64) {
	if w.scan == nil {
		return
	}
	n := min(len(w.scan.jobs), watchSlice)
	for _, j := range w.scan.jobs[:n] {
		if !j.Current() {
			continue
		}
		for _, of := range w.scan.rules {
			r := w.of.state.Rule(of.rule)
			subject := subjectOf(j)
			switch {
			case r == nil || !r.Selects(&subject):
			case of.day.IsZero():
				w.noSuccess(al, j, r)
			default:
				w.unfinished(al, j, r, of.day, nowMs)
			}
		}
	}
	if w.scan.jobs = w.scan.jobs[n:]; len(w.scan.jobs) == 0 {
		w.scan = nil
	}
}

// unfinished observes that a job had no success on the day of a deadline. A job with a schedule counts if it has a
// planned time on that day before the deadline.
func (w *watches) unfinished(al *Alerts, j *job.Job, r *alerts.Rule, deadline time.Time, nowMs int64) {
	year, month, day := deadline.In(r.Zone).Date()
	midnight := time.Date(year, month, day, 0, 0, 0, 0, r.Zone)
	d := j.Definition()
	if j.SuccessMs() >= midnight.UnixMilli() || d.GetPaused() || w.of.a.pausedAt(deadline.UnixMilli()) != nil || d.GetCreatedAt().AsTime().After(deadline) {
		return
	}
	if d.GetSchedule() != nil {
		plan, err := al.l.Planner.planOf(j)
		if err != nil {
			return
		}
		if times, _ := plan.Between(midnight, deadline, 1); len(times) == 0 {
			return
		}
	}
	w.tell(r, j, rule.NotFinishedBy, "it had no success by "+deadline.In(r.Zone).Format("15:04"), nowMs)
}

// tell observes an event about a job that is not in trouble yet.
func (w *watches) tell(r *alerts.Rule, j *job.Job, event, text string, nowMs int64) {
	e := rule.Event{Name: event, Subject: subjectOf(j), Error: text, AtMs: nowMs, About: j.Name()}
	if !w.of.state.Troubled(r, &e) {
		w.of.state.Observe(r, &e)
	}
}
