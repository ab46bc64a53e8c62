package sched

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file turns commands into records. Every function runs on the loop. What
// needs no state (is the definition valid?) was checked before.

func noJob(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no job %q in app %q: `wheelwork job list` shows what there is", name, app)
}

func noRun(id string) error {
	return status.Errorf(codes.NotFound, "there is no run %s: `wheelwork run list` shows what there is", id)
}

// wanted is a validated definition that a job is to have.
type wanted struct {
	def      *apiv1.Job
	when     condition
	dryRun   bool
	together []string // jobs that count as there, in a dry run
}

// applyJob creates or updates a job. The message it returns is what the API shows.
func (l *loop) applyJob(w wanted) (*apiv1.Job, string, error) {
	def := w.def
	put, result, err := l.change(w)
	if err != nil {
		return nil, "", err
	}
	if put != nil && w.dryRun {
		m := proto.CloneOf(put.Job)
		if put.NextMs > 0 {
			m.NextAt = timestamppb.New(time.UnixMilli(put.NextMs))
		}
		return m, result, nil
	}
	if err := l.put(put); err != nil {
		return nil, "", err
	}
	return l.jobMessage(l.job(def.App, def.Name)), result, nil
}

// change works out what a definition changes; nil: nothing.
func (l *loop) change(w wanted) (put *apiv1.JobPut, result string, err error) {
	def := w.def
	var old *apiv1.Job
	j := l.job(def.App, def.Name)
	if err := w.when.check(def.Name, j); err != nil {
		return nil, "", err
	}
	if err := l.checkUpstream(def, w.together); err != nil {
		return nil, "", err
	}
	if j != nil {
		old = j.Definition()
	}
	if def.Paused == nil { // whether a job is paused is for its operators
		def.Paused = proto.Bool(old.GetPaused())
	}
	etag := job.Etag(def)
	if def.Workflow == nil {
		err = l.resolveModule(def)
	} else if !proto.Equal(old.GetWorkflow(), def.Workflow) { // else it can be paused when a job of it is gone
		err = l.checkNodes(def, w.together)
	}
	if err == nil {
		err = l.checkCircle(def)
	}
	if err != nil {
		return nil, "", err
	}
	if j != nil && j.Etag() == etag {
		return nil, "unchanged", nil
	}
	if put, err = l.planPut(j, old, def); err != nil {
		return nil, "", err
	}
	put.Job.Etag = etag
	if j == nil {
		return put, "created", nil
	}
	return put, "updated", nil
}

// put records a change; nil: there is none.
func (l *loop) put(put *apiv1.JobPut) error {
	if put == nil {
		return nil
	}
	if err := l.refuse(); err != nil {
		return err
	}
	l.record(l.app(put.Job.App).slots[job.SlotOf(put.Job.Name)], &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: put}})
	return nil
}

// planPut works out what a changed definition means for the schedule.
func (l *loop) planPut(j *job.Job, old, def *apiv1.Job) (*apiv1.JobPut, error) {
	now := timestamppb.New(l.now)
	put := &apiv1.JobPut{Job: def}
	def.Revision, def.CreatedAt, def.UpdatedAt = 1, now, now
	if j != nil {
		def.Revision, def.CreatedAt = j.Revision()+1, old.CreatedAt
		put.NextMs = j.NextMs
	}
	if j != nil && proto.Equal(old.Schedule, def.Schedule) && old.GetPaused() == def.GetPaused() {
		return put, nil
	}
	put.Rescheduled, put.NextMs = true, 0
	plan, err := l.plan(def)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sameSchedule := j != nil && proto.Equal(old.Schedule, def.Schedule)
	planned := int64(0)
	if put.Renewed = !sameSchedule; sameSchedule {
		planned = j.PlannedBy(l.nowMs)
	}
	if at, once := plan.Once(); once && !at.After(l.now) {
		if sameSchedule { // resumed after its time has passed
			return put, nil
		}
		return nil, status.Errorf(codes.InvalidArgument, "job %s: schedule.at %s has passed: name a time to come, or leave the schedule out and trigger the job", def.Name, def.Schedule.At)
	}
	next, ok := l.first(plan, def)
	if ok = ok && plan.Left(planned) > 0; !ok && def.Schedule != nil && !sameSchedule {
		return nil, status.Errorf(codes.InvalidArgument, "job %s: %v", def.Name, job.ErrNoTime)
	}
	if _, delay := plan.AfterEnd(l.now); delay && j != nil && j.Scheduled(l.nowMs) > 0 {
		return put, nil // it goes on when the run that is live has ended
	}
	if ok && !def.GetPaused() {
		put.NextMs = next.UnixMilli()
	}
	return put, nil
}

// first returns the first planned time to come of a schedule that is set now. One that was given up ahead, skipped by
// request or its run cancelled, is not planned again.
func (l *loop) first(plan job.Plan, def *apiv1.Job) (time.Time, bool) {
	next, ok := plan.First(l.now)
	j := l.job(def.App, def.Name)
	for ok && j != nil && (j.GaveUp(next.UnixMilli()) || l.plannedBefore(j, next)) {
		next, ok = behind(plan, next)
	}
	return next, ok
}

