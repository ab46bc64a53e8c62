package projection

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// Target is the state into which Load loads what the store has.
type Target interface {
	// App returns an app, and makes it if it is missing.
	App(name string) *App
	// LoadedJob is called for each job that was loaded.
	LoadedJob(j *job.Job)
	// LoadCanary sets the counts of a canary. ref is name@alias.
	LoadCanary(app, ref string, t *job.Tally)
	// LoadAccess loads a row of the access state.
	LoadAccess(kind, id string, value []byte) error
	// LoadAudit sets the end of the chain of audit events.
	LoadAudit(row *apiv1.AuditHeadRow)
}

// loading is one call of Load.
type loading struct {
	v    *View
	to   Target
	apps map[string]*App // those that the store has rows of
}

func (ld *loading) app(name string) *App {
	a := ld.apps[name]
	if a == nil {
		a = ld.to.App(name)
		ld.apps[name] = a
	}
	return a
}

// slot returns the slot of a job; nil: the app does not exist.
func (ld *loading) slot(app, name string) *job.Slot {
	if a := ld.apps[app]; a != nil {
		return a.Slots[job.SlotOf(name)]
	}
	return nil
}

// Load loads the state that the store has into the slots of to, which is empty, and returns
// the sequence of the last record that the store includes.
func (v *View) Load(to Target) (applied uint64, err error) {
	if err := (&loading{v, to, map[string]*App{}}).load(); err != nil {
		return 0, err
	}
	return v.writer.applied, nil
}

func (ld *loading) load() error {
	v, to := ld.v, ld.to
	bundled, err := v.loadBundle()
	if err != nil {
		return fmt.Errorf("load the store: %w", err)
	}
	err = v.cfg.Store.Load(store.Loader{
		Job: func(app, name string, value []byte) error {
			row := &apiv1.JobRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return fmt.Errorf("job %s/%s: %w", app, name, err)
			}
			j, err := ld.app(app).Slots[job.SlotOf(name)].LoadJob(name, row)
			if err == nil {
				to.LoadedJob(j) // here, which saves another pass over all jobs
			}
			return err
		},
		Stats: func(app, name string, value []byte) error {
			row := &apiv1.JobStatsRow{}
			if err := proto.Unmarshal(value, row); err != nil {
				return fmt.Errorf("stats of job %s/%s: %w", app, name, err)
			}
			s := ld.slot(app, name)
			if s == nil {
				return nil
			}
			if j := s.Jobs.Get(name); j != nil {
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
			r, err := ld.run(row)
			if err != nil {
				return err
			}
			r.Mark |= isStored
			if ok {
				v.RunChanged(r)
			}
			return nil
		},
		Module: func(app, name, version string, value []byte) error {
			m := &apiv1.Module{}
			ld.app(app).Slots[job.ModuleSlot].Modules[name+"@"+version] = m
			return proto.Unmarshal(value, m)
		},
		Row: ld.row,
	})
	if err != nil {
		return fmt.Errorf("load the store: %w", err)
	}
	rest := slices.SortedFunc(maps.Values(bundled), func(a, b *apiv1.RunRow) int {
		return cmp.Or(cmp.Compare(a.App, b.App), bytes.Compare(a.Id, b.Id))
	})
	for _, row := range rest {
		r, err := ld.run(row)
		if err != nil {
			return fmt.Errorf("run %s of app %s: %w", job.RunID(row.Id), row.App, err)
		}
		v.RunChanged(r)
	}
	v.measure()
	err = v.cfg.Store.EachKeys(func(k store.Keys, at int64) error {
		a := ld.app(k.App)
		loaded, err := a.loadKeys(k.Value, nil)
		if err != nil {
			return fmt.Errorf("idempotency keys of app %s at %d: %w", k.App, at, err)
		}
		v.stored = append(v.stored, loaded.chunk(a, at))
		return nil
	})
	if err != nil {
		return err
	}
	v.writer.applied = v.cfg.Store.Applied()
	return ld.recount()
}

func (ld *loading) run(row *apiv1.RunRow) (*job.Run, error) {
	id := job.RunID(row.Id)
	s := ld.app(row.App).Slots[id.Slot()]
	if err := s.LoadRun(row); err != nil {
		return nil, err
	}
	return s.Runs.Get(id), nil
}

// recount counts the runs in the history that ended after the statistics of their jobs
// were written, see deferredStats.
func (ld *loading) recount() error {
	v := ld.v
	var ends []job.Ending
	count := func() {
		for i, j := range job.FindJobs(ends, func(e *job.Ending, w *job.Wanted) { w.Name, w.Slot = e.Job, ld.slot(e.App, e.Job) }) {
			if j != nil && j.Recount(ends[i]) {
				v.JobCounted(j)
			}
		}
		ends = ends[:0]
	}
	err := v.cfg.Store.Since(v.deferred.from, func(value []byte) error {
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
	v.deferred.begin(v.lengths.history)
	return nil
}
