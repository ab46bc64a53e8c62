package core

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// Open returns a loop with the state that the store has. [loop.replay] then applies the
// records that the store does not include.
func Open(cfg Config) (*Loop, error) {
	l, err := newLoop(cfg)
	if err != nil {
		return nil, err
	}
	if l.commits.lastSeq, err = l.View.Load(loadTarget{l}); err != nil {
		return nil, err
	}
	for _, a := range l.State.apps {
		for _, s := range a.slots {
			s.Loaded()
			for r := range s.Runs.All() {
				a.live.push(r)
				a.runs++
				l.State.live++
			}
		}
		a.live.sortByID()
	}
	return l, nil
}

// loadTarget implements [projection.Target].
type loadTarget struct{ l *Loop }

func (t loadTarget) App(name string) *projection.App { return &t.l.State.app(name).rows }

// LoadedJob adds the job to the relations here, which saves another pass over all jobs.
func (t loadTarget) LoadedJob(j *job.Job) {
	t.l.relations.depends(j)
	t.l.Planner.depends(j)
}

func (t loadTarget) LoadCanary(app, ref string, counts *job.Tally) {
	t.l.State.app(app).canaries[ref] = counts
}

// LoadAudit implements [projection.Target].
func (t loadTarget) LoadAudit(row *apiv1.AuditHeadRow) { t.l.Audit.load(row) }

// LoadAccess implements [projection.Target].
func (t loadTarget) LoadAccess(kind, id string, value []byte) error {
	return t.l.Access.State.Load(kind, id, value)
}

// BecomeOwner applies the rest of the journal, and makes the loop ready to run as the owner of
// the partition.
func (l *Loop) BecomeOwner() error {
	if err := l.replay(); err != nil {
		return err
	}
	l.View.HideRemoved()
	if err := l.Alerts.resume(); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	l.resume()
	l.Access.publish()
	return nil
}

// CatchUp brings the state and the store up to the end of a journal that another server
// writes.
func (l *Loop) CatchUp() error {
	l.clock.set(l.cfg.Now())
	if err := l.replay(); err != nil {
		return fmt.Errorf("catch up with the journal: %w", err)
	}
	l.Access.publish()
	l.forget()
	l.Stats.flushMetrics()
	if l.commits.failure != nil {
		return l.commits.failure
	}
	if err := l.View.Flush(l.clock.now, l.commits.lastSeq); err != nil {
		return fmt.Errorf("write the store: %w", err)
	}
	return nil
}

