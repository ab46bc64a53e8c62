package core

import (
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Together has definitions of one app that are applied together. The check of one of them
// sees the others as if they had been applied. A nil value in a map is a deletion. The zero
// value, and nil, mean that a definition is applied alone.
type Together struct {
	names      map[string]bool // jobs of a dry run: they count as existing, and are not known
	jobs       map[string]*apiv1.Job
	dependents map[string][]string // by job: those of jobs that depend on it
	aliases    map[string]*apiv1.Alias
	calendars  map[string]*schedule.Calendar
	channels   map[string]bool             // alert channels; false: it is deleted
	rules      map[string]*apiv1.AlertRule // nil: it is deleted
	started    map[string]int              // by type of events: the jobs that they start
	sources    map[string]bool             // event sources; false: it is deleted
	settings   *apiv1.App                  // nil: unchanged
}

// TogetherWith returns a Together with jobs of which only the names are known.
func TogetherWith(names []string) *Together {
	t := &Together{names: map[string]bool{}}
	for _, name := range names {
		t.names[name] = true
	}
	return t
}

// hasJob reports whether a job of the app exists.
func (t *Together) hasJob(st *state, app, name string) bool {
	if t != nil {
		if d, changes := t.jobs[name]; changes {
			return d != nil
		}
		if t.names[name] {
			return true
		}
	}
	return st.Job(app, name) != nil
}

// changesJob reports whether the definition of a job is among those that are applied.
func (t *Together) changesJob(name string) bool {
	if t == nil {
		return false
	}
	_, changes := t.jobs[name]
	return changes
}

// alone reports whether nothing is known of other definitions.
func (t *Together) alone() bool { return t == nil || t.jobs == nil }

// changing returns the number of jobs of a slot that name a handler and whose definitions are
// among those that are applied.
func (t *Together) changing(s *job.Slot, module, handler string) (n int) {
	if t == nil {
		return 0
	}
	for name := range t.jobs {
		if job.SlotOf(name) != s.Index {
			continue
		}
		if j := s.Jobs.Get(name); j != nil && j.Module() == module && j.Definition().GetHandler().GetName() == handler {
			n++
		}
	}
	return n
}

// alias returns an alias of an app; nil: there is none.
func (t *Together) alias(a *app, ref string) *apiv1.Alias {
	if t != nil {
		if x, changes := t.aliases[ref]; changes {
			return x
		}
	}
	return a.aliases()[ref]
}

// settingsOf returns the settings of an app.
func (t *Together) settingsOf(a *app) *apiv1.App {
	if t != nil && t.settings != nil {
		return t.settings
	}
	return a.slots[job.ModuleSlot].Settings
}

// changesCalendarOf reports whether the schedule of a definition names a calendar that is
// among those that are applied.
func (t *Together) changesCalendarOf(def *apiv1.Job) bool {
	if t == nil || len(t.calendars) == 0 {
		return false
	}
	changed := func(name string) bool {
		_, changes := t.calendars[name]
		return changes
	}
	return slices.ContainsFunc(def.GetSchedule().GetInclude(), changed) || slices.ContainsFunc(def.GetSchedule().GetExclude(), changed)
}

// sourceChange returns whether an event source exists after the changes, if they change it.
func (t *Together) sourceChange(name string) (exists, changes bool) {
	if t == nil {
		return false, false
	}
	exists, changes = t.sources[name]
	return exists, changes
}

func (t *Together) channelChange(name string) (exists, changes bool) {
	if t == nil {
		return false, false
	}
	exists, changes = t.channels[name]
	return exists, changes
}

// alerting returns the number of jobs with alerts that are applied, at least the one that is applied alone.
func (t *Together) alerting() (n int) {
	if t.alone() {
		return 1
	}
	for _, d := range t.jobs {
		if len(d.GetAlerts()) > 0 {
			n++
		}
	}
	return n
}

// addJob adds a definition, or a deletion if def is nil.
func (t *Together) addJob(name string, def *apiv1.Job) {
	set(&t.jobs, name, def)
	if e := def.GetTrigger().GetEvent(); e != "" {
		set(&t.started, e, t.started[e]+1)
	}
	for _, up := range def.GetDependency().GetJobs() {
		set(&t.dependents, up, append(t.dependents[up], name))
	}
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
