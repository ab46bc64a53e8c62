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
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file turns commands into records. Every function runs on the loop. Callers have
// checked what needs no state, for example whether a definition is valid.

func noJob(app, name string) error {
	return status.Errorf(codes.NotFound, "there is no job %q in app %q: `wheelwork job list` shows what there is", name, app)
}

func noRun(id string) error {
	return status.Errorf(codes.NotFound, "there is no run %s: `wheelwork run list` shows what there is", id)
}

// wanted is a validated definition to apply.
type wanted struct {
	def      *apiv1.Job
	when     condition
	dryRun   bool
	together []string // jobs that a dry run treats as existing
}

// applyJob creates or updates a job. It returns the job as the API shows it, and one of
// created, updated and unchanged.
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

// change returns the record entry for a definition; nil: the definition changes nothing.
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
	if def.Paused == nil { // operators pause jobs: an update leaves that alone
		def.Paused = proto.Bool(old.GetPaused())
	}
	etag := job.Etag(def)
	if def.Workflow == nil {
		err = l.resolveModule(def)
	} else if !proto.Equal(old.GetWorkflow(), def.Workflow) { // unchanged ones can be paused without the jobs of nodes
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

// planPut returns the record entry for a changed definition, with its revision and the next
// planned time.
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
		if sameSchedule { // a one-time job that is resumed after its time
			return put, nil
		}
		return nil, status.Errorf(codes.InvalidArgument, "job %s: schedule.at %s has passed: name a time to come, or leave the schedule out and trigger the job", def.Name, def.Schedule.At)
	}
	next, ok := l.first(plan, def)
	if ok = ok && plan.Left(planned) > 0; !ok && def.Schedule != nil && !sameSchedule {
		return nil, status.Errorf(codes.InvalidArgument, "job %s: %v", def.Name, schedule.ErrNoTime)
	}
	if _, delay := plan.AfterEnd(l.now); delay && j != nil && j.Scheduled(l.nowMs) > 0 {
		return put, nil // the end of the live run plans the next one
	}
	if ok && !def.GetPaused() {
		put.NextMs = next.UnixMilli()
	}
	return put, nil
}

// first returns the first future planned time of a schedule that is set now. It leaves out
// times that were given up in advance, because they were skipped by request or their run was
// cancelled, and times that had a run before the clock was set back (ADR 36).
func (l *loop) first(plan schedule.Plan, def *apiv1.Job) (time.Time, bool) {
	next, ok := plan.First(l.now)
	j := l.job(def.App, def.Name)
	for ok && j != nil && (j.GaveUp(next.UnixMilli()) || l.plannedBefore(j, next)) {
		next, ok = behind(plan, next)
	}
	return next, ok
}

// behind returns the planned time after one that was given up in advance.
func behind(plan schedule.Plan, at time.Time) (time.Time, bool) {
	if next, ok := plan.AfterEnd(at); ok {
		return next, true
	}
	return plan.Anchor(at).After(at)
}

