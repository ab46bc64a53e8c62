package core

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
func (ad *admission) queueAccepted(j *job.Job) {
	if !j.Current() || !j.Policy().Bounded() {
		return // the policy has changed again
	}
	for r := range j.Slot().Runs.All() {
		early := r.State == job.Armed && !ad.l.timing.due(r) // its timer admits it
		if r.Owner() == j && !r.IsPart() && !r.Policy.Bounded() && !early {
			ad.overlapQueue(r).in[r.ID] = r
		}
	}
}

func (ad *admission) overlapQueue(r *job.Run) *overlapQueue {
	k := jobKey{r.App, r.Job}
	q := ad.overlapQueues[k]
	if q == nil {
		q = &overlapQueue{in: map[job.RunID]*job.Run{}}
		ad.overlapQueues[k] = q
	}
	return q
}

// admit puts a due run into the ready queue or its overlap queue, or ends it, as its
// overlap policy says.
func (ad *admission) admit(r *job.Run) {
	if r.Slot().Ownership.State != job.Here {
		return // the slot is frozen: the run continues in another partition
	}
	if sh := r.Shape(); sh.Digest == "" && sh.Handler.GetModule() != "" {
		ad.endUnrun(r, job.Failed, "no_alias", fmt.Sprintf("there was no alias %s when the run was accepted: set it with `wheelwork module alias`, and retry the run", sh.Handler.Module))
		return
	}
	if ad.sleeps(r) {
		return
	}
	if at := deadlineMs(r); at > 0 {
		ad.l.timing.wheel.add(at-ad.l.timing.ahead.lag(r)+1, deadlineTimer{r})
	}
	if !boundedByOverlap(r) {
		ad.l.Dispatcher.enqueue(r)
		return
	}
	q := ad.overlapQueue(r)
	switch v := job.Admit(r.Policy, len(q.in), len(q.held)); {
	case q.in[r.ID] != nil:
		ad.l.Dispatcher.enqueue(r)
	case slices.Contains(q.held, r):
	case r.Attempt > 0 || r.Delegates() || v == job.LetIn: // it was admitted before a restart
		q.in[r.ID] = r
		ad.l.Dispatcher.enqueue(r)
	case v == job.Hold:
		q.held = append(q.held, r)
	case v == job.LetInLast:
		ad.replaceRuns(q, r)
	default:
		ad.endUnrun(r, job.Skipped, "overlap", "another run of the job was not over, and its overlap policy is "+overlapText(r.Policy))
	}
}

// sleeps skips a run that its schedule has planned for the pause of its app, and reports whether
// it did.
func (ad *admission) sleeps(r *job.Run) bool {
	if r.Trigger != job.BySchedule || r.Attempt > 0 {
		return false
	}
	p := ownerOf(r.Slot()).pausedAt(r.PlannedMs)
	if p == nil {
		return false
	}
	ad.endUnrun(r, job.Skipped, "app_paused", pauseText(p))
	return true
}

func overlapText(p *job.Policy) string {
	if p.Overlap == job.Queue {
		return fmt.Sprintf("queue, with at most %d waiting", p.Limited)
	}
	return "discard"
}

// replaceRuns implements the overlap policy cover: it skips the runs that are held,
// cancels those that were admitted, and holds r, which is admitted when these have ended.
func (ad *admission) replaceRuns(q *overlapQueue, r *job.Run) {
	why := "run " + r.ID.String() + " covers it: its overlap policy is cover"
	for _, old := range q.held {
		ad.endUnrun(old, job.Skipped, "overlap", why)
	}
	q.held = append(q.held[:0], r)
	for _, old := range sorted(q.in) {
		if err := ad.l.Commands.cancel(old, why); err != nil {
			ad.l.cfg.Logger.Warn("a run cannot be covered now", "app", old.App, "run", old.ID, "error", err)
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
func (ad *admission) dequeue(r *job.Run) {
	k := jobKey{r.App, r.Job}
	q := ad.overlapQueues[k]
	if q == nil {
		return
	}
	delete(q.in, r.ID)
	q.held = slices.DeleteFunc(q.held, func(h *job.Run) bool { return gone(h) })
	for len(q.held) > 0 && job.Admit(q.held[0].Policy, len(q.in), 0) == job.LetIn {
		next := q.held[0]
		q.held = q.held[1:]
		q.in[next.ID] = next
		ad.l.Dispatcher.enqueue(next)
	}
	if len(q.in)+len(q.held) == 0 {
		delete(ad.overlapQueues, k)
	}
}

// endUnrun ends a live run that no host executes.
func (ad *admission) endUnrun(r *job.Run, to job.State, code, why string) {
	if ad.l.commits.cramped() {
		ad.l.timing.after(armWindow, &readmitTimer{r: r}) // the disk is full: try again in a window
		return
	}
	ad.l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{
		Run: r.ID[:], State: string(to), Error: why, Code: code, JobNextMs: ad.l.Commands.delayNext(r),
	}}}}})
}

