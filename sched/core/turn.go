package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
	"github.com/wheelworkhq/wheelwork/sched/wheel/alarm"
	"github.com/wheelworkhq/wheelwork/store"
)

// newLoop returns a loop without any app.
func newLoop(cfg Config) (*Loop, error) {
	l := &Loop{Hub: newHub(), Mail: newMailbox()}
	if err := l.Configure(cfg); err != nil {
		return nil, err
	}
	l.State.apps = map[string]*app{}
	l.commits.l, l.commits.by = l, byServer
	l.timing.l = l
	l.Planner = Planner{l: l, plans: map[string]schedule.Plan{}, planned: map[jobKey][]*job.Job{}, calendars: map[jobKey]*schedule.Calendar{}}
	l.relations = relations{l: l, dependents: map[jobKey][]*job.Job{}, nodeOf: map[jobKey][]*job.Job{}, started: map[jobKey][]*job.Job{}}
	l.workflows.l = l
	l.limits = limits{l}
	l.admission = admission{l: l, overlapQueues: map[jobKey]*overlapQueue{}, rates: map[jobKey]*bucket{}}
	l.Dispatcher.l = l
	l.Sessions = Sessions{l: l, hosts: map[string]*hosts.Host{}, progress: map[job.RunID]*apiv1.Progress{}}
	l.Demand.l = l
	l.Commands.l = l
	l.Catalog.l = l
	l.Guests = Guests{l: l, granted: map[*job.Shape]grants{}}
	l.Moves.l = l
	l.ChangeSets.l = l
	l.Holds = Holds{l: l, of: map[string]*hold{}}
	l.Alerts.l = l
	l.Access = Access{l: l, State: access.NewState()}
	l.Audit.l = l
	l.Waiters = Waiters{l: l, awaited: map[job.RunID][]chan *apiv1.Run{}}
	l.clock.set(l.cfg.Now())
	l.timing.wheel, l.timing.sweepAt = newTimers(l.clock.nowMs), leastSweep
	l.commits.open()
	return l, nil
}

// Configure replaces the configuration before the loop runs.
func (l *Loop) Configure(cfg Config) error {
	if cfg.Meter == nil {
		cfg.Meter = noop.NewMeterProvider().Meter("")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Meter)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	l.cfg, l.View, l.Stats.metrics = cfg, cfg.View, m
	return nil
}

func (c *clock) set(t time.Time) { c.now, c.nowMs = t, t.UnixMilli() }

// Run runs the loop until ctx ends and then shuts it down. It returns early with an error
// if the journal or the store fails.
func (l *Loop) Run(ctx context.Context) error {
	defer l.end()
	bell := alarm.New()
	defer bell.Stop()
	bell.Set(0)
	l.clock.lastWall = l.cfg.Now()
	for {
		select {
		case <-l.Mail.kick:
		case <-bell.C:
		case <-ctx.Done():
			return l.finish()
		}
		start, in := time.Now(), l.Mail.take()
		next, err := l.step(l.cfg.Now(), &in)
		if err != nil {
			return err
		}
		l.Mail.putBack(in)
		l.Stats.metrics.turn.Record(ctx, time.Since(start).Seconds())
		bell.Set(max(next.Sub(l.cfg.Now()), 0))
	}
}

// step runs one turn at the time now. It leaves the inputs in in for which the turn had no
// time, and returns when the next turn is due if nothing comes before. An error ends the
// loop: the journal or the store has failed.
func (l *Loop) step(now time.Time, in *inputs) (next time.Time, err error) {
	// What has come since the last turn becomes records.
	l.tick(now)
	l.handle(in)

	// What is due by the clock becomes records. Timers are handled after the inputs,
	// because a call may change or cancel a job whose time has come.
	l.timing.advance()  // fills timing.arming and timing.coming
	l.timing.admitDue() // empties timing.coming
	l.timing.sweep()
	l.timing.arm() // empties timing.arming, or a part of it

	// The records go to the journal. Batches that are durable by now have their effects,
	// which may lead to further records. Their answers wait in commits.owed.
	l.commits.submit() // empties workflows.followed and workflows.moved
	l.commits.releaseWritten()
	l.commits.submit()

	// Runs go to hosts before the answers go to callers, and the senders of the tasks wake
	// last: see answerDurable.
	if l.commits.failure == nil {
		l.Dispatcher.dispatch() // fills dispatcher.unsent
		l.commits.submit()
	}
	l.commits.answerDurable() // empties commits.owed
	l.Dispatcher.flush()      // empties dispatcher.unsent
	if l.commits.failure != nil {
		return next, l.commits.failure
	}

	// Counts and the projection follow. No caller waits for them.
	l.Stats.endTurn(l.clock.now)
	l.Moves.publishRates()
	l.checkpoint()
	return l.nextTurn(), nil
}