// resolveModule checks the module that a definition names, if it names one: see resolve.
func (l *loop) resolveModule(def *apiv1.Job) error {
	if def.Handler.Module == "" {
		return nil // the handler is in no module: hosts announce it (ADR 17)
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

// deleteJob deletes a job. It fails if there are namers: jobs that name it and remain.
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

// trigger is a validated request for a run.
type trigger struct {
	app, name   string
	input       []byte
	hasInput    bool
	key         string
	hash        [16]byte  // of the key
	run         job.RunID // the fixed id of the run, if there is no key (ADR 32); zero: the loop chooses one
	again       bool      // an earlier try may have been accepted, with the id run
	traceParent string

	why   job.Trigger // "": manual
	cause job.RunID
	redo  *redo            // if a run with parts is retried: the parts that did not succeed
	kept  []*apiv1.NodeRow // if a workflow is retried: the nodes of the earlier run
	at    time.Time        // the planned time of the run; zero: now
	job   *job.Job         // looked up in the same turn; nil: not looked up yet
}

// runID returns the id of the run of a trigger with a fixed id or a planned time.
func (t *trigger) runID() job.RunID {
	if t.run != (job.RunID{}) {
		return t.run
	}
	return job.OccurrenceID(t.app, t.name, t.at, t.key)
}

// triggerJob accepts a run. duplicate reports that there was already a run with the
// idempotency key, the fixed id or the planned time; its id is returned.
func (l *loop) triggerJob(t *trigger) (id job.RunID, duplicate bool, err error) {
	j := t.job
	if j == nil {
		j = l.job(t.app, t.name)
	}
	if j == nil {
		return id, false, noJob(t.app, t.name)
	}
	acc := &l.accepted
	*acc = apiv1.Accepted{} // Reset would also store the message's type, at the cost of cache misses
	acc.Job, acc.HasInput, acc.Input, acc.TraceParent, acc.Trigger, acc.Kept = t.name, t.hasInput, t.input, t.traceParent, string(t.why), t.kept
	goesOn := t.redo != nil && t.redo.fanout == j.Policy().Fanout() // otherwise the job makes other parts now
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
		t.redo.resumed.Run = slices.Clone(id[:]) // a slice of id itself would allocate id in each call
		l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Resumed{Resumed: t.redo.resumed}})
	}
	return id, false, nil
}

// knows reports whether there is a run with an id. It reads the history only if again is
// set, because a fresh id cannot be there.
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

// reusedKey returns the error for an idempotency key that was used with another input.
func reusedKey(key string, id job.RunID) error {
	return refused(codes.FailedPrecondition, fmt.Sprintf("idempotency key %q was used before with other input, for run %s: send the same input to get that run, or a new key to start another one", key, id),
		&apiv1.Refusal{Reason: reasonKeyReused})
}

// freshID returns a random id for a new run. It need not be reproducible: a caller that
// retries sends an idempotency key.
func (l *loop) freshID(j *job.Job) job.RunID {
	var rest [9]byte
	l.cfg.Random.Read(rest[:]) //nolint:errcheck // it never fails
	return job.NewRunID(j.Slot().Index, l.now, rest)
}

// cancelRun requests the end of a run. It returns false if the run is not live.
func (l *loop) cancelRun(app string, id job.RunID) (bool, error) {
	r := l.liveRun(app, id)
	if r == nil {
		return false, nil
	}
	return true, l.cancel(r, "")
}

// cancel requests the end of a live run, for the reason why; "": by request.
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

// delayNext returns the next planned time of a job with a delay schedule that follows from
// the end of r now, in Unix ms; 0: the end of r plans nothing.
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
	// r is given up in advance: the next time follows its planned time by a whole delay.
	if at := r.PlannedMs - l.ahead.lag(r); r.State == job.Armed && end.UnixMilli() < at {
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

// planOf returns the parsed schedule of a job.
func (l *loop) planOf(j *job.Job) (schedule.Plan, error) {
	if p, ok := l.plans[j.Schedule()]; ok {
		return p, nil
	}
	return l.plan(j.Definition())
}

// plan parses the schedule of a definition. Results are cached, because a million jobs have
// few different schedules. The cache key is the encoded schedule. It includes the name of the
// job if the planned times depend on that, and the version of the calendars if they are used.
func (l *loop) plan(def *apiv1.Job) (schedule.Plan, error) {
	s := def.GetSchedule()
	fields, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		return schedule.Plan{}, err
	}
	k := string(fields)
	if strings.ContainsAny(s.GetCron(), "Hh") || s.GetJitter() != "" { // depends on a hash of the job's name
		k += "|" + def.App + "/" + def.Name
	}
	if len(s.GetInclude())+len(s.GetExclude()) > 0 {
		k += fmt.Sprintf("|%s|%d", def.App, l.calendarN)
	}
	if p, ok := l.plans[k]; ok {
		return p, nil
	}
	p, err := schedule.NewPlan(def, func(name string) *schedule.Calendar { return l.calendar(def.App, name) })
	if err != nil {
		return p, err
	}
	if len(l.plans) >= maxPlans {
		clear(l.plans)
	}
	l.plans[k] = p
	return p, nil
}