// readmitTimer admits a due run again, because the reason that held it back may no longer
// apply.
type readmitTimer struct {
	r *job.Run
	b *bucket // the rate limit that holds the run back; nil: another reason
}

func (x *readmitTimer) fire(l *Loop) {
	if x.b != nil {
		x.b.waiting--
	}
	l.timing.coming = append(l.timing.coming, x.r)
}

// A timer with a bucket is needed in any case, because fire counts it off there.
func (x *readmitTimer) holds(l *Loop, _ int64) bool { return x.b != nil || l.timing.due(x.r) }

// deadlineTimer ends a run whose start deadline has passed.
type deadlineTimer struct{ r *job.Run }

func (x deadlineTimer) fire(l *Loop) {
	switch {
	case !x.holds(l, 0):
	case l.Sessions.maybeDispatched(x.r):
		l.timing.after(l.Sessions.recoveryLeft().Milliseconds()+1, x)
	default:
		l.admission.expired(x.r)
	}
}

func (x deadlineTimer) holds(l *Loop, _ int64) bool {
	return l.State.LiveRun(x.r.App, x.r.ID) == x.r && deadlineMs(x.r) > 0
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
func (ad *admission) expired(r *job.Run) bool {
	at := deadlineMs(r)
	if at == 0 || ad.l.clock.nowMs+ad.l.timing.ahead.lag(r) <= at {
		return false
	}
	ad.endUnrun(r, job.Missed, "deadline", whyMissed(r))
	return true
}

func whyMissed(r *job.Run) string {
	return fmt.Sprintf("it did not start within its deadline of %s", r.Policy.Deadline)
}

// limited reports whether the rate of the run's job or app allows no start now. If so, it
// sets a timer that admits r again. Otherwise it takes one token from each bucket.
func (ad *admission) limited(r *job.Run) bool {
	if !r.Untouched() || r.IsPart() {
		return false
	}
	own := ad.bucket(jobKey{r.App, r.Job}, r.Policy.Rate, r.Policy.RatePer)
	if own.empty() {
		ad.await(own, r)
		return true
	}
	a := ad.l.State.find(r.App)
	starts, per := job.RateOf(a.slots[job.ModuleSlot].Settings.GetRate())
	if starts > 0 && a.split() { // each partition has a share of the rate
		per = per * job.Slots / time.Duration(max(a.share(), 1))
	}
	all := ad.bucket(jobKey{r.App, ""}, starts, per)
	if all.empty() {
		ad.await(all, r)
		return true
	}
	all.take()
	own.take()
	return false
}

// bucket returns the bucket of a rate, filled up to now; nil: there is no rate.
func (ad *admission) bucket(k jobKey, starts int32, per time.Duration) *bucket {
	if starts == 0 {
		return nil
	}
	b := ad.rates[k]
	if b == nil {
		ad.forgetRates()
		b = &bucket{tokens: float64(starts), atMs: ad.l.clock.nowMs}
		ad.rates[k] = b
	}
	b.perToken = float64(per.Milliseconds()) / float64(starts)
	b.tokens = min(b.tokens+float64(max(ad.l.clock.nowMs-b.atMs, 0))/b.perToken, float64(starts))
	b.atMs = ad.l.clock.nowMs
	return b
}

// await sets a timer that admits r when the bucket has a token for it. Each waiting run
// gets a token of its own, in the order of the calls.
func (ad *admission) await(b *bucket, r *job.Run) {
	b.waiting++
	wait := (float64(b.waiting) - b.tokens) * b.perToken
	ad.l.timing.after(int64(math.Ceil(wait)), &readmitTimer{r, b})
}

// forgetRates drops the buckets that have not been used for an hour, once there are
// maxPlans of them.
func (ad *admission) forgetRates() {
	if len(ad.rates) < maxPlans {
		return
	}
	for k, b := range ad.rates {
		if ad.l.clock.nowMs-b.atMs > time.Hour.Milliseconds() {
			delete(ad.rates, k)
		}
	}
}

// resumeRun queues a run that has arrived with its slot, or sets its timer.
func (ad *admission) resumeRun(r *job.Run) {
	if boundedByOverlap(r) && (r.Attempt > 0 || r.Delegates()) {
		ad.overlapQueue(r).in[r.ID] = r
	}
	switch {
	case ad.l.timing.due(r):
		ad.admit(r)
	case r.State == job.Armed:
		ad.l.timing.wheel.add(r.PlannedMs, runTimer{r})
	case r.State == job.Waiting:
		ad.l.timing.wheel.add(r.RetryMs, runTimer{r})
	}
}
