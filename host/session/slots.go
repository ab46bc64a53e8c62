package session

import (
	"maps"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// reservedShare is the part of the slots that tasks of slow jobs leave to others, 1 of
	// so many, and at least one. The server keeps the same rule for what it sends; the
	// worker keeps it for the tasks of several servers, and for those that wake up.
	reservedShare = 4
	// sharedFor is how long a task of another app is a sign of more.
	sharedFor = time.Minute
	// maxSleepingPerSlot is the default of Config.MaxSleeping for each slot.
	maxSleepingPerSlot = 16
)

// slots counts what uses the slots of a worker. It is guarded by Worker.mu.
type slots struct {
	all    int
	used   int // by goroutines that execute tasks
	slow   int // of used: with a task of a slow job
	asleep int // tasks whose handlers sleep, or wait to go on, without a slot
	limit  int // of asleep

	tenants map[string]*tenant
	last    *tenant // the one that was seen last
	other   *tenant // the one that was seen last before it
}

// tenant is what an app has, and had, at a worker.
type tenant struct {
	app   string
	held  int           // its tasks without a result
	slow  int           // slots that its tasks of slow jobs use
	seen  time.Duration // the age of the worker when a task came or ended last
	quick time.Duration // likewise, of a quick job; 0: none has
}

// tenant returns that of an app of which something is at the worker.
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

// see notes that a task came or ended.
func (s *slots) see(t *task, age time.Duration) {
	x := t.tenant
	if x.seen = age; !t.isSlow() {
		x.quick = age
	}
	if s.last != x {
		s.last, s.other = x, s.last
	}
}

// tidy forgets the apps of which nothing was at the worker for so long that it does
// not count.
func (s *slots) tidy(age time.Duration) {
	maps.DeleteFunc(s.tenants, func(_ string, t *tenant) bool {
		return t != s.last && t != s.other && t.held == 0 && age-t.seen > sharedFor
	})
}

// reserved returns how many slots tasks of slow jobs leave to others.
func (s *slots) reserved() int {
	if s.all < 2 {
		return 0
	}
	return max(s.all/reservedShare, 1)
}

// admits reports whether a task may have the next free slot. Those of slow jobs get none
// that is reserved while the worker is shared. An app without such a task in a slot may
// have a job measured in one of these.
func (s *slots) admits(t *task, age time.Duration) bool {
	return !t.isSlow() || s.slow < s.all-s.reserved() ||
		t.pace == apiv1.Pace_PACE_UNMEASURED && t.tenant.slow == 0 ||
		!s.shared(t.tenant, age)
}

// shared reports whether tasks of other apps, or of quick jobs of t, are at the worker or
// were not long ago.
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
	holds bool    // a slot
	slow  *tenant // whose slow job uses it; nil: none
}

// occupy gives the runner a slot for a task, or for several of quick jobs.
func (s *slots) occupy(r *runner, t *task) {
	r.holds = true
	s.used++
	if t.isSlow() {
		r.slow = t.tenant
		r.slow.slow++
		s.slow++
	}
}

// vacate takes back the runner's slot, if it has one.
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
