package core

import (
	"math"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/fair"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// gone reports whether there is nothing in the app: it was deleted, or a check of a definition
// has named it and nothing was put into it.
func (a *app) gone() bool {
	s := a.slots[job.ModuleSlot]
	switch {
	case job.Deleted(s.Settings):
	case s.Settings != nil, s.Limits != nil, s.Home != "", a.rows.Count.Succeeded+a.rows.Count.Failed > 0:
		return false
	}
	return !slices.ContainsFunc(a.slots[:], func(s *job.Slot) bool { return s.Jobs.Len()+s.Runs.Len() > 0 || s.HasResources() })
}

// app is the state of the sub-app that this partition has.
type app struct {
	name   string
	number int // position in timers.apps, from 1; 0: no timer names it
	slots  [job.Slots]*job.Slot
	fair   fair.App       // its queued runs, and its share of the hosts
	live   acceptance     // live runs in the order of acceptance
	runs   int64          // number of live runs
	used   job.Usage      // the slots count it
	rows   projection.App // what the projection has of it
	labels labels
	// tails has, by slot, the open record of accepted runs.
	tails    [job.Slots]tail
	alerts   *appAlerts            // nil: the app has no rules and no channels
	canaries map[string]*job.Tally // of canaries, by name@alias
	trust    trust
	rates    *[job.Slots]slotRate // by slot; nil: nothing was counted
	copied   stamp                // of the last state of the primary partition that was copied here
}

// pausedAt returns the pause of the app that lasts at a time, in Unix ms; nil: it is not paused then.
func (a *app) pausedAt(ms int64) *apiv1.AppPause {
	p := a.slots[job.ModuleSlot].Pause
	if p == nil || ms < p.Since.AsTime().UnixMilli() || p.Until != nil && ms >= p.Until.AsTime().UnixMilli() {
		return nil
	}
	return p
}

// wakesMs returns when the last pause of the app has ended or will end, in Unix ms; 0: there was none.
// ok is false if it has no end.
func (a *app) wakesMs() (ms int64, ok bool) {
	switch p := a.slots[job.ModuleSlot].Pause; {
	case p == nil:
		return 0, true
	case p.Until == nil:
		return 0, false
	default:
		return p.Until.AsTime().UnixMilli(), true
	}
}

// fairOf returns the fair queueing of the app of a run.
func fairOf(r *job.Run) *fair.App { return &ownerOf(r.Slot()).fair }

// ownerOf returns the app of a slot.
func ownerOf(s *job.Slot) *app { return s.Owner.(*app) }

// minute returns the roll-up of the minute of a time in Unix ms.
func (a *app) minute(atMs int64) *apiv1.MinuteRow {
	at := projection.MinuteOf(atMs)
	m, fresh := a.rows.Minute(at)
	if fresh {
		a.fair.Coming.Forget(at)
	}
	return m
}

// app returns the app of that name, and makes it if it is missing.
func (st *state) app(name string) *app {
	a := st.find(name)
	if a == nil {
		a = &app{name: name, fair: fair.App{Name: name}, labels: newLabels(name), canaries: map[string]*job.Tally{}}
		for i := range a.slots {
			a.slots[i] = job.NewSlot(name, uint8(i))
			a.slots[i].Owner, a.slots[i].Usage = a, &a.used
		}
		a.rows = projection.NewApp(name, &a.slots)
		st.apps[name] = a
	}
	return a
}

// find returns the app of that name; nil: there is none. Most calls are for the same app as the
// call before, so they need no look-up.
func (st *state) find(name string) *app {
	if st.recent == nil || st.recent.name != name {
		a := st.apps[name]
		if a == nil {
			return nil
		}
		st.recent = a
	}
	return st.recent
}

// Job returns a job; nil: there is none.
func (st *state) Job(app, name string) *job.Job {
	if a := st.find(app); a != nil {
		return a.slots[job.SlotOf(name)].Jobs.Get(name)
	}
	return nil
}

// LiveRun returns a live run; nil: there is none.
func (st *state) LiveRun(app string, id job.RunID) *job.Run {
	if a := st.find(app); a != nil {
		return a.slots[id.Slot()].Runs.Get(id)
	}
	return nil
}

// findRun returns the live run of an app with an id; nil: there is none, or the id is
// malformed.
func (st *state) findRun(app string, id []byte) *job.Run {
	if s, id := st.slotOfRun(app, id); s != nil {
		return s.Runs.Get(id)
	}
	return nil
}

// slotOfRun returns the slot that has a run, if it is live; nil: the app does not exist, or
// the id is malformed.
func (st *state) slotOfRun(app string, id []byte) (s *job.Slot, run job.RunID) {
	if a := st.find(app); a != nil && len(id) == len(run) {
		run = job.RunID(id)
		s = a.slots[run.Slot()]
	}
	return s, run
}

// The mark of jobs. The lower bits belong to the projection, and the highest to fair.
const isSeen = projection.FreeJobMark // the current sweep has found the timer that the job needs

// The marks of runs. The lower bits belong to the projection.
const (
	isMaybeDispatched = projection.FreeRunMark << iota // it was due when recovery began: see sessions.recovering
	isRecalled                                         // its host was asked to give it back
	isInResultBatch                                    // the result batch has a result of the run
)

// emptied clears a list so that its memory can be used again. It returns nil if the list
// has room for more than 65,536 entries.
func emptied[T any](list []T) []T {
	if cap(list) > 1<<16 {
		return nil
	}
	clear(list)
	return list[:0]
}

// JobKey identifies a job of an app, or another object that a name identifies.
type jobKey struct{ app, name string }

// weight returns the weight of an app, which is at least 1.
func (a *app) weight() time.Duration {
	return time.Duration(max(a.slots[job.ModuleSlot].Settings.GetWeight(), 1))
}

// gone reports whether a run has ended and left its slot.
func gone(r *job.Run) bool { return r.State.Terminal() }

func byID(a, b *job.Run) int { return slices.Compare(a.ID[:], b.ID[:]) }

// tail names an open record: it is in the batch of this turn, and its slot has no later
// record.
type tail struct {
	stage uint64 // number of its batch; 0: there is no open record
	rec   int    // index in stage.recs
}

// trust caches the trust id of an app.
type trust struct {
	of *apiv1.App // the settings from which id was computed
	id string     // "": the app requires no signatures
}

// slotRate is the rate of accepted runs of one slot.
type slotRate struct {
	decayingRate
	pending int // runs that were counted in this turn
}

// stamp orders the states of an app that the primary partition sends: by the epoch of its
// owner, and by the revisions of that owner. A former owner of the primary partition may
// have been suspended and then send an old state; the stamp lets this partition refuse
// it. Stamps are not durable: the primary partition sends its state again to each new
// owner of this partition.
type stamp struct{ epoch, revision uint64 }

// before reports whether s is older than other. It is false for a zero stamp, which
// servers of older versions send.
func (s stamp) before(other stamp) bool {
	return s.epoch > 0 && (s.epoch < other.epoch || s.epoch == other.epoch && s.revision < other.revision)
}

// decayingRate is a number of events a second in which an event loses half of its weight
// each rateHalfLife. It measures the present load: a total since the start would keep
// work away from a server that has been idle since yesterday.
type decayingRate struct {
	rate float64
	at   time.Time
}

const rateHalfLife = 30 * time.Second

func (r *decayingRate) add(now time.Time, n int) {
	if n == 0 {
		return
	}
	r.rate = r.value(now) + float64(n)*math.Ln2/rateHalfLife.Seconds()
	r.at = now
}

func (r *decayingRate) value(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	return r.rate * math.Exp2(-now.Sub(r.at).Seconds()/rateHalfLife.Seconds())
}

// HasRecent reports whether a run is live, or has ended and may not be in the history yet.
func (l *Loop) HasRecent(app string, id job.RunID) bool {
	return l.State.LiveRun(app, id) != nil || l.View.HasRecent(app, id)
}

// Size returns the numbers of jobs and of runs that have not ended, of all apps.
func (st *state) Size() (jobs, runs int64) {
	for _, a := range st.apps {
		for _, slot := range a.slots {
			jobs += int64(slot.Jobs.Len())
			runs += int64(slot.Runs.Len())
		}
	}
	return jobs, runs
}
