package schedule

import (
	"fmt"
	"sort"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// MisfirePolicy decides which missed times become runs.
type MisfirePolicy string

// The misfire policies. The zero value means [MisfireFireOnce].
const (
	MisfireFireOnce MisfirePolicy = "fire_once" // one run for the oldest, which covers the others
	MisfireSkip     MisfirePolicy = "skip"      // no run
	MisfireFireAll  MisfirePolicy = "fire_all"  // a run for each, within bounds
)

// Defaults and limits of a misfire.
const (
	DefaultMisfireMax       = 100
	MaxMisfireMax           = 10_000
	DefaultMisfireWindow    = 24 * time.Hour
	DefaultMisfireThreshold = time.Minute // of skip and fire_all; fire_once has no threshold
)

// Misfire is the part of a definition that handles missed times: planned times that
// passed while no server could start the run. Its zero value starts one run for all of
// them, however late.
type Misfire struct {
	Policy    MisfirePolicy
	Max       int64         // fire_all: at most so many runs, for the newest times
	Window    time.Duration // fire_all: no run for a time older than this
	Threshold time.Duration // a delay up to this is not a misfire
}

// MisfireOf reads the misfire policy of a definition that [Validate] has accepted, and
// fills in the defaults.
func MisfireOf(d *apiv1.Job) Misfire {
	m := d.GetMisfire()
	f := Misfire{Policy: MisfirePolicy(m.GetPolicy()), Max: int64(m.GetMax()), Window: Duration(m.GetWindow()), Threshold: Duration(m.GetThreshold())}
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

func CheckMisfire(d *apiv1.Job) error {
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
	if _, err := ParseDuration("misfire.window", m.Window, time.Second, MaxInterval); err != nil {
		return err
	}
	if _, err := ParseDuration("misfire.threshold", m.Threshold, 0, MaxInterval); err != nil {
		return err
	}
	if d.Schedule == nil {
		return fmt.Errorf("misfire is set, but the job has no schedule: leave it out")
	}
	return nil
}

// Occurrence is a planned time that becomes a run.
type Occurrence struct {
	At     time.Time
	Covers int64 // number of other planned times that the run covers
}

// Range is a range of planned times that become no run.
type Range struct {
	First, Last time.Time
	Count       int64
}

// Due is the decision about the due planned times of a job. It includes all times from
// the first due one up to Next: the runs, the times that they cover, and the missed
// times, which are older than all runs.
type Due struct {
	Runs   []Occurrence // ascending
	Missed *Range       // nil: none
	Next   time.Time    // the next planned time; zero: none
}

// Planned returns the number of planned times in the decision.
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

// Due decides about the planned times from next, which is due, until now plus ahead. left
// is the number of times that the schedule may still plan (see [Plan.Left]).
//
// If now is at most the threshold of m after next, each time becomes a run. Otherwise all
// times that have passed are misfires, including the newest, so that a job with the
// policy skip does not start with a burst:
//
//   - fire_once: a run for the oldest, which covers the others
//   - skip: all are missed
//   - fire_all: a run for each of the newest Max within Window; older ones are missed
//
// Due returns at least one run or missed range, and at most budget runs, where a budget
// below 1 counts as 1. If more times are due, Next is due as well, and the caller
// continues from there when it can.
//
// Missed times are counted without visiting each, so the cost does not depend on their
// number. It is a few microseconds per year that passed, and a few hundred with calendars
// or daily.
func (p Plan) Due(m Misfire, next, now time.Time, ahead time.Duration, left int64, budget int) Due {
	if left <= 0 {
		return Due{}
	}
	q := queue{plan: p.Anchor(next), next: next, ok: true, left: left, budget: max(budget, 1)}
	passed := time.UnixMilli(now.UnixMilli() + 1) // times before this one have passed
	if now.Sub(next) > m.Threshold {
		q.misfire(m, passed, now)
	} else {
		q.run(1) // even if next is beyond ahead: the caller has a reason
	}
	for q.ok && !q.next.After(now.Add(ahead)) && len(q.due.Runs) < q.budget {
		q.run(1)
	}
	if q.ok {
		q.due.Next = q.next
	}
	return q.due
}

// queue holds the planned times of a job while the oldest are being decided.
type queue struct {
	plan   Plan
	next   time.Time // the oldest undecided time
	ok     bool      // there is an undecided time
	left   int64     // how many times may be planned from next on
	budget int       // number of runs, at most
	due    Due
}

// run makes runs of the next n times, as far as the budget allows.
func (q *queue) run(n int64) {
	for ; n > 0 && q.ok && len(q.due.Runs) < q.budget; n-- {
		q.due.Runs = append(q.due.Runs, Occurrence{At: q.next})
		q.pass(q.next, 1)
	}
}

// pass moves past last, which is the n-th time from next on.
func (q *queue) pass(last time.Time, n int64) {
	q.left -= n
	if q.ok = q.left > 0; q.ok {
		q.next, q.ok = q.plan.After(last)
	}
}

// misfire decides about all times before end.
func (q *queue) misfire(m Misfire, end, now time.Time) {
	total := 1 + q.plan.count(q.next.Add(time.Millisecond), end)
	n := min(total, q.left)
	rest := total - n                                                  // the schedule ends before these
	newest := func(k int64) time.Time { return q.newest(k+rest, end) } // the k-th newest of the n
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

// miss makes a missed range of the next n times. last is the newest of them.
func (q *queue) miss(last time.Time, n int64) {
	q.due.Missed = &Range{First: q.next, Last: last, Count: n}
	q.pass(last, n)
}

// newest returns the k-th newest time at or after next and before end. If there are fewer
// than k times, it returns next. It doubles a range before end until the range holds k
// times, then it does a binary search.
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
