package hosts

import (
	"maps"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
)

const (
	// workAhead is the work of quick jobs that a host may hold for each execution slot,
	// running tasks included. It covers the round trip to the server, so that the slot
	// never waits for a task. More would make runs wait at one host while another host is
	// idle.
	workAhead = 100 * time.Millisecond
	// SharedFor is how long after its last run at a host an app, or a quick job, still
	// counts as a user of the host.
	SharedFor = time.Minute
	// reservedShare is the number of slots of a host for which one slot is reserved: slow
	// jobs leave the reserved slots to others. At least one slot is reserved, but none on
	// a host that has only one slot.
	reservedShare = 4
)

// Held has the runs that were sent to a host and have not ended, and counts the work that
// they are. Only take and drop add and remove runs. The zero value is empty.
type Held struct {
	Runs    runSet
	Reports map[*job.Run]Report // the runs whose start the host has reported
	Asleep  int                 // runs in told that sleep and hold no slot
	Slow    int                 // runs of slow or unmeasured jobs and runs in told, without asleep
	Quick   time.Duration       // the expected work of the other runs
	Apps    map[*fair.App]*presence
	last    *fair.App // key of lastP, the entry of the map that was used last: runs come in series of one app
	lastP   *presence
}

// Report is the state of a run as its host has reported it.
type Report struct {
	StartedMs int64 // start of the handler in Unix ms, by the server's clock
	Asleep    bool
}

// presence counts the runs of one app at a host, and when the app used the host last.
type presence struct {
	Slow    int   // its runs in held.slow
	Quick   int   // its runs in held.quick
	SeenMs  int64 // when the last run was sent or ended, in Unix ms
	QuickMs int64 // when the last run of a quick job was sent or ended, in Unix ms
}

// Presence returns the counts of an app at the host.
func (h *Held) Presence(a *fair.App) *presence {
	if h.last == a {
		return h.lastP
	}
	p := h.Apps[a]
	if p == nil {
		if h.Apps == nil {
			h.Apps = map[*fair.App]*presence{}
		}
		p = &presence{}
		h.Apps[a] = p
	}
	h.last, h.lastP = a, p
	return p
}

// Tidy forgets the apps that have no run at the host and had none for SharedFor.
func (h *Held) Tidy(nowMs int64) {
	h.last, h.lastP = nil, nil
	maps.DeleteFunc(h.Apps, func(_ *fair.App, p *presence) bool {
		return p.Slow+p.Quick == 0 && nowMs-p.SeenMs > SharedFor.Milliseconds()
	})
}

// Take adds a run of an app that no host has. It stores the pace in the run, so that drop takes
// back exactly what take has charged.
func (h *Held) Take(a *fair.App, r *job.Run, pace uint8, nowMs int64) {
	h.Runs.add(r)
	r.Pace = pace
	p := h.Presence(a)
	if p.SeenMs = nowMs; fair.IsQuick(pace) {
		p.QuickMs = nowMs
	}
	h.charge(r, p, 1)
}

// charge adds a run to the counts of the host and of its app; n is 1, or -1 to take it
// back.
func (h *Held) charge(r *job.Run, p *presence, n int) {
	var t Report
	isTold := false
	if len(h.Reports) > 0 {
		t, isTold = h.Reports[r]
	}
	switch {
	case t.Asleep:
		h.Asleep += n
	case isTold || !fair.IsQuick(r.Pace):
		h.Slow += n
		p.Slow += n
	default:
		h.Quick += time.Duration(n) * fair.Times[r.Pace]
		p.Quick += n
	}
}

// Record records the state that the host has reported of a run. From then on the run counts
// as a slow one, even if its job is quick: hosts report only runs that take 100 ms or
// more.
func (h *Held) Record(a *fair.App, r *job.Run, t Report) {
	p := h.Presence(a)
	h.charge(r, p, -1)
	if h.Reports == nil {
		h.Reports = map[*job.Run]Report{}
	}
	h.Reports[r] = t
	h.charge(r, p, 1)
}

// Busy returns the number of runs that hold a slot of the host or wait for one.
func (h *Held) Busy() int { return len(h.Runs) - h.Asleep }

// Drop removes a run, and reports whether the host had it.
func (h *Held) Drop(a *fair.App, r *job.Run, nowMs int64) bool {
	if !h.Runs.drop(r) {
		return false
	}
	p := h.Presence(a)
	p.SeenMs = nowMs
	h.charge(r, p, -1)
	if len(h.Reports) > 0 {
		delete(h.Reports, r)
	}
	return true
}
