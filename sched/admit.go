package sched

import (
	"fmt"
	"math"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// A due run passes three checks before a host gets it: the overlap policy of its job
// admits it (admit), it waits in the ready queue by priority (queue.go), and its deadline,
// rate and routing are checked when its turn comes (dispatch.go). The queues are not
// durable: after a restart the live runs pass the checks again in the same order, and get
// the same positions.

// overlapQueue has the live runs of a job with a bounding overlap policy.
type overlapQueue struct {
	// in has the runs that may be dispatched, held those that wait for them, in the order
	// of their acceptance. Invariant: held is empty while the policy admits one more.
	in   map[job.RunID]*job.Run
	held []*job.Run
}

// boundedByOverlap reports whether a run is in an overlap queue. For the parts of a run,
// their parent is in the queue. A run that was accepted under a policy without bounds is
// admitted as that policy says. It still counts for later runs if the job has a bounding
// policy now, so it is in the queue too.
func boundedByOverlap(r *job.Run) bool {
	if r.IsPart() {
		return false
	}
	return r.Policy.Bounded() || r.Owner().Current() && r.Owner().Policy().Bounded()
}

// queueAccepted adds the live runs of a job to its overlap queue when the job gets a
// bounding policy. It visits all live runs of the slot, because such a change is rare.
func (l *loop) queueAccepted(j *job.Job) {
	if !j.Current() || !j.Policy().Bounded() {
		return // the policy has changed again
	}
	for r := range j.Slot().Runs.All() {
		early := r.State == job.Armed && !l.due(r) // its timer admits it
		if r.Owner() == j && !r.IsPart() && !r.Policy.Bounded() && !early {
			l.overlapQueue(r).in[r.ID] = r
		}
	}
}

func (l *loop) overlapQueue(r *job.Run) *overlapQueue {
	k := jobKey{r.App, r.Job}
	q := l.overlapQueues[k]
	if q == nil {
		q = &overlapQueue{in: map[job.RunID]*job.Run{}}
		l.overlapQueues[k] = q
	}
	return q
}

// admit puts a due run into the ready queue or its overlap queue, or ends it, as its
// overlap policy says.
func (l *loop) admit(r *job.Run) {
	if r.Slot().Ownership.State != job.Here {
		return // the slot is frozen: the run continues in another partition
	}
	if sh := r.Shape(); sh.Digest == "" && sh.Handler.GetModule() != "" {
		l.endUnrun(r, job.Failed, "no_alias", fmt.Sprintf("there was no alias %s when the run was accepted: set it with `wheelwork module alias`, and retry the run", sh.Handler.Module))
		return
	}
	if at := deadlineMs(r); at > 0 {
		l.wheel.Add(at-l.ahead.lag(r)+1, &deadline{r})
	}
	if !boundedByOverlap(r) {
		l.enqueue(r)
		return
	}
	q := l.overlapQueue(r)
	switch v := job.Admit(r.Policy, len(q.in), len(q.held)); {
	case q.in[r.ID] != nil:
		l.enqueue(r)
	case slices.Contains(q.held, r):
	case r.Attempt > 0 || r.Delegates() || v == job.LetIn: // it was admitted before a restart
		q.in[r.ID] = r
		l.enqueue(r)
	case v == job.Hold:
		q.held = append(q.held, r)
	case v == job.LetInLast:
		l.replaceRuns(q, r)
	default:
		l.endUnrun(r, job.Skipped, "overlap", "another run of the job was not over, and its overlap policy is "+overlapText(r.Policy))
	}
}

func overlapText(p *job.Policy) string {
	if p.Overlap == job.Queue {
		return fmt.Sprintf("queue, with at most %d waiting", p.Limited)
	}
	return "discard"
}

// replaceRuns implements the overlap policy cover: it skips the runs that are held,
// cancels those that were admitted, and holds r, which is admitted when these have ended.
func (l *loop) replaceRuns(q *overlapQueue, r *job.Run) {
	why := "run " + r.ID.String() + " covers it: its overlap policy is cover"
	for _, old := range q.held {
		l.endUnrun(old, job.Skipped, "overlap", why)
	}
	q.held = append(q.held[:0], r)
	for _, old := range sorted(q.in) {
		if err := l.cancel(old, why); err != nil {
			l.cfg.Logger.Warn("a run cannot be covered now", "app", old.App, "run", old.ID, "error", err)
		}
	}
}

func sorted(runs map[job.RunID]*job.Run) []*job.Run {
	s := make([]*job.Run, 0, len(runs))
	for _, r := range runs {
		s = append(s, r)
	}
	slices.SortFunc(s, byID)
	return s
}

// dequeue removes an ended run from its overlap queue, and admits the next ones. The
// caller calls it once the end is durable.
func (l *loop) dequeue(r *job.Run) {
	k := jobKey{r.App, r.Job}
	q := l.overlapQueues[k]
	if q == nil {
		return
	}
	delete(q.in, r.ID)
	q.held = slices.DeleteFunc(q.held, func(h *job.Run) bool { return gone(h) })
	for len(q.held) > 0 && job.Admit(q.held[0].Policy, len(q.in), 0) == job.LetIn {
		next := q.held[0]
		q.held = q.held[1:]
		q.in[next.ID] = next
		l.enqueue(next)
	}
	if len(q.in)+len(q.held) == 0 {
		delete(l.overlapQueues, k)
	}
}

// endUnrun ends a live run that no host executes.
func (l *loop) endUnrun(r *job.Run, to job.State, code, why string) {
	if l.cramped() {
		l.wheel.Add(l.nowMs+armWindow, &readmitTimer{r: r}) // the disk is full: try again in a window
		return
	}
	l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{
		Run: r.ID[:], State: string(to), Error: why, Code: code, JobNextMs: l.delayNext(r),
	}}}}})
}