// behind returns the planned time that follows one which is given up ahead.
func behind(plan job.Plan, at time.Time) (time.Time, bool) {
	if next, ok := plan.AfterEnd(at); ok {
		return next, true
	}
	return plan.Anchor(at).After(at)
}

// resolveModule pins the digest of the module version that a definition names.
func (l *loop) resolveModule(def *apiv1.Job) error {
	if def.Handler.Module == "" {
		return nil // the handler is in no module: hosts say that they run it
	}
	return l.resolve(def)
}

// pauseJob pauses or resumes a job.
func (l *loop) pauseJob(app, name string, pause bool) (*apiv1.Job, error) {
	j := l.job(app, name)
	if j == nil {
		return nil, noJob(app, name)
	}
	def := job.Definition(j.Definition())
	def.Paused = proto.Bool(pause)
	m, _, err := l.applyJob(wanted{def: def})
	return m, err
}

// deleteJob deletes a job. namers are the jobs that name it and stay.
func (l *loop) deleteJob(app, name string, when condition, namers []string) error {
	j := l.job(app, name)
	if err := when.check(name, j); err != nil {
		return err
	}
	if j == nil {
		return noJob(app, name)
	}
	if err := referenced("job "+name, namers); err != nil {
		return err
	}
	if err := l.refuseChange(); err != nil {
		return err
	}
	l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: name}}})
	return nil
}

// trigger is a request for a run, checked.
type trigger struct {
	app, name   string
	input       []byte
	hasInput    bool
	key         string
	hash        [16]byte  // of the key
	run         job.RunID // of a trigger without a key: the id that its run gets; zero: the loop chooses one
	again       bool      // it may have been accepted before, as run
	traceParent string

	why   job.Trigger // "": by hand
	cause job.RunID
	redo  *redo            // of a parent that is retried: only what did not succeed
	kept  []*apiv1.NodeRow // of a workflow that is retried: where it goes on
	at    time.Time        // the planned time that it makes up for; zero: now
	job   *job.Job         // found before, and still there; nil: to be looked up
}

// runID is the id of the run of a trigger with an id or a time of its own.
func (t *trigger) runID() job.RunID {
	if t.run != (job.RunID{}) {
		return t.run
	}
	return job.OccurrenceID(t.app, t.name, t.at, t.key)
}

// triggerJob accepts a run. duplicate says that the idempotency key stood for a
// run already, or that the run of that time is there.
func (l *loop) triggerJob(t *trigger) (id job.RunID, duplicate bool, err error) {
	j := t.job
	if j == nil {
		j = l.job(t.app, t.name)
	}
	if j == nil {
		return id, false, noJob(t.app, t.name)
	}
	acc := &l.accepted
	*acc = apiv1.Accepted{} // Reset would also note its type, and wait for all memory on the way
	acc.Job, acc.HasInput, acc.Input, acc.TraceParent, acc.Trigger, acc.Kept = t.name, t.hasInput, t.input, t.traceParent, string(t.why), t.kept
	goesOn := t.redo != nil && t.redo.fanout == j.Policy().Fanout() // else its job makes other parts now
	if goesOn {
		acc.Parts = t.redo.parts
	}
	if t.cause != (job.RunID{}) {
		acc.Cause = t.cause[:]
	}
	if t.key != "" {
		if id, same, ok := j.Slot().RunOfKey(t.hash, job.InputSum(t.hasInput, t.input)); ok {
			if !same {
				return id, true, reusedKey(t.key, id)
			}
			return id, true, nil
		}
		acc.KeyHash = t.hash[:]
	}
	switch {
	case t.run != (job.RunID{}):
		id = t.run
		if id.Slot() != j.Slot().Index {
			return id, false, status.Errorf(codes.InvalidArgument, "run %s is not an id for job %s: its slot is another one", id, t.name)
		}
		if known, err := l.knows(t.app, id, t.again); known || err != nil {
			return id, known, err
		}
	case !t.at.IsZero():
		id = t.runID()
		if l.liveRun(t.app, id) != nil || l.view.recent(t.app, id) != nil {
			return id, true, nil
		}
	default:
		id = l.freshID(j)
	}
	if err := l.refuse(); err != nil {
		return id, false, err
	}
	if l.live >= l.cfg.MaxLive {
		return id, false, status.Errorf(codes.ResourceExhausted, "%d runs have not ended, which is the limit: try again when some have", l.live)
	}
	acc.Run = append(l.acceptedID[:0], id[:]...)
	l.accept(j, acc)
	if goesOn {
		t.redo.resumed.Run = slices.Clone(id[:]) // to refer to id would give each its own place in the heap
		l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Resumed{Resumed: t.redo.resumed}})
	}
	return id, false, nil
}

// knows reports whether there is a run of that id. The history is looked at only
// with again: a fresh id cannot be in it.
func (l *loop) knows(app string, id job.RunID, again bool) (bool, error) {
	if l.liveRun(app, id) != nil || l.view.recent(app, id) != nil {
		return true, nil
	}
	if !again {
		return false, nil
	}
	_, ended, err := l.cfg.Store.Run(app, id)
	return ended, err
}

