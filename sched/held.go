package sched

import (
	"maps"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// workAhead is the work of quick jobs that a host may hold for each execution slot,
	// running tasks included. It covers the round trip to the server, so that the slot
	// never waits for a task. More would make runs wait at one host while another host is
	// idle.
	workAhead = 100 * time.Millisecond
	// sharedFor is how long after its last run at a host an app, or a quick job, still
	// counts as a user of the host.
	sharedFor = time.Minute
	// reservedShare is the number of slots of a host for which one slot is reserved: slow
	// jobs leave the reserved slots to others. At least one slot is reserved, but none on
	// a host that has only one slot.
	reservedShare = 4
)

// held has the runs that were sent to a host and have not ended, and counts the work that
// they are. Only take and drop add and remove runs. The zero value is empty.
type held struct {
	runs   runSet
	told   map[*job.Run]told // the runs whose start the host has reported
	asleep int               // runs in told that sleep and hold no slot
	slow   int               // runs of slow or unmeasured jobs and runs in told, without asleep
	quick  time.Duration     // the expected work of the other runs
	of     map[*app]*presence
	last   *app // key of lastP, the entry of the map that was used last: runs come in series of one app
	lastP  *presence
}

// told is the state of a run as its host has reported it.
type told struct {
	startedMs int64 // start of the handler in Unix ms, by the server's clock
	asleep    bool
}

// presence counts the runs of one app at a host, and when the app used the host last.
type presence struct {
	slow    int   // its runs in held.slow
	quick   int   // its runs in held.quick
	seenMs  int64 // when the last run was sent or ended, in Unix ms
	quickMs int64 // when the last run of a quick job was sent or ended, in Unix ms
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

// tidy forgets the apps that have no run at the host and had none for sharedFor.
func (h *held) tidy(nowMs int64) {
	h.last, h.lastP = nil, nil
	maps.DeleteFunc(h.of, func(_ *app, p *presence) bool {
		return p.slow+p.quick == 0 && nowMs-p.seenMs > sharedFor.Milliseconds()
	})
}

// take adds a run that no host has. It stores the pace in the run, so that drop takes
// back exactly what take has charged.
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

// charge adds a run to the counts of the host and of its app; n is 1, or -1 to take it
// back.
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

// tell records the state that the host has reported of a run. From then on the run counts
// as a slow one, even if its job is quick: hosts report only runs that take 100 ms or
// more.
func (h *held) tell(r *job.Run, t told) {
	p := h.presence(ownerOf(r.Slot()))
	h.charge(r, p, -1)
	if h.told == nil {
		h.told = map[*job.Run]told{}
	}
	h.told[r] = t
	h.charge(r, p, 1)
}

// busy returns the number of runs that hold a slot of the host or wait for one.
func (h *held) busy() int { return len(h.runs) - h.asleep }

// drop removes a run, and reports whether the host had it.
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

// take records that a host has a run, and charges the app and the lane of the run for it.
func (l *loop) take(h *host, r *job.Run) {
	pace := l.paces.of(r)
	h.held.take(r, pace, l.nowMs)
	a := ownerOf(r.Slot())
	a.usage.charge(pace, a.weight())
	a.ready.lane(r, pace).usage.charge(pace, 1)
}

// drop records that a host no longer has a run. took is how long the run held a slot
// there.
func (l *loop) drop(h *host, r *job.Run, took time.Duration) {
	if !h.held.drop(r, l.nowMs) {
		return
	}
	a := ownerOf(r.Slot())
	a.usage.correct(r.Pace, took, a.weight())
	a.ready.lane(r, r.Pace).usage.correct(r.Pace, took, 1)
	if isQuick(l.paces.of(r)) { // with the duration that was learned when it ended
		h.held.presence(a).quickMs = l.nowMs
	}
}

// reserved returns the number of slots that slow jobs leave to others, see reservedShare.
func reserved(slots int) int {
	if slots < 2 {
		return 0
	}
	return max(slots/reservedShare, 1)
}

// admits reports whether a host may be sent a run of that pace now. Runs of quick jobs
// may wait at the host for a slot, up to the host's budget of work. Other runs need a
// free slot, or one that quick runs hold if the app is entitled to it. While the host is
// shared they do not get the reserved slots. As an exception, an app without slow runs at
// the host may use a reserved slot to have an unmeasured job measured.
//
// A run that has a rate is sent only to a host with a free slot, so that it starts at
// once.
func (l *loop) admits(h *host, r *job.Run, pace uint8) bool {
	a := ownerOf(r.Slot())
	slots, n := int(h.hello.Slots), h.held.busy()
	if slots == 0 { // the host reports no slots: only its credits bound it
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

// budget returns the work of quick jobs that a host may hold, see workAhead.
func (h *host) budget() time.Duration {
	return time.Duration(max(int(h.hello.Slots)-h.held.slow, 0)) * workAhead
}

// entitled reports whether a slow run of an app may be sent to a host whose slots are
// taken by runs of quick jobs. It may if each other app with quick runs there has used at
// least as much time as this app and, if this app has quick runs there, its slow runs are
// next. Otherwise a flood of quick runs would keep slow runs from a slot for as long as
// it lasts. The run waits at the host only for the quick work that is there: a host lets
// quick tasks pass a slow one for no longer than workAhead.
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

// shared reports whether a host has other users than the slow jobs of a: other apps, or
// quick jobs of a, that had runs there within sharedFor, or other apps that the host
// serves and that have runs planned in this minute or the next one.
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

// whyNot returns a text that explains why a host that could execute a run is not sent it;
// "" if the host admits the run.
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

// coming has the minutes, since 1970, in which jobs of an app are planned. It may contain
// planned times that were given up since.
type coming map[int64]struct{}

func minuteOf(ms int64) int64 { return ms / time.Minute.Milliseconds() }

// add records a planned time.
func (c *coming) add(ms int64) {
	if *c == nil {
		*c = coming{}
	}
	(*c)[minuteOf(ms)] = struct{}{}
}

// forget drops the minutes before the given one.
func (c coming) forget(before int64) {
	maps.DeleteFunc(c, func(m int64, _ struct{}) bool { return m < before })
}

// within reports whether a time in the current minute or in the next one is planned.
func (c coming) within(nowMs int64) bool {
	at := minuteOf(nowMs)
	_, now := c[at]
	_, next := c[at+1]
	return now || next
}
