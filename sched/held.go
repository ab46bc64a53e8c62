package sched

import (
	"maps"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// workAhead is how much work of quick jobs each slot of a host holds, what runs
	// included: enough that the slot does not run dry on the way to the server and
	// back, and no more, so that a run does not wait at one host while another is idle.
	workAhead = 100 * time.Millisecond
	// sharedFor is how long a run, or a time that a run is planned for, is a sign of
	// more.
	sharedFor = time.Minute
	// reservedShare is the part of a host's slots that slow jobs leave to others, 1
	// of so many, and at least one. A host with one slot reserves none.
	reservedShare = 4
)

// held are the runs that a host was sent and that have not ended, and the work that
// they are. Its runs are added and dropped by take and drop alone. The zero value is
// empty.
type held struct {
	runs   runSet
	told   map[*job.Run]told // of which the host has told the start
	asleep int               // of told: those that hold no slot
	slow   int               // of runs: those of jobs that are slow or were not measured, and those told, without asleep
	quick  time.Duration     // the work of all others
	of     map[*app]*presence
	last   *app // whose presence was asked for last, as runs come many of an app in a row
	lastP  *presence
}

// told is what a host has told of a run that it has.
type told struct {
	startedMs int64 // of its handler, by the server's clock
	asleep    bool
}

// presence is what an app has, and had, at a host.
type presence struct {
	slow    int   // of held.slow
	quick   int   // runs of held.quick
	seenMs  int64 // when a run was sent or ended last
	quickMs int64 // likewise, of a quick job
}

func (h *held) presence(a *app) *presence {
	if h.last == a {
		return h.lastP
	}
	p := h.of[a]
	if p == nil {
		if h.of == nil {
			h.of = map[*app]*presence{}
		}
		p = &presence{}
		h.of[a] = p
	}
	h.last, h.lastP = a, p
	return p
}

// tidy forgets the apps of which nothing was at the host for so long that it does not
// count.
func (h *held) tidy(nowMs int64) {
	h.last, h.lastP = nil, nil
	maps.DeleteFunc(h.of, func(_ *app, p *presence) bool {
		return p.slow+p.quick == 0 && nowMs-p.seenMs > sharedFor.Milliseconds()
	})
}

// take adds a run that no host has. Its pace is what the host has been charged for it
// until it is dropped.
func (h *held) take(r *job.Run, pace uint8, nowMs int64) {
	h.runs.add(r)
	r.Pace = pace
	r.Mark &^= isRecalled
	p := h.presence(ownerOf(r.Slot()))
	if p.seenMs = nowMs; isQuick(pace) {
		p.quickMs = nowMs
	}
	h.charge(r, p, 1)
}

// charge counts what a run takes of a host, n times: 1 or -1.
func (h *held) charge(r *job.Run, p *presence, n int) {
	var t told
	isTold := false
	if len(h.told) > 0 {
		t, isTold = h.told[r]
	}
	switch {
	case t.asleep:
		h.asleep += n
	case isTold || !isQuick(r.Pace):
		h.slow += n
		p.slow += n
	default:
		h.quick += time.Duration(n) * paceTimes[r.Pace]
		p.quick += n
	}
}

// tell notes what the host has told of a run that it has. A run that is quick as a rule
// and is not this time takes a slot like a slow one.
func (h *held) tell(r *job.Run, t told) {
	p := h.presence(ownerOf(r.Slot()))
	h.charge(r, p, -1)
	if h.told == nil {
		h.told = map[*job.Run]told{}
	}
	h.told[r] = t
	h.charge(r, p, 1)
}

// busy returns how many runs hold a slot of the host, or wait for one.
func (h *held) busy() int { return len(h.runs) - h.asleep }

// drop takes a run out, and reports whether it was there.
func (h *held) drop(r *job.Run, nowMs int64) bool {
	if !h.runs.drop(r) {
		return false
	}
	p := h.presence(ownerOf(r.Slot()))
	p.seenMs = nowMs
	h.charge(r, p, -1)
	if len(h.told) > 0 {
		delete(h.told, r)
	}
	return true
}

// take notes that a run is with a host, and charges its app for it.
func (l *loop) take(h *host, r *job.Run) {
	pace := l.paces.of(r)
	h.held.take(r, pace, l.nowMs)
	a := ownerOf(r.Slot())
	a.usage.charge(pace, a.weight())
	a.ready.lane(r, pace).usage.charge(pace, 1)
}

// drop takes back that a run is with a host, where it held a slot for that long.
func (l *loop) drop(h *host, r *job.Run, took time.Duration) {
	if !h.held.drop(r, l.nowMs) {
		return
	}
	a := ownerOf(r.Slot())
	a.usage.correct(r.Pace, took, a.weight())
	a.ready.lane(r, r.Pace).usage.correct(r.Pace, took, 1)
	if isQuick(l.paces.of(r)) { // as was learned when it ended
		h.held.presence(a).quickMs = l.nowMs
	}
}

