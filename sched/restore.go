package sched

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/store"
)

// load returns a loop with the state that the store has. [loop.replay] then applies the
// records that the store does not include.
func load(cfg *Config) (*loop, error) {
	l, err := newLoop(cfg)
	if err != nil {
		return nil, err
	}
	bundled, err := l.view.loadBundle(cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("load the store: %w", err)
	}
	err = cfg.Store.Load(store.Loader{
		Job: func(app, name string, value []byte) error {
			row := &apiv1.JobRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return fmt.Errorf("job %s/%s: %w", app, name, err)
			}
			j, err := l.app(app).slots[job.SlotOf(name)].LoadJob(name, row)
			if err == nil {
				l.depends(j) // here, which saves another pass over all jobs
			}
			return err
		},
		Stats: func(app, name string, value []byte) error {
			row := &apiv1.JobStatsRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return fmt.Errorf("stats of job %s/%s: %w", app, name, err)
			}
			if j := l.job(app, name); j != nil {
				j.LoadStats(row)
				j.Mark |= hasStats
			}
			return nil
		},
		Run: func(app string, id [16]byte, value []byte) error {
			row := &apiv1.RunRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return fmt.Errorf("run %s: %w", job.RunID(id), err)
			}
			newer, ok := bundled[appRun{app, id}]
			if ok {
				row = newer
				delete(bundled, appRun{app, id})
			}
			r, err := l.loadRun(row)
			if err != nil {
				return err
			}
			r.Mark |= isStored
			if ok {
				l.view.run(r)
			}
			return nil
		},
		Module: func(app, name, version string, value []byte) error {
			m := &apiv1.Module{}
			l.app(app).slots[job.ModuleSlot].Modules[name+"@"+version] = m
			return proto.Unmarshal(value, m)
		},
		Row: l.loadRow,
	})
	if err != nil {
		return nil, fmt.Errorf("load the store: %w", err)
	}
	rest := slices.SortedFunc(maps.Values(bundled), func(a, b *apiv1.RunRow) int {
		return cmp.Or(cmp.Compare(a.App, b.App), bytes.Compare(a.Id, b.Id))
	})
	for _, row := range rest {
		r, err := l.loadRun(row)
		if err != nil {
			return nil, fmt.Errorf("run %s of app %s: %w", job.RunID(row.Id), row.App, err)
		}
		l.view.run(r)
	}
	l.view.measure(cfg.Store)
	err = cfg.Store.EachKeys(func(k store.Keys, at int64) error {
		a := l.app(k.App)
		loaded, err := a.loadKeys(k.Value, nil)
		if err != nil {
			return fmt.Errorf("idempotency keys of app %s at %d: %w", k.App, at, err)
		}
		l.view.remembered = append(l.view.remembered, loaded.chunk(a, at))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.recount(); err != nil {
		return nil, err
	}
	for _, a := range l.apps {
		for _, s := range a.slots {
			s.Loaded()
			for r := range s.Runs.All() {
				a.live.push(r)
				l.live++
			}
		}
		a.live.sortByID()
	}
	l.lastSeq = cfg.Store.Applied()
	l.view.applied = l.lastSeq
	return l, nil
}

func (l *loop) loadRun(row *apiv1.RunRow) (*job.Run, error) {
	id := job.RunID(row.Id)
	s := l.app(row.App).slots[id.Slot()]
	if err := s.LoadRun(row); err != nil {
		return nil, err
	}
	return s.Runs.Get(id), nil
}

// recount counts the runs in the history that ended after the statistics of their jobs
// were written, see deferredStats.
func (l *loop) recount() error {
	v := &l.view
	var ends []job.Ending
	count := func() {
		for i, j := range job.FindJobs(ends, func(e *job.Ending, w *job.Wanted) {
			w.Name = e.Job
			if a := l.apps[e.App]; a != nil {
				w.Slot = a.slots[job.SlotOf(e.Job)]
			}
		}) {
			if j != nil && j.Recount(ends[i]) {
				v.counted(j)
			}
		}
		ends = ends[:0]
	}
	err := l.cfg.Store.Since(v.deferred.from, func(value []byte) error {
		e, err := job.ReadEnding(value)
		if err != nil {
			return err
		}
		if ends = append(ends, e); len(ends) == prefetch.Group {
			count()
		}
		return nil
	})
	count()
	if err != nil {
		return fmt.Errorf("count the runs that have ended: %w", err)
	}
	v.deferred.begin(v.length)
	return nil
}

// replay applies the records of the journal after lastSeq to the state. It does not
// perform their effects; resume derives timers, queues and expected hosts from the state.
func (l *loop) replay() error {
	start, n := time.Now(), 0
	err := l.cfg.Journal.Read(l.lastSeq+1, func(seq uint64, slot journal.Slot, body []byte) error {
		if seq != l.lastSeq+1 {
			return fmt.Errorf("the journal has record %d after %d: records are missing", seq, l.lastSeq)
		}
		rec := &apiv1.Record{}
		if err := proto.Unmarshal(body, rec); err != nil {
			return fmt.Errorf("decode record %d: %w", seq, err)
		}
		if slot.Index >= job.Slots {
			return fmt.Errorf("record %d is of slot %d, there are %d", seq, slot.Index, job.Slots)
		}
		s := l.app(slot.App).slots[slot.Index]
		l.account(s.Apply(rec, nil))
		l.lastSeq = seq
		n++
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay the journal: %w", err)
	}
	if next := l.cfg.Journal.Next(); next != l.lastSeq+1 {
		return fmt.Errorf("the store includes record %d, but the journal ends before %d: the journal's directory is not the one that belongs to this store", l.lastSeq, next)
	}
	if n > 0 {
		l.cfg.Logger.Info("replayed the journal", "records", n, "in", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// resume rebuilds the parts of the loop that are in no record, from the state of the
// slots: the timers, the queues of due runs, and the hosts that had runs. It begins the
// recovery unless the former owner has ended in order.
func (l *loop) resume() {
	l.setNow(time.Now()) // the replay took time, and hosts can connect from now on
	l.since = l.now
	l.forget()
	l.turnBack(0)
	var queued []*job.Run
	for _, a := range l.apps {
		for _, s := range a.slots {
			if s.Ownership.State != job.Here { // frozen
				continue
			}
			for r := range s.Runs.All() {
				if boundedByOverlap(r) && (r.Attempt > 0 || r.Delegates()) {
					l.overlapQueue(r).in[r.ID] = r
				}
				switch {
				case l.due(r):
					queued = append(queued, r)
				case r.State == job.Running && !r.Delegates():
					l.expect(r)
				}
			}
		}
	}
	j, ok := l.cfg.Journal.(journal.Orderly)
	if !ok || !j.Orderly() {
		l.recovering = true // rebuildTimers sets its timer
		openedMs := l.nowMs
		if ok {
			openedMs = j.Opened().UnixMilli() // the former owner has sent nothing since then
		}
		for _, r := range queued {
			// A fan-out is durable before its parts are sent: if it is still due, no host
			// has a part of it.
			if dueAt(r, openedMs+l.ahead.lag(r)) && (!r.Policy.Fans() || r.IsPart()) {
				r.Mark |= isMaybeDispatched
			}
		}
	}
	for _, h := range l.hosts {
		h.lostAt = l.now.Add(l.cfg.HostLease)
	}
	l.rebuildTimers()
	slices.SortFunc(queued, byID)
	for _, r := range queued {
		l.admit(r)
	}
}

// forget drops the work that replayed records have queued: the journal has its results.
func (l *loop) forget() {
	l.rate, l.came = decayingRate{}, 0 // a replay is no load
	l.followed = nil                   // the records of dependent runs were replayed too
	l.moved, l.countedRates = nil, nil
	l.suspects = nil // the next failed attempt makes it a suspect again
	for _, a := range l.apps {
		a.rates = nil
	}
}

// expect records that a host had a run before the restart. The host is not connected; the
// caller sets the time at which its lease ends.
func (l *loop) expect(r *job.Run) {
	h := l.hosts[r.Host]
	if h == nil {
		h = &host{
			hello:  &apiv1.Hello{Host: r.Host, Name: r.Host, Session: r.Session},
			out:    newOutbox(),
			seenAt: l.now,
		}
		l.hosts[r.Host] = h
	}
	l.take(h, r)
}