// readmitTimer admits a due run again, because the reason that held it back may no longer
// apply.
type readmitTimer struct {
	r *job.Run
	b *bucket // the rate limit that holds the run back; nil: another reason
}

func (x *readmitTimer) holds(l *loop) bool { return l.due(x.r) }

// deadline is the timer for the time by which a run must have started.
type deadline struct{ r *job.Run }

func (x *deadline) holds(l *loop) bool {
	return l.liveRun(x.r.App, x.r.ID) == x.r && deadlineMs(x.r) > 0
}

// deadlineMs returns the time by which a run that no host has must start, in Unix ms;
// 0: it has no deadline.
func deadlineMs(r *job.Run) int64 {
	if r.State == job.Running {
		return 0
	}
	return startBy(r)
}

// startBy returns the time by which the handler of a run must start, in Unix ms; 0: it
// has no deadline, or the deadline no longer applies.
func startBy(r *job.Run) int64 {
	if r.Policy.Deadline == 0 || !r.Untouched() || r.IsPart() || r.Delegates() {
		return 0
	}
	from := r.PlannedMs
	if r.Trigger == job.ByBackfill { // its planned time has long passed
		from = r.AcceptedMs
	}
	return from + r.Policy.Deadline.Milliseconds()
}

// expired ends a run whose deadline has passed.
func (l *loop) expired(r *job.Run) bool {
	at := deadlineMs(r)
	if at == 0 || l.nowMs+l.ahead.lag(r) <= at {
		return false
	}
	l.endUnrun(r, job.Missed, "deadline", whyMissed(r))
	return true
}

func whyMissed(r *job.Run) string {
	return fmt.Sprintf("it did not start within its deadline of %s", r.Policy.Deadline)
}

// bucket is the token bucket that limits the starts of one job or app.
type bucket struct {
	tokens   float64
	perToken float64 // ms
	atMs     int64
	waiting  int // runs with a readmitTimer for the bucket
}

// limited reports whether the rate of the run's job or app allows no start now. If so, it
// sets a timer that admits r again. Otherwise it takes one token from each bucket.
func (l *loop) limited(r *job.Run) bool {
	if !r.Untouched() || r.IsPart() {
		return false
	}
	own := l.bucket(jobKey{r.App, r.Job}, r.Policy.Rate, r.Policy.RatePer)
	if own.empty() {
		l.await(own, r)
		return true
	}
	a := l.apps[r.App]
	starts, per := job.RateOf(a.slots[job.ModuleSlot].Settings.GetRate())
	if starts > 0 && a.split() { // each partition has a share of the rate
		per = per * job.Slots / time.Duration(max(a.share(), 1))
	}
	all := l.bucket(jobKey{r.App, ""}, starts, per)
	if all.empty() {
		l.await(all, r)
		return true
	}
	all.take()
	own.take()
	return false
}

// bucket returns the bucket of a rate, filled up to now; nil: there is no rate.
func (l *loop) bucket(k jobKey, starts int32, per time.Duration) *bucket {
	if starts == 0 {
		return nil
	}
	b := l.rates[k]
	if b == nil {
		l.forgetRates()
		b = &bucket{tokens: float64(starts), atMs: l.nowMs}
		l.rates[k] = b
	}
	b.perToken = float64(per.Milliseconds()) / float64(starts)
	b.tokens = min(b.tokens+float64(max(l.nowMs-b.atMs, 0))/b.perToken, float64(starts))
	b.atMs = l.nowMs
	return b
}

func (b *bucket) empty() bool { return b != nil && b.tokens < 1 }

func (b *bucket) take() {
	if b != nil {
		b.tokens--
	}
}

// await sets a timer that admits r when the bucket has a token for it. Each waiting run
// gets a token of its own, in the order of the calls.
func (l *loop) await(b *bucket, r *job.Run) {
	b.waiting++
	wait := (float64(b.waiting) - b.tokens) * b.perToken
	l.wheel.Add(l.nowMs+int64(math.Ceil(wait)), &readmitTimer{r, b})
}

// forgetRates drops the buckets that have not been used for an hour, once there are
// maxPlans of them.
func (l *loop) forgetRates() {
	if len(l.rates) < maxPlans {
		return
	}
	for k, b := range l.rates {
		if l.nowMs-b.atMs > time.Hour.Milliseconds() {
			delete(l.rates, k)
		}
	}
}
