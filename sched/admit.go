package sched

import (
	"fmt"
	"math"
	"slices"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// Between being due and being sent to a host a run passes three doors: the
// overlap policy of its job lets it in line (admit), the line is by priority
// (queue.go), and deadline, rate and routing are asked when its turn has come
// (dispatch.go). None of this is written down: after a restart the live runs
// pass the doors again, in the same order, and come to stand where they stood.

// line is a job whose overlap policy bounds what is under way.
type line struct {
	// in are the runs that may be sent, held those behind them, in order.
	// Invariant: held is empty while there is room for one more.
	in   map[job.RunID]*job.Run
	held []*job.Run
}

// inLine reports whether a run stands in a line. The parts of a run do not:
// their parent does. A run that was accepted under a policy that bounds nothing
// is let in as that policy says, but those after it have to know of it: it
// stands in the line of a job that has another policy now.
func inLine(r *job.Run) bool {
	if r.IsPart() {
		return false
	}
	return r.Policy.Bounded() || r.Owner().Current() && r.Owner().Policy().Bounded()
}

// countIn puts the runs in line that were accepted when the overlap policy of
// their job bounded nothing. It looks at all live runs of a slot, which a change
// of policy under way is worth.
func (l *loop) countIn(j *job.Job) {
	if !j.Current() || !j.Policy().Bounded() {
		return // it has changed again
	}
	for r := range j.Slot().Runs.All() {
		early := r.State == job.Armed && r.PlannedMs > l.nowMs // it comes by itself
		if r.Owner() == j && !r.IsPart() && !r.Policy.Bounded() && !early {
			l.line(r).in[r.ID] = r
		}
	}
}

func (l *loop) line(r *job.Run) *line {
	k := jobKey{r.App, r.Job}
	ln := l.lines[k]
	if ln == nil {
		ln = &line{in: map[job.RunID]*job.Run{}}
		l.lines[k] = ln
	}
	return ln
}

// admit puts a run that is due in line, or ends it, as its overlap policy says.
func (l *loop) admit(r *job.Run) {
	if r.Slot().Ownership.State != job.Here {
		return // frozen: it goes on elsewhere
	}
	if sh := r.Shape(); sh.Digest == "" && sh.Handler.GetModule() != "" {
		l.endUnrun(r, job.Failed, "no_alias", fmt.Sprintf("there was no alias %s when the run was accepted: set it with `wheelwork module alias`, and retry the run", sh.Handler.Module))
		return
	}
	if at := deadlineMs(r); at > 0 {
		l.wheel.Add(at-l.ahead.lag(r)+1, &deadline{r})
	}
	if !inLine(r) {
		l.enqueue(r)
		return
	}
	ln := l.line(r)
	switch v := job.Admit(r.Policy, len(ln.in), len(ln.held)); {
	case ln.in[r.ID] != nil:
		l.enqueue(r)
	case slices.Contains(ln.held, r):
	case r.Attempt > 0 || r.Delegates() || v == job.LetIn: // it was let in before a restart
		ln.in[r.ID] = r
		l.enqueue(r)
	case v == job.Hold:
		ln.held = append(ln.held, r)
	case v == job.LetInLast:
		l.cover(ln, r)
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

// cover asks what is under way to stop, and gives the place to r alone.
func (l *loop) cover(ln *line, r *job.Run) {
	why := "run " + r.ID.String() + " covers it: its overlap policy is cover"
	for _, old := range ln.held {
		l.endUnrun(old, job.Skipped, "overlap", why)
	}
	ln.held = append(ln.held[:0], r)
	for _, old := range sorted(ln.in) {
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

// leave takes a run that has ended out of its line. It is called once that is
// durable, and lets in who is next.
func (l *loop) leave(r *job.Run) {
	k := jobKey{r.App, r.Job}
	ln := l.lines[k]
	if ln == nil {
		return
	}
	delete(ln.in, r.ID)
	ln.held = slices.DeleteFunc(ln.held, func(h *job.Run) bool { return gone(h) })
	for len(ln.held) > 0 && job.Admit(ln.held[0].Policy, len(ln.in), 0) == job.LetIn {
		next := ln.held[0]
		ln.held = ln.held[1:]
		ln.in[next.ID] = next
		l.enqueue(next)
	}
	if len(ln.in)+len(ln.held) == 0 {
		delete(l.lines, k)
	}
}

// endUnrun ends a live run that no host executes.
func (l *loop) endUnrun(r *job.Run, to job.State, code, why string) {
	if l.cramped() {
		l.wheel.Add(l.nowMs+armWindow, &readmitTimer{r: r}) // the disk is full: look again
		return
	}
	l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{
		Run: r.ID[:], State: string(to), Error: why, Code: code, JobNextMs: l.delayNext(r),
	}}}}})
}

// readmitTimer admits a due run again: the reason that held it back may have gone.
type readmitTimer struct {
	r *job.Run
	b *bucket // the rate limit that holds the run back; nil: another reason
}

func (x *readmitTimer) holds(l *loop) bool { return l.due(x.r) }

// deadline is the wheel's entry for a run that must have started by then.
type deadline struct{ r *job.Run }

func (x *deadline) holds(l *loop) bool {
	return l.liveRun(x.r.App, x.r.ID) == x.r && deadlineMs(x.r) > 0
}

// deadlineMs is the time by which a run that no host has must have started; 0: none.
func deadlineMs(r *job.Run) int64 {
	if r.State == job.Running {
		return 0
	}
	return startBy(r)
}

// startBy is the time by which the handler of a run must start if it has not; 0: none.
func startBy(r *job.Run) int64 {
	if r.Policy.Deadline == 0 || !r.Untouched() || r.IsPart() || r.Delegates() {
		return 0
	}
	from := r.PlannedMs
	if r.Trigger == job.ByBackfill { // its time has long passed
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

// bucket is the rate of starts of one job, or of an app.
type bucket struct {
	tokens   float64
	perToken float64 // ms
	atMs     int64
	waiting  int // runs that the wheel brings back
}

// limited reports whether the rate of a job, or of its app, allows no start now,
// and has r looked at again when it does. A start takes a token of each.
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
	if starts > 0 && a.split() { // each unit lets through its share
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

// await has the wheel bring a run back when its turn has come.
func (l *loop) await(b *bucket, r *job.Run) {
	b.waiting++
	wait := (float64(b.waiting) - b.tokens) * b.perToken
	l.wheel.Add(l.nowMs+int64(math.Ceil(wait)), &readmitTimer{r, b})
}

// forgetRates drops the rates of jobs that have been quiet for long.
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