// handle runs the inputs: those of the server's goroutines, then the messages of hosts
// and the calls, for at most hostTurnTime and turnTime.
func (l *Loop) handle(in *inputs) {
	l.runPosted(in)
	in.fromHosts = l.runFor(hostTurnTime, in.fromHosts)
	in.calls = l.runFor(turnTime, in.calls)
}

func (l *Loop) runPosted(in *inputs) {
	for _, f := range in.posted {
		f(l)
	}
	in.posted = nil
}

// runWaiting runs what goroutines of the server have posted, after mailbox.shut.
func (l *Loop) runWaiting() {
	in := l.Mail.take()
	l.runPosted(&in)
}

// runFor runs functions for about the time most, and returns those for which there was no
// time.
func (l *Loop) runFor(most time.Duration, fns []func(*Loop)) (rest []func(*Loop)) {
	start := time.Now()
	for i, f := range fns {
		f(l)
		if l.commits.stage.bytes >= stageBytes {
			l.commits.submit()
		}
		if rest := fns[i+1:]; len(rest) > 0 && time.Since(start) > most {
			return rest
		}
	}
	return nil
}

// tick sets the clock of the turn. After the wall clock was set back, the wheel is ahead of
// it and would fire new entries early, so tick rebuilds the timers.
func (l *Loop) tick(now time.Time) {
	wall, mono := now.Round(0).Sub(l.clock.lastWall.Round(0)), now.Sub(l.clock.lastWall)
	l.clock.lastWall = now
	l.clock.set(now)
	if drift := wall - mono; drift < -10*time.Millisecond {
		l.cfg.Logger.Warn("the clock was set back: cron, daily and at schedules wait until it shows their next times, and all others go on", "by", -drift)
		l.timing.turnBack((-drift).Milliseconds())
		l.timing.rebuildTimers()
	}
}

// nextTurn returns when the next turn is due if nothing comes before.
func (l *Loop) nextTurn() time.Time {
	next := l.clock.now.Add(time.Hour)
	if at, ok := l.timing.wheel.next(); ok {
		next = time.UnixMilli(at)
	}
	if d, ok := l.View.Wait(l.clock.now); ok {
		if at := l.clock.now.Add(d); at.Before(next) {
			next = at
		}
	}
	return next
}

// perform acts on an effect whose record is durable.
func (l *Loop) perform(e *job.Effect) {
	switch e.Change {
	case job.JobPlanned:
		if e.Job.Current() && e.Job.NextMs > 0 {
			l.timing.plan(e.Job)
		}
		l.timing.resumes(e.Job)
	case job.JobChanged:
		l.timing.resumes(e.Job)
	case job.JobBounded:
		l.admission.queueAccepted(e.Job)
	case job.RunArmed:
		l.timing.wheel.add(e.Run.PlannedMs, runTimer{e.Run})
	case job.RunAccepted, job.RunRequeued:
		l.admission.admit(e.Run)
	case job.RunWaiting:
		l.timing.wheel.add(e.Run.RetryMs, runTimer{e.Run})
	case job.RunStopping:
		if h := l.Sessions.hosts[e.Run.Host]; h != nil {
			h.Out.Cancel(e.Run.ID, e.Run.Attempt)
		}
	case job.RunEnded, job.RunRevoked:
		l.admission.dequeue(e.Run)
		l.Waiters.tellEnd(e.Run)
	case job.RunDeleted:
		l.View.HideRun(e.Run, 0)
	case job.RunPurged:
		l.View.HideRun(e.Run, e.AtMs)
	case job.RunResumed:
		if here(e.Run.Slot()) {
			l.admission.resumeRun(e.Run)
		}
	}
	if e.Run != nil {
		l.Hub.Notify(e.Run.ID)
	}
}