// reusedKey refuses a key that stands for a run with another input.
func reusedKey(key string, id job.RunID) error {
	return refused(codes.FailedPrecondition, fmt.Sprintf("idempotency key %q was used before with other input, for run %s: send the same input to get that run, or a new key to start another one", key, id),
		&apiv1.Refusal{Reason: reasonKeyReused})
}

// freshID returns the id of a run that is asked for now. Nobody computes it again: who
// asks once more has a key, which stands for it.
func (l *loop) freshID(j *job.Job) job.RunID {
	var rest [9]byte
	l.cfg.Random.Read(rest[:]) //nolint:errcheck // it never fails
	return job.NewRunID(j.Slot().Index, l.now, rest)
}

// cancelRun asks for the end of a live run. It reports false when the run is
// not live.
func (l *loop) cancelRun(app string, id job.RunID) (bool, error) {
	r := l.liveRun(app, id)
	if r == nil {
		return false, nil
	}
	return true, l.cancel(r, "")
}

// cancel asks for the end of a live run, for the reason why; "": by request.
func (l *loop) cancel(r *job.Run, why string) error {
	if err := l.refuseChange(); err != nil {
		return err
	}
	if !r.CancelRequested {
		l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{
			Run: r.ID[:], JobNextMs: l.delayNext(r), Why: why,
		}}})
	}
	return nil
}

// delayNext returns the next planned time of a job whose delay schedule goes on
// when r ends now; 0 when nothing changes.
func (l *loop) delayNext(r *job.Run) int64 {
	if r.Owner().Policy().DelayAfter == 0 {
		return 0
	}
	j := l.job(r.App, r.Job)
	trigger := r.Trigger
	if r.IsPart() { // its parent may end with it
		if parent := l.liveRun(r.App, r.Fan.Parent); parent != nil {
			trigger = parent.Trigger
		}
	}
	if j == nil || j.Policy().DelayAfter == 0 || trigger != job.BySchedule || j.NextMs != 0 {
		return 0
	}
	plan, err := l.planOf(j)
	if err != nil || plan.Left(j.Planned) == 0 {
		return 0
	}
	end := l.now
	if at := r.PlannedMs - l.ahead.lag(r); r.State == job.Armed && end.UnixMilli() < at { // it is given up ahead: the next one is a whole delay behind it, however little ahead
		end = time.UnixMilli(at)
	}
	next, ok := plan.AfterEnd(end)
	if !ok {
		return 0
	}
	return l.unplanned(j, next).UnixMilli()
}

// skipNext gives up the next planned time of a job.
func (l *loop) skipNext(app, name string) (*apiv1.Job, error) {
	j := l.job(app, name)
	if j == nil {
		return nil, noJob(app, name)
	}
	if err := l.refuseChange(); err != nil {
		return nil, err
	}
	const why = "skipped by request"
	if r := j.NextArmed(l.nowMs); r != nil {
		l.endUnrun(r, job.Skipped, "skip_next", why)
		return l.jobMessage(j), nil
	}
	if j.NextMs == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has no planned time that could be skipped", name)
	}
	plan, err := l.planOf(j)
	if err != nil {
		return nil, invalid(err)
	}
	at := time.UnixMilli(l.ahead.next(j))
	p := &apiv1.Passed{Job: name, FirstMs: at.UnixMilli(), LastMs: at.UnixMilli(), Count: 1, State: string(job.Skipped), Code: "skip_next", Error: why}
	if next, ok := behind(plan, at); ok && plan.Left(j.Planned+1) > 0 {
		p.NextMs = next.UnixMilli()
	}
	l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Passed{Passed: p}})
	return l.jobMessage(j), nil
}

// maxPlans bounds the cache of parsed schedules.
const maxPlans = 10_000

// planOf is plan for the schedule that a job has.
func (l *loop) planOf(j *job.Job) (job.Plan, error) {
	if p, ok := l.plans[j.Schedule()]; ok {
		return p, nil
	}
	return l.plan(j.Definition())
}

// plan parses a schedule or finds it: a million jobs have few different ones.
// Schedules that mean the same for every job stand under their bytes alone.
func (l *loop) plan(def *apiv1.Job) (job.Plan, error) {
	s := def.GetSchedule()
	fields, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		return job.Plan{}, err
	}
	k := string(fields)
	if strings.ContainsAny(s.GetCron(), "Hh") || s.GetJitter() != "" { // hashes the name of the job
		k += "|" + def.App + "/" + def.Name
	}
	if len(s.GetInclude())+len(s.GetExclude()) > 0 {
		k += fmt.Sprintf("|%s|%d", def.App, l.calendarN)
	}
	if p, ok := l.plans[k]; ok {
		return p, nil
	}
	p, err := job.NewPlan(def, func(name string) *job.Calendar { return l.calendar(def.App, name) })
	if err != nil {
		return p, err
	}
	if len(l.plans) >= maxPlans {
		clear(l.plans)
	}
	l.plans[k] = p
	return p, nil
}
