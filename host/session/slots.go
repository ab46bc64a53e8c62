package session

import (
	"maps"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// reservedShare determines the slots that tasks of slow jobs leave to other tasks: 1
	// of every reservedShare slots, and at least one. The server applies the same rule to
	// the tasks that it sends. The host applies it to the tasks of all servers together,
	// and to tasks that wake up.
	reservedShare = 4
	// sharedFor is how long after a task of another app the host expects more of them.
	sharedFor = time.Minute
	// maxSleepingPerSlot is the default of Config.MaxSleeping for each slot.
	maxSleepingPerSlot = 16
)

// slots counts the use of a host's execution slots. It is guarded by Worker.mu.
type slots struct {
	all    int
	used   int // used slots: in use by goroutines that execute tasks
	slow   int // those of used with a task of a slow job
	asleep int // tasks whose handlers sleep, or wait for a slot after a sleep
	limit  int // bound of asleep

	tenants map[string]*tenant
	last    *tenant // the app whose task came or ended last
	other   *tenant // the last app before it
}

// tenant is the accounting of one app in a host.
type tenant struct {
	app   string
	held  int           // its tasks without a result
	slow  int           // slots that its tasks of slow jobs use
	seen  time.Duration // the age of the Worker when a task last came or ended
	quick time.Duration // the same for tasks of quick jobs; 0: there was none
}

// tenant returns the accounting of an app, and creates it if needed.
func (s *slots) tenant(app string) *tenant {
	if s.last != nil && s.last.app == app {
		return s.last
	}
	t := s.tenants[app]
	if t == nil {
		if s.tenants == nil {
			s.tenants = map[string]*tenant{}
		}
		t = &tenant{app: app}
		s.tenants[app] = t
	}
	return t
}

// see records that a task came or ended.
func (s *slots) see(t *task, age time.Duration) {
	x := t.tenant
	if x.seen = age; !t.isSlow() {
		x.quick = age
	}
	if s.last != x {
		s.last, s.other = x, s.last
	}
}

// tidy removes the apps that have no task and whose last task is too old to count.
func (s *slots) tidy(age time.Duration) {
	maps.DeleteFunc(s.tenants, func(_ string, t *tenant) bool {
		return t != s.last && t != s.other && t.held == 0 && age-t.seen > sharedFor
	})
}

// reserved returns how many slots tasks of slow jobs leave to other tasks.
func (s *slots) reserved() int {
	if s.all < 2 {
		return 0
	}
	return max(s.all/reservedShare, 1)
}

// admits reports whether a task may have the next free slot. While other apps or quick
// jobs use the host, tasks of slow jobs get no reserved slot, with one exception: an app
// that has no slow task in a slot may run a task of an unmeasured job there, so that the
// job is measured.
func (s *slots) admits(t *task, age time.Duration) bool {
	return !t.isSlow() || s.slow < s.all-s.reserved() ||
		t.pace == apiv1.Pace_PACE_UNMEASURED && t.tenant.slow == 0 ||
		!s.shared(t.tenant, age)
}

// shared reports whether tasks of other apps, or of quick jobs of t, are on the host or
// were there within sharedFor.
func (s *slots) shared(t *tenant, age time.Duration) bool {
	other := s.last
	if other == t {
		other = s.other
	}
	return s.slow > t.slow || other != nil && age-other.seen <= sharedFor || t.quick > 0 && age-t.quick <= sharedFor
}

// A runner is a goroutine that executes tasks, one batch after another. It is guarded by
// Worker.mu.
type runner struct {
	holds bool    // has a slot
	slow  *tenant // the app whose slow job uses the slot; nil: none
}

// occupy gives the runner a slot for one task, or for several tasks of quick jobs.
func (s *slots) occupy(r *runner, t *task) {
	r.holds = true
	s.used++
	if t.isSlow() {
		r.slow = t.tenant
		r.slow.slow++
		s.slow++
	}
}

// vacate frees the runner's slot, if it has one.
func (s *slots) vacate(r *runner) {
	if !r.holds {
		return
	}
	r.holds = false
	s.used--
	if r.slow != nil {
		r.slow.slow--
		s.slow--
		r.slow = nil
	}
}