// account updates counters and indexes, and marks the rows that the next projection batch
// writes. Like [job.Slot.Apply] it runs once for each record, in a replay too, so a
// replay leads to the same counts.
func (l *Loop) account(fx []job.Effect) {
	for i := range fx {
		e := &fx[i]
		if len(l.timing.ahead.runs)+len(l.timing.ahead.jobs) > 0 {
			l.timing.ahead.account(e)
		}
		switch e.Change {
		case job.JobChanged, job.JobDeleted:
			l.View.JobChanged(e.Job)
			if a := ownerOf(e.Job.Slot()); a.alerts != nil {
				l.Alerts.see(a, e)
			}
		case job.JobMoved:
			l.View.JobMoved(e.Job)
		case job.JobPlanned:
			l.View.JobPlanned(e.Job)
		case job.RunResumed: // its row has not changed
		case job.JobCounted:
			l.View.JobCounted(e.Job)
		case job.ModuleAdded:
			l.View.ModuleAdded(e.Module)
			l.Guests.forgetGrants()
		case job.ModuleDeleted:
			l.View.ModuleDeleted(e.Module)
		case job.AliasChanged, job.AliasDeleted:
			l.Catalog.accountAlias(e)
		case job.AppChanged:
			l.View.AppChanged(e.App)
			if job.Deleted(e.App) {
				l.Alerts.forget(l.State.app(e.App.Name))
				l.State.app(e.App.Name).rows.Count = apiv1.CountRow{}
				l.View.AppCounted(&l.State.app(e.App.Name).rows, e.AtMs)
			}
			delete(l.admission.rates, jobKey{e.App.Name, ""}) // the next run makes a new bucket
		case job.CalendarChanged:
			l.View.CalendarChanged(e.Calendar)
			l.Planner.forgetCalendar(e.Calendar)
			if a := l.State.apps[e.Calendar.App]; a != nil && a.alerts != nil {
				l.Alerts.redefine(a)
			}
		case job.CalendarDeleted:
			l.View.CalendarDeleted(e.Calendar)
			l.Planner.forgetCalendar(e.Calendar)
		case job.RowChanged:
			l.View.RowChanged(e.Row)
			switch {
			case e.Row.Grants():
				l.Guests.forgetGrants()
			case e.Row.Defines() == job.KindAlertRule || e.Row.Defines() == job.KindAlertChannel:
				l.Alerts.redefine(l.State.app(e.Row.App()))
			}
		case job.JobDepends:
			l.relations.depends(e.Job)
			l.Planner.depends(e.Job)
		case job.JobBounded: // see perform
		case job.RunDeleted:
			l.View.RunRemoved(e.Run, 0)
		case job.RunPurged:
			l.View.RunRemoved(e.Run, e.AtMs)
		case job.KeyAdded:
			l.View.KeyAdded(&ownerOf(e.Run.Slot()).rows, e.Key, e.Run.ID, e.AtMs, e.Input)
		default:
			l.accountRun(e)
		}
	}
}

func (l *Loop) accountRun(e *job.Effect) {
	a := ownerOf(e.Run.Slot())
	m := a.minute(e.AtMs)
	l.Catalog.tally(a, e)
	if a.alerts != nil {
		l.Alerts.see(a, e)
	}
	switch e.Change {
	case job.RunArmed, job.RunAccepted:
		m.Accepted++
		a.live.push(e.Run)
		l.Stats.came++
		l.Moves.countSlot(a, e.Run.Slot().Index)
		l.Stats.count(a, a.labels.Trigger[e.Run.Trigger])
		l.State.live++
		a.runs++
	case job.RunCame: // the partition that accepted it has counted it
		a.live.push(e.Run)
		l.State.live++
		a.runs++
		l.View.RunChanged(e.Run)
		return
	case job.RunRevoked:
		l.State.live--
		a.runs--
	case job.RunEnded, job.RunPassed:
		if e.Change == job.RunEnded {
			l.State.live--
			a.runs--
		}
		switch e.Run.State {
		case job.Succeeded:
			m.Succeeded++
			a.rows.Count.Succeeded++
		case job.Skipped: // counts as neither
		default:
			m.Failed++
			a.rows.Count.Failed++
		}
		delete(l.Sessions.progress, e.Run.ID)
		if err := l.View.RunEnded(e.Run); err != nil {
			l.commits.fail(fmt.Errorf("encode run: %w", err))
		}
		l.Stats.count(a, a.labels.state[e.Run.State.Ordinal()])
		if !e.Run.IsPart() {
			l.workflows.followed = append(l.workflows.followed, e.Run)
		}
	case job.RunStopping:
		if e.Run.HasNodes() {
			l.workflows.moved = append(l.workflows.moved, e.Run)
		}
	case job.RunStarted:
		delete(l.Sessions.progress, e.Run.ID)
	}
	l.View.RunChanged(e.Run)
	l.View.AppCounted(&a.rows, e.AtMs)
}