// reserved returns the slots of a host that slow jobs leave to others.
func reserved(slots int) int {
	if slots < 2 {
		return 0
	}
	return max(slots/reservedShare, 1)
}

// admits reports whether a host may be sent a run of that pace now. Runs of quick
// jobs may wait there, for as long as the work ahead of them takes. All others get a
// slot at once, and none of those that are reserved while the host is shared. An app
// that has no such run at the host may have its job measured in one of these.
//
// A run that has a rate is sent only when it starts at once.
func (l *loop) admits(h *host, r *job.Run, pace uint8) bool {
	a := ownerOf(r.Slot())
	slots, n := int(h.hello.Slots), h.held.busy()
	if slots == 0 { // it did not say: its credits alone count
		return true
	}
	if n >= slots && rated(r) {
		return false
	}
	if isQuick(pace) {
		return n < slots || h.held.quick+paceTimes[pace] <= h.budget()
	}
	return (n < slots || h.held.slow < slots && l.entitled(h, a)) && (h.held.slow < slots-reserved(slots) ||
		pace == 0 && h.held.presence(a).slow == 0 ||
		!l.shared(h, a))
}

// rated reports whether the starts of a run's job, or of its app, have a rate.
func rated(r *job.Run) bool {
	return r.Policy.Rate > 0 || ownerOf(r.Slot()).slots[job.ModuleSlot].Settings.GetRate().GetMax() > 0
}

// budget returns how much work of quick jobs a host may hold.
func (h *host) budget() time.Duration {
	return time.Duration(max(int(h.hello.Slots)-h.held.slow, 0)) * workAhead
}

// entitled reports whether a slow run of an app may be sent to a host whose slots are
// taken by runs of quick jobs: if those whose runs they are had as much as the app. A flood
// of quick runs would otherwise keep slow ones from a slot for as long as it lasts. The
// run waits at the host for the work that is there, and no longer: hosts let quick tasks
// pass for as long as that.
func (l *loop) entitled(h *host, a *app) bool {
	for other, p := range h.held.of {
		switch {
		case p.quick == 0:
		case other != a:
			if other.usage.used < a.usage.used {
				return false
			}
		case !a.ready.slowIsNext():
			return false
		}
	}
	return true
}

// shared reports whether runs of other apps, or of quick jobs of a, were at a host not
// long ago or are soon due.
func (l *loop) shared(h *host, a *app) bool {
	since := l.nowMs - sharedFor.Milliseconds()
	for other, p := range h.held.of {
		if other == a && p.quickMs >= since || other != a && (p.slow > 0 || p.seenMs >= since) {
			return true
		}
	}
	for _, other := range l.apps {
		if other != a && h.serves(other.name) && other.coming.within(l.nowMs) {
			return true
		}
	}
	return false
}

// whyNot says for people why a host is not sent a run that it could execute; "": it is.
func (l *loop) whyNot(h *host, r *job.Run) string {
	pace := l.paces.of(r)
	switch {
	case l.admits(h, r, pace):
		return ""
	case rated(r) && h.held.busy() >= int(h.hello.Slots):
		return "has no free slot, and the job has a rate: its runs wait at the server"
	case isQuick(pace):
		return "has the work that it may hold"
	case h.held.busy() >= int(h.hello.Slots) && pace == 0:
		return "has no free slot, and the job was not measured yet: its runs wait at the server"
	case h.held.busy() >= int(h.hello.Slots):
		return "has no free slot, and the job is slow: its runs wait at the server"
	case pace == 0:
		return "keeps its last slots for other apps and quick jobs, and this one was not measured yet"
	}
	return "keeps its last slots for other apps and quick jobs, and this one is slow"
}

// coming knows in which minutes jobs of an app are planned. It may name a time that
// was given up since.
type coming map[int64]struct{}

func minuteOf(ms int64) int64 { return ms / time.Minute.Milliseconds() }

// add notes a planned time.
func (c *coming) add(ms int64) {
	if *c == nil {
		*c = coming{}
	}
	(*c)[minuteOf(ms)] = struct{}{}
}

// forget drops the minutes before one.
func (c coming) forget(before int64) {
	maps.DeleteFunc(c, func(m int64, _ struct{}) bool { return m < before })
}

// within reports whether a time of this minute or the next one was planned.
func (c coming) within(nowMs int64) bool {
	at := minuteOf(nowMs)
	_, now := c[at]
	_, next := c[at+1]
	return now || next
}
