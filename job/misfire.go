package job

import (
	"fmt"
	"sort"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// MisfirePolicy says what becomes of planned times that passed.
type MisfirePolicy string

// The misfire policies. The zero value means [MisfireFireOnce].
const (
	MisfireFireOnce MisfirePolicy = "fire_once" // the oldest stands for all
	MisfireSkip     MisfirePolicy = "skip"      // none runs
	MisfireFireAll  MisfirePolicy = "fire_all"  // each runs, within bounds
)

// Defaults and limits of a misfire.
const (
	DefaultMisfireMax       = 100
	MaxMisfireMax           = 10_000
	DefaultMisfireWindow    = 24 * time.Hour
	DefaultMisfireThreshold = time.Minute // of skip and fire_all; fire_once has none
)

// Misfire is the part of a definition that decides about planned times that
// passed while nobody could fire them. Its zero value fires once for all of
// them, however late.
type Misfire struct {
	Policy    MisfirePolicy
	Max       int64         // fire_all: the newest so many
	Window    time.Duration // fire_all: not older than this
	Threshold time.Duration // a delay up to this is no misfire
}

// MisfireOf reads the misfire of a definition that [Validate] has accepted, with
// its defaults.
func MisfireOf(d *apiv1.Job) Misfire {
	m := d.GetMisfire()
	f := Misfire{Policy: MisfirePolicy(m.GetPolicy()), Max: int64(m.GetMax()), Window: duration(m.GetWindow()), Threshold: duration(m.GetThreshold())}
	if f.Policy == "" {
		f.Policy = MisfireFireOnce
	}
	if f.Max == 0 {
		f.Max = DefaultMisfireMax
	}
	if f.Window == 0 {
		f.Window = DefaultMisfireWindow
	}
	if m.GetThreshold() == "" && f.Policy != MisfireFireOnce {
		f.Threshold = DefaultMisfireThreshold
	}
	return f
}

func checkMisfire(d *apiv1.Job) error {
	m := d.Misfire
	if m == nil {
		return nil
	}
	switch MisfirePolicy(m.Policy) {
	case "", MisfireFireOnce, MisfireSkip:
		if m.Max != 0 || m.Window != "" {
			return fmt.Errorf("misfire.max and misfire.window go with the policy fire_all only: leave them out")
		}
	case MisfireFireAll:
		if m.Max < 0 || m.Max > MaxMisfireMax {
			return fmt.Errorf("misfire.max is %d: write 1 to %d, or leave it out for %d", m.Max, MaxMisfireMax, DefaultMisfireMax)
		}
	default:
		return fmt.Errorf("misfire.policy: %q is not a policy: write fire_once, skip or fire_all", m.Policy)
	}
	if _, err := lasts("misfire.window", m.Window, time.Second, MaxInterval); err != nil {
		return err
	}
	if _, err := lasts("misfire.threshold", m.Threshold, 0, MaxInterval); err != nil {
		return err
	}
	if d.Schedule == nil {
		return fmt.Errorf("misfire stands without a schedule: leave it out")
	}
	return nil
}

// Occurrence is a planned time that becomes a run.
type Occurrence struct {
	At     time.Time
	Covers int64 // other planned times for which the run stands too
}

// Range is planned times that become no run.
type Range struct {
	First, Last time.Time
	Count       int64
}

// Due is what a job's planned times become. All times from the one that was due
// up to Next are in it: the runs, those that they cover, and the missed ones,
// which are older than all runs.
type Due struct {
	Runs   []Occurrence // ascending
	Missed *Range       // nil: none
	Next   time.Time    // the next planned time; zero: none
}

// Planned returns how many planned times are decided.
func (d Due) Planned() int64 {
	var n int64
	for _, r := range d.Runs {
		n += 1 + r.Covers
	}
	if d.Missed != nil {
		n += d.Missed.Count
	}
	return n
}

// Due decides what becomes of the planned times from next, which is due, up to
// ahead of now. left is how many times the schedule may still plan (see
// [Plan.Left]).
//
// If next is not later than the threshold, each time is a run. Else all times
// that have passed are misfires, also the youngest of them, so that a job which
// skips does not begin with a burst:
//
//   - fire_once: a run for the oldest, which covers the others
//   - skip: all are missed
//   - fire_all: a run for each of the newest Max within Window, older ones are missed
//
// There are at most budget runs, and at least one: if more are due then Next is
// one of them, and the caller goes on from there when it can.
//
// Times that passed are counted, not visited: the cost does not depend on how
// many there are. It is some microseconds for each year that passed, some
// hundreds with calendars or daily.
func (p Plan) Due(m Misfire, next, now time.Time, ahead time.Duration, left int64, budget int) Due {
	if left <= 0 {
		return Due{}
	}
	q := queue{plan: p.Anchor(next), next: next, ok: true, left: left, budget: max(budget, 1)}
	passed := time.UnixMilli(now.UnixMilli() + 1) // what is before it has passed
	if now.Sub(next) > m.Threshold {
		q.misfire(m, passed, now)
	} else {
		q.run(1) // also if it is further ahead: the caller knows why
	}
	for q.ok && !q.next.After(now.Add(ahead)) && len(q.due.Runs) < q.budget {
		q.run(1)
	}
	if q.ok {
		q.due.Next = q.next
	}
	return q.due
}

// queue is the planned times of a job of which the oldest are decided.
type queue struct {
	plan   Plan
	next   time.Time // the oldest that is not decided
	ok     bool      // there is one
	left   int64     // how many may be planned from next on
	budget int       // of runs
	due    Due
}

// run makes runs of the next n times, as far as the budget goes.
func (q *queue) run(n int64) {
	for ; n > 0 && q.ok && len(q.due.Runs) < q.budget; n-- {
		q.due.Runs = append(q.due.Runs, Occurrence{At: q.next})
		q.pass(q.next, 1)
	}
}

// pass goes on behind last, the n-th time from next.
func (q *queue) pass(last time.Time, n int64) {
	q.left -= n
	if q.ok = q.left > 0; q.ok {
		q.next, q.ok = q.plan.After(last)
	}
}

// misfire decides about all times before the end.
func (q *queue) misfire(m Misfire, end, now time.Time) {
	total := 1 + q.plan.count(q.next.Add(time.Millisecond), end)
	n := min(total, q.left)
	rest := total - n                                                  // the schedule ends before these
	newest := func(k int64) time.Time { return q.newest(k+rest, end) } // of the n
	switch m.Policy {
	case MisfireSkip:
		q.miss(newest(1), n)
	case MisfireFireAll:
		within := n
		if start := now.Add(-m.Window); q.next.Before(start) {
			within = max(q.plan.count(start, end)-rest, 0)
		}
		runs := min(within, m.Max)
		if runs < n {
			q.miss(newest(runs+1), n-runs)
		}
		q.run(runs)
	default:
		q.due.Runs = append(q.due.Runs, Occurrence{At: q.next, Covers: n - 1})
		q.pass(newest(1), n)
	}
}

// miss makes a range of the next n times, of which last is the last one.
func (q *queue) miss(last time.Time, n int64) {
	q.due.Missed = &Range{First: q.next, Last: last, Count: n}
	q.pass(last, n)
}

// newest returns the k-th newest time from next on that is before end; the
// oldest is next itself. It looks for a span before the end that holds k times,
// and cuts it in halves.
func (q *queue) newest(k int64, end time.Time) time.Time {
	oldest, to := q.next.UnixMilli(), end.UnixMilli()
	from := to
	for width := int64(1000); ; width *= 2 {
		from = max(to-width, oldest+1)
		if from >= to {
			return q.next
		}
		if q.plan.count(time.UnixMilli(from), end) >= k {
			break
		}
		if from == oldest+1 {
			return q.next
		}
	}
	tooFew := sort.Search(int(to-from), func(i int) bool { return q.plan.count(time.UnixMilli(from+int64(i)), end) < k })
	return time.UnixMilli(from + int64(tooFew) - 1).In(q.plan.Location())
}