// checkpoint gives a projection batch to the writer if one is due.
func (l *Loop) checkpoint() {
	b, err := l.View.Turn(l.clock.now, l.commits.lastSeq)
	if err != nil {
		l.commits.fail(err)
		return
	}
	if b == nil {
		return
	}
	_, err = l.cfg.Journal.Append(nil, func(err error) {
		if err != nil {
			l.Mail.post(func(l *Loop) { l.commits.fail(fmt.Errorf("write the journal: %w", err)) })
			return
		}
		l.View.Write(b)
	})
	if err != nil {
		l.commits.fail(fmt.Errorf("flush the journal: %w", err))
	}
}

// WriteCheckpoints runs the writer of projection batches until the loop has ended.
func (l *Loop) WriteCheckpoints() error {
	err := l.View.Run(l.Mail.Done, func(f func()) { l.Mail.post(func(*Loop) { f() }) })
	if err != nil {
		err = fmt.Errorf("write the store: %w", err)
		l.Mail.post(func(l *Loop) { l.commits.fail(err) })
	}
	return err
}

// lastCheckpoint commits the remaining changes when the loop ends.
func (l *Loop) lastCheckpoint() error {
	for l.runWaiting(); l.View.Busy(); l.runWaiting() { // the writer still has a batch
		if l.View.Full() {
			return nil // the next start replays the journal
		}
		if l.commits.failure != nil {
			return l.commits.failure
		}
		<-l.Mail.kick
	}
	if l.commits.failure != nil {
		return l.commits.failure
	}
	if !l.View.Dirty() {
		return nil
	}
	durable := make(chan error, 1)
	if _, err := l.cfg.Journal.Append(nil, func(err error) { durable <- err }); err != nil {
		return err
	}
	if err := <-durable; err != nil {
		return err
	}
	if err := l.View.Flush(l.clock.now, l.commits.lastSeq); err != nil && !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}

// CaughtUp waits until the store includes all records that were decided before the call. On
// a full disk it returns at once, and the reader sees an older state.
func (l *Loop) CaughtUp(ctx context.Context) error {
	ready := make(chan (<-chan struct{}), 1)
	if !l.Mail.Do(func(l *Loop) {
		l.commits.submit()
		ready <- l.View.Await(l.commits.lastSeq)
	}) {
		return ErrEnded
	}
	var stored <-chan struct{}
	for {
		select {
		case stored = <-ready:
			ready = nil
		case <-stored:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-l.Mail.Done:
			return ErrEnded
		}
	}
}

// finish shuts the loop down in order: it waits until all batches are durable and writes
// the last projection batch. It drops the functions that wait in the inboxes; their
// callers get ErrEnded.
func (l *Loop) finish() error {
	l.Mail.shut()
	l.commits.submit()
	for l.commits.releaseWritten(); len(l.commits.inflight) > 0; l.commits.releaseWritten() {
		<-l.Mail.kick
	}
	l.commits.answerDurable()
	if l.commits.failure != nil {
		return l.commits.failure
	}
	return l.lastCheckpoint()
}

// end wakes all callers that wait for the loop, and closes the streams of the hosts.
func (l *Loop) end() {
	l.Mail.shut()
	close(l.Mail.Done)
	for _, h := range l.Sessions.hosts {
		h.Out.Close()
	}
}