// replay applies the records of the journal after lastSeq to the state. It does not
// perform their effects; resume derives timers, queues and expected hosts from the state.
func (l *Loop) replay() error {
	start, n := time.Now(), 0
	err := l.cfg.Journal.Read(l.commits.lastSeq+1, func(seq uint64, slot journal.Slot, body []byte) error {
		if seq != l.commits.lastSeq+1 {
			return fmt.Errorf("the journal has record %d after %d: records are missing", seq, l.commits.lastSeq)
		}
		rec := &apiv1.Record{}
		if err := proto.Unmarshal(body, rec); err != nil {
			return fmt.Errorf("decode record %d: %w", seq, err)
		}
		if slot.Index >= job.Slots {
			return fmt.Errorf("record %d is of slot %d, there are %d", seq, slot.Index, job.Slots)
		}
		if isUnnamed(slot) {
			if err := l.replayUnnamed(rec); err != nil {
				return fmt.Errorf("record %d: %w", seq, err)
			}
		} else {
			s := l.State.app(slot.App).slots[slot.Index]
			l.account(s.Apply(rec, nil))
			l.View.Revised(slot.App, s.TakeRevisions())
		}
		l.commits.lastSeq = seq
		n++
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay the journal: %w", err)
	}
	if next := l.cfg.Journal.Next(); next != l.commits.lastSeq+1 {
		return fmt.Errorf("the store includes record %d, but the journal ends before %d: the journal's directory is not the one that belongs to this store", l.commits.lastSeq, next)
	}
	if n > 0 {
		l.cfg.Logger.Info("replayed the journal", "records", n, "in", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// replayUnnamed applies a record of no app.
func (l *Loop) replayUnnamed(rec *apiv1.Record) error {
	if e := rec.GetAudited(); e != nil {
		return l.Audit.replay(e, rec.AtMs)
	}
	return l.Access.replay(rec)
}

// resume rebuilds the parts of the loop that are in no record, from the state of the
// slots: the timers, the queues of due runs, and the hosts that had runs. It begins the
// recovery unless the former owner has ended in order.
func (l *Loop) resume() {
	l.clock.set(l.cfg.Now()) // the replay took time, and hosts can connect from now on
	l.Sessions.since = l.clock.now
	l.forget()
	l.timing.turnBack(0)
	var queued []*job.Run
	for _, a := range l.State.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here { // frozen
				continue
			}
			for r := range s.Runs.All() {
				if boundedByOverlap(r) && (r.Attempt > 0 || r.Delegates()) {
					l.admission.overlapQueue(r).in[r.ID] = r
				}
				switch {
				case l.timing.due(r):
					queued = append(queued, r)
				case r.State == job.Running && !r.Delegates():
					l.Sessions.expect(r)
				}
			}
		}
	}
	j, ok := l.cfg.Journal.(journal.Orderly)
	if !ok || !j.Orderly() {
		l.Sessions.recovering = true // rebuildTimers sets its timer
		openedMs := l.clock.nowMs
		if ok {
			openedMs = j.Opened().UnixMilli() // the former owner has sent nothing since then
		}
		for _, r := range queued {
			// A fan-out is durable before its parts are sent: if it is still due, no host
			// has a part of it.
			if dueAt(r, openedMs+l.timing.ahead.lag(r)) && (!r.Policy.Fans() || r.IsPart()) {
				r.Mark |= isMaybeDispatched
			}
		}
	}
	for _, h := range l.Sessions.hosts {
		h.LostAt = l.clock.now.Add(l.cfg.HostLease)
	}
	l.timing.rebuildTimers()
	slices.SortFunc(queued, byID)
	for _, r := range queued {
		l.admission.admit(r)
	}
	l.ChangeSets.resume()
}

// forget drops the work that replayed records have queued: the journal has its results.
func (l *Loop) forget() {
	l.Stats.rate, l.Stats.came = decayingRate{}, 0 // a replay is no load
	l.workflows.followed = nil                     // the records of dependent runs were replayed too
	l.workflows.moved, l.Moves.countedRates = nil, nil
	l.Catalog.suspects = nil // the next failed attempt makes it a suspect again
	for _, a := range l.State.apps {
		a.rates = nil
	}
}

// rebuildTimers rebuilds the wheel from the state of the slots.
func (tm *timing) rebuildTimers() {
	type kept struct {
		due int64
		v   *readmitTimer
	}
	var readmits []kept // not part of the state of the slots
	tm.wheel.sweep(func(due int64, v timer) bool {
		if x, ok := v.(*readmitTimer); ok {
			readmits = append(readmits, kept{min(due, tm.l.clock.nowMs+armWindow), x}) // an early readmission does no harm
		}
		return true
	})
	tm.wheel.restart(tm.l.clock.nowMs)
	tm.sweepAt = leastSweep // the next sweep adapts it to the number of timers
	for _, a := range tm.l.State.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here {
				continue
			}
			for j := range s.Jobs.All() {
				if j.NextMs > 0 {
					tm.plan(j)
				}
				tm.resumes(j)
			}
			for r := range s.Runs.All() {
				lag := tm.ahead.lag(r)
				switch r.State {
				case job.Armed:
					tm.wheel.add(r.PlannedMs-lag, runTimer{r})
				case job.Waiting:
					tm.wheel.add(r.RetryMs-lag, runTimer{r})
				}
				if at := deadlineMs(r); at > 0 {
					tm.wheel.add(at-lag+1, deadlineTimer{r})
				}
				if r.HasNodes() {
					tm.l.workflows.watchNodes(r)
				}
			}
		}
	}
	for _, x := range readmits {
		tm.wheel.add(x.due, x.v)
	}
	for _, a := range tm.l.State.apps {
		tm.paused(a)
		if a.alerts != nil {
			a.alerts.timerMs = 0
			tm.l.Alerts.touch(a)
		}
	}
	if tm.l.Dispatcher.placementAt != 0 {
		tm.l.Dispatcher.retryPlacementAt(tm.l.clock.nowMs + parkTime)
	}
	if tm.l.Sessions.recovering {
		tm.l.Sessions.endRecovery()
	}
	for _, h := range tm.l.Sessions.hosts {
		if !h.Connected { // a lease lasts in real time, also if the clock is set
			tm.after(h.LostAt.Sub(tm.l.clock.now).Milliseconds(), &hostLease{h, h.Generation})
		}
	}
}
