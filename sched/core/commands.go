package core

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Definition validates the definition that a caller sent, and returns a copy of it.
func Definition(d *apiv1.Job) (*apiv1.Job, error) {
	if d == nil {
		return nil, status.Error(codes.InvalidArgument, "the job is missing")
	}
	def := job.Definition(d)
	if err := job.Validate(def); err != nil {
		return nil, Invalid(err)
	}
	return def, nil
}

// NewTrigger validates a request and sets t to its trigger.
func NewTrigger(t *Trigger, req *apiv1.TriggerJobRequest, traceParent string) error {
	*t = Trigger{App: AppOf(req.App), Name: req.Name, TraceParent: traceParent}
	switch {
	case req.Input != nil && req.InputBytes != nil:
		return status.Error(codes.InvalidArgument, "input and input_bytes are both set: use one")
	case req.Input != nil:
		t.HasInput, t.Input = true, []byte(*req.Input)
	case req.InputBytes != nil:
		t.HasInput, t.Input = true, slices.Clone(req.InputBytes) // input_bytes would retain the whole message
	}
	if err := job.CheckInput(len(t.Input)); err != nil {
		return Invalid(err)
	}
	if err := CheckKey(req.IdempotencyKey); err != nil {
		return err
	}
	if req.IdempotencyKey != "" {
		t.SetKey(req.IdempotencyKey)
	}
	return nil
}

// CheckKey returns an error if an idempotency key is too long.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return status.Errorf(codes.InvalidArgument, "the idempotency key has %d bytes, the limit is %d", len(key), maxKey)
	}
	return nil
}

// SetKey sets the idempotency key of a trigger that has a name.
func (t *Trigger) SetKey(key string) { t.key, t.hash = key, keyHash(t.Name, key) }

// HasKey reports whether the trigger has an idempotency key.
func (t *Trigger) HasKey() bool { return t.key != "" }

// Redo says which parts a retry of a run with parts runs again.
type Redo struct {
	Fanout  string  // the mode of the run: redo applies only if its job still has it
	Parts   []int32 // the numbers of the parts, if the run does not map
	Resumed *apiv1.Resumed
}

// NoRun returns the error for a run that does not exist.
func NoRun(id string) error {
	return status.Errorf(codes.NotFound, "there is no run %s: `wheelwork run list` shows what there is", id)
}

// JobChange is a validated definition to apply.
type JobChange struct {
	Def    *apiv1.Job
	When   Condition
	DryRun bool
	With   *Together // the definitions that are applied with it
	// inSet says that a change set has the definition. One that differs from the present
	// definition only in defaults that are written out changes nothing.
	inSet bool
	set   *growth // what the set has added so far; nil: there is no set
	// checked says that the definition was checked with the others of its set, and is applied.
	checked bool
	// pausing says that Def pauses or resumes the job. The pause of the job stays otherwise.
	pausing bool
	// etag is that of Def, which is not paused unless it says so; "": it was not computed.
	etag string
}

// etagOf returns the etag of a definition, for [JobChange]. It takes as long as the record of the
// change: callers compute it before the loop, whose time bounds the rate of changes.
func etagOf(def *apiv1.Job) string {
	if def.Paused != nil {
		return job.Etag(def)
	}
	def.Paused = new(bool)
	defer func() { def.Paused = nil }() // the change takes it from the job
	return job.Etag(def)
}

// ApplyJob creates or updates a job. It returns the job as the API shows it, and one of
// created, updated and unchanged.
func (cm *Commands) ApplyJob(w JobChange) (*apiv1.Job, string, error) {
	def := w.Def
	if !w.DryRun {
		if err := cm.l.Holds.Free(def.App); err != nil {
			return nil, "", err
		}
	}
	put, result, err := cm.change(w)
	if err != nil {
		return nil, "", err
	}
	if put != nil && w.DryRun {
		m := proto.CloneOf(put.Job)
		m.ChangedBy = cmp.Or(m.ChangedBy, m.CreatedBy)
		if put.NextMs > 0 {
			m.NextAt = timestamppb.New(time.UnixMilli(put.NextMs))
		}
		return m, result, nil
	}
	if err := cm.put(put); err != nil {
		return nil, "", err
	}
	return cm.l.JobMessage(cm.l.State.Job(def.App, def.Name)), result, nil
}

// change returns the record entry for a definition; nil: the definition changes nothing.
func (cm *Commands) change(w JobChange) (put *apiv1.JobPut, result string, err error) {
	def := w.Def
	var old *apiv1.Job
	j := cm.l.State.Job(def.App, def.Name)
	if err := w.When.check(def.Name, j); err != nil {
		return nil, "", err
	}
	if !w.checked {
		if err := cmp.Or(cm.l.relations.checkUpstream(def, w.With), cm.l.relations.checkTrigger(def, w.With), cm.l.relations.checkAlerts(def, w.With)); err != nil {
			return nil, "", err
		}
	}
	if j != nil {
		old = j.Definition()
	}
	etag := w.etag
	if def.Paused == nil { // operators pause jobs: an update leaves that alone
		if def.Paused = proto.Bool(old.GetPaused()); old.GetPaused() {
			etag = ""
		}
	}
	if def.GetPaused() && !w.pausing {
		if def.Pause = old.GetPause(); def.Pause != nil {
			etag = ""
		}
	}
	if etag == "" {
		etag = job.Etag(def)
	}
	if def.Workflow == nil {
		err = cm.l.Catalog.resolveModule(def, w.With)
	} else if !w.checked && !proto.Equal(old.GetWorkflow(), def.Workflow) { // unchanged ones can be paused without the jobs of nodes
		err = cm.l.relations.checkNodes(def, w.With)
	}
	if err == nil && !w.checked && w.With.alone() {
		err = cm.l.relations.checkCircle(def)
	}
	if err != nil {
		return nil, "", err
	}
	if j != nil && (j.Etag() == etag || w.inSet && proto.Equal(job.WithoutDefaults(job.Definition(old)), job.WithoutDefaults(job.Definition(def)))) {
		return nil, "unchanged", nil
	}
	if put, err = cm.planPut(j, old, w); err != nil {
		return nil, "", err
	}
	put.Job.Etag = etag
	if !w.checked {
		if err := cm.l.limits.mayPut(j, old, def, w.set); err != nil {
			return nil, "", err
		}
	}
	if j == nil {
		return put, "created", nil
	}
	return put, "updated", nil
}

// put records a change; nil: there is none.
func (cm *Commands) put(put *apiv1.JobPut) error {
	if put == nil {
		return nil
	}
	if err := cm.l.commits.refuse(); err != nil {
		return err
	}
	cm.l.commits.record(cm.l.State.app(put.Job.App).slots[job.SlotOf(put.Job.Name)], &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: put}})
	return nil
}

// planPut returns the record entry for a changed definition, with its revision and the next
// planned time.
func (cm *Commands) planPut(j *job.Job, old *apiv1.Job, w JobChange) (*apiv1.JobPut, error) {
	def := w.Def
	now := timestamppb.New(cm.l.clock.now)
	put := &apiv1.JobPut{Job: def}
	def.Revision, def.CreatedAt, def.UpdatedAt = 1, now, now
	def.CreatedBy = cm.l.commits.by.Author
	if j != nil {
		def.Revision, def.CreatedAt = j.Revision()+1, old.CreatedAt
		if def.CreatedBy = old.CreatedBy; def.CreatedBy != cm.l.commits.by.Author { // without it, the creator has changed the job
			def.ChangedBy = cm.l.commits.by.Author
		}
		put.NextMs = j.NextMs
	}
	if j != nil && proto.Equal(old.Schedule, def.Schedule) && old.GetPaused() == def.GetPaused() {
		return put, nil
	}
	put.Rescheduled, put.NextMs = true, 0
	plan, err := cm.l.Planner.planWith(def, w.With)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	sameSchedule := j != nil && proto.Equal(old.Schedule, def.Schedule)
	planned := int64(0)
	if put.Renewed = !sameSchedule; sameSchedule {
		planned = j.PlannedBy(cm.l.clock.nowMs)
	}
	if at, once := plan.Once(); once && !at.After(cm.l.clock.now) {
		switch {
		case sameSchedule: // a one-time job that is resumed after its time
			return put, nil
		case w.checked: // its time has passed since: it is due
			if !def.GetPaused() {
				put.NextMs = at.UnixMilli()
			}
			return put, nil
		}
		return nil, status.Errorf(codes.InvalidArgument, "job %s: schedule.at %s has passed: name a time to come, or leave the schedule out and trigger the job", def.Name, def.Schedule.At)
	}
	next, ok := cm.l.Planner.first(plan, def)
	if ok = ok && plan.Left(planned) > 0; !ok && def.Schedule != nil && !sameSchedule && !w.checked {
		return nil, status.Errorf(codes.InvalidArgument, "job %s: %v", def.Name, schedule.ErrNoTime)
	}
	if _, delay := plan.AfterEnd(cm.l.clock.now); delay && j != nil && j.Scheduled(cm.l.clock.nowMs) > 0 {
		return put, nil // the end of the live run plans the next one
	}
	if ok && !def.GetPaused() {
		put.NextMs = next.UnixMilli()
	}
	return put, nil
}

// deleteJob deletes a job. It fails if there are namers: jobs that name it and remain.
func (cm *Commands) deleteJob(app, name string, when Condition, namers []string) error {
	if err := cm.l.Holds.Free(app); err != nil {
		return err
	}
	j := cm.l.State.Job(app, name)
	if err := when.check(name, j); err != nil {
		return err
	}
	if j == nil {
		return noJob(app, name)
	}
	if err := referenced("job "+name, namers); err != nil {
		return err
	}
	if err := cm.l.commits.refuseChange(); err != nil {
		return err
	}
	cm.dropJob(j)
	return nil
}

// dropJob records that a job is deleted.
func (cm *Commands) dropJob(j *job.Job) {
	cm.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: j.Name()}}})
}

// Trigger is a validated request for a run.
type Trigger struct {
	App, Name   string
	Input       []byte
	HasInput    bool
	key         string    // the idempotency key; "": none
	hash        [16]byte  // of the key
	Run         job.RunID // the fixed id of the run, if there is no key (ADR 32); zero: the loop chooses one
	Again       bool      // an earlier try may have been accepted, with the id run
	TraceParent string
	By          string // the caller; "": that of the call in which the trigger is executed, if it has one

	Why   job.Trigger // "": manual
	Cause job.RunID
	Redo  *Redo            // if a run with parts is retried: the parts that did not succeed
	Kept  []*apiv1.NodeRow // if a workflow is retried: the nodes of the earlier run
	Pick  RetryChoice      // what a retry changes for its one run
	At    time.Time        // the planned time of the run; zero: now
	job   *job.Job         // looked up in the same turn; nil: not looked up yet
}

// RunID returns the id of the run of a trigger with a fixed id or a planned time.
func (t *Trigger) RunID() job.RunID {
	if t.Run != (job.RunID{}) {
		return t.Run
	}
	return job.OccurrenceID(t.App, t.Name, t.At, t.key)
}

// TriggerJob accepts a run. duplicate reports that there was already a run with the
// idempotency key, the fixed id or the planned time; its id is returned.
func (cm *Commands) TriggerJob(t *Trigger) (id job.RunID, duplicate bool, err error) {
	j := t.job
	if j == nil {
		j = cm.l.State.Job(t.App, t.Name)
	}
	if j == nil {
		return id, false, noJob(t.App, t.Name)
	}
	acc := &cm.accepted
	*acc = apiv1.Accepted{} // Reset would also store the message's type, at the cost of cache misses
	acc.Job, acc.HasInput, acc.Input, acc.TraceParent, acc.Trigger, acc.Kept = t.Name, t.HasInput, t.Input, t.TraceParent, string(t.Why), t.Kept
	if acc.By = t.By; acc.By == "" && cm.l.commits.by != byServer {
		acc.By = cm.l.commits.by.Author
	}
	goesOn := t.Redo != nil && t.Redo.Fanout == j.Policy().Fanout() // otherwise the job makes other parts now
	if goesOn {
		acc.Parts = t.Redo.Parts
	}
	if t.Cause != (job.RunID{}) {
		acc.Cause = t.Cause[:]
	}
	if t.key != "" {
		if id, same, ok := j.Slot().RunOfKey(t.hash, job.InputSum(t.HasInput, t.Input)); ok {
			if !same {
				return id, true, reusedKey(t.key, id)
			}
			return id, true, nil
		}
		acc.KeyHash = t.hash[:]
	}
	switch {
	case t.Run != (job.RunID{}):
		id = t.Run
		if id.Slot() != j.Slot().Index {
			return id, false, status.Errorf(codes.InvalidArgument, "run %s is not an id for job %s: its slot is another one", id, t.Name)
		}
		if known, err := cm.knows(t.App, id, t.Again); known || err != nil {
			return id, known, err
		}
	case !t.At.IsZero():
		id = t.RunID()
		if cm.l.HasRecent(t.App, id) {
			return id, true, nil
		}
	default:
		id = cm.freshID(j)
	}
	if err := cm.l.commits.refuse(); err != nil {
		return id, false, err
	}
	if err := cm.l.limits.mayAccept(ownerOf(j.Slot()), len(t.Input), 1); err != nil {
		return id, false, err
	}
	if t.Pick != (RetryChoice{}) {
		if err := t.Pick.apply(cm.l, j, id, acc); err != nil {
			return id, false, err
		}
	}
	acc.Run = append(cm.acceptedID[:0], id[:]...)
	cm.l.commits.accept(j, acc)
	if goesOn {
		t.Redo.Resumed.Run = slices.Clone(id[:]) // a slice of id itself would allocate id in each call
		cm.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Resumed{Resumed: t.Redo.Resumed}})
	}
	return id, false, nil
}

// TriggerThen is TriggerJob with an answer when the run is durable. The turn in which a new
// run becomes durable also reads it: a later read could fail because the server ends, and
// the caller would not learn that the run exists. The answer is nil if the run has ended
// long ago.
func (cm *Commands) TriggerThen(t *Trigger, answer func(*apiv1.Run, error)) job.RunID {
	id, _, err := cm.TriggerJob(t)
	if err != nil {
		answer(nil, err)
		return id
	}
	cm.l.commits.onDurable(func(err error) {
		if err != nil {
			answer(nil, err)
			return
		}
		answer(cm.l.Shown(t.App, id))
	})
	return id
}

// knows reports whether there is a run with an id. It reads the history only if again is
// set, because a fresh id cannot be there.
func (cm *Commands) knows(app string, id job.RunID, again bool) (bool, error) {
	if cm.l.HasRecent(app, id) {
		return true, nil
	}
	if !again {
		return false, nil
	}
	return cm.l.cfg.ended(app, id)
}

// freshID returns a random id for a new run. It need not be reproducible: a caller that
// retries sends an idempotency key.
func (cm *Commands) freshID(j *job.Job) job.RunID {
	cm.l.cfg.Random.Read(cm.entropy[:]) //nolint:errcheck // it never fails
	return job.NewRunID(j.Slot().Index, cm.l.clock.now, cm.entropy)
}

// CancelRun requests the end of a run. It returns false if the run is not live.
func (cm *Commands) CancelRun(app string, id job.RunID) (bool, error) {
	r := cm.l.State.LiveRun(app, id)
	if r == nil {
		return false, nil
	}
	return true, cm.cancel(r, "")
}

// cancel requests the end of a live run, for the reason why; "": by request.
func (cm *Commands) cancel(r *job.Run, why string) error {
	if err := cm.l.commits.refuseChange(); err != nil {
		return err
	}
	if !r.CancelRequested {
		cm.l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{
			Run: r.ID[:], JobNextMs: cm.delayNext(r), Why: why,
		}}})
	}
	return nil
}

// delayNext returns the next planned time of a job with a delay schedule that follows from
// the end of r now, in Unix ms; 0: the end of r plans nothing.
func (cm *Commands) delayNext(r *job.Run) int64 {
	if r.Owner().Policy().DelayAfter == 0 {
		return 0
	}
	j := cm.l.State.Job(r.App, r.Job)
	trigger := r.Trigger
	if r.IsPart() { // its parent may end with it
		if parent := cm.l.State.LiveRun(r.App, r.Fan.Parent); parent != nil {
			trigger = parent.Trigger
		}
	}
	if j == nil || j.Policy().DelayAfter == 0 || trigger != job.BySchedule || j.NextMs != 0 {
		return 0
	}
	plan, err := cm.l.Planner.planOf(j)
	if err != nil || plan.Left(j.Planned) == 0 {
		return 0
	}
	end := cm.l.clock.now
	// r is given up in advance: the next time follows its planned time by a whole delay.
	if at := r.PlannedMs - cm.l.timing.ahead.lag(r); r.State == job.Armed && end.UnixMilli() < at {
		end = time.UnixMilli(at)
	}
	next, ok := plan.AfterEnd(end)
	if !ok {
		return 0
	}
	return cm.l.timing.unplanned(j, next).UnixMilli()
}

// SkipNext gives up the next planned time of a job.
func (cm *Commands) SkipNext(app, name string) (*apiv1.Job, error) {
	j := cm.l.State.Job(app, name)
	if j == nil {
		return nil, noJob(app, name)
	}
	if err := cm.l.commits.refuseChange(); err != nil {
		return nil, err
	}
	const why = "skipped by request"
	if r := j.NextArmed(cm.l.clock.nowMs); r != nil {
		cm.l.admission.endUnrun(r, job.Skipped, "skip_next", why)
		cm.l.Audit.called("job.skipped", app, name)
		return cm.l.JobMessage(j), nil
	}
	if j.NextMs == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has no planned time to skip: its schedule is missing, paused or at its end", name)
	}
	plan, err := cm.l.Planner.planOf(j)
	if err != nil {
		return nil, Invalid(err)
	}
	at := time.UnixMilli(cm.l.timing.ahead.next(j))
	p := &apiv1.Passed{Job: name, FirstMs: at.UnixMilli(), LastMs: at.UnixMilli(), Count: 1, State: string(job.Skipped), Code: "skip_next", Error: why}
	if next, ok := behind(plan, at); ok && plan.Left(j.Planned+1) > 0 {
		p.NextMs = next.UnixMilli()
	}
	cm.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Passed{Passed: p}})
	cm.l.Audit.called("job.skipped", app, name)
	return cm.l.JobMessage(j), nil
}

// DeleteRequested deletes the job of a request. Without force it fails if other jobs refer to
// it.
func (cm *Commands) DeleteRequested(req *apiv1.DeleteJobRequest) error {
	app := AppOf(req.App)
	var namers []string
	if !req.Force {
		namers = cm.l.relations.namers(jobKey{app, req.Name}, func(*job.Job) bool { return true })
	}
	return cm.deleteJob(app, req.Name, Condition{IfMatch: req.IfMatch}, namers)
}

// DeleteSelected deletes one of the jobs that a bulk request selects. Without force it fails
// if a job that survives the request refers to it.
func (cm *Commands) DeleteSelected(req *apiv1.BulkJobsRequest, name string) error {
	app := AppOf(req.App)
	var namers []string
	if !req.Force {
		namers = cm.l.relations.namers(jobKey{app, name}, func(j *job.Job) bool { return cm.survives(req, j, map[string]bool{}) })
	}
	return cm.deleteJob(app, name, Condition{}, namers)
}

// survives reports whether a job still exists after a bulk deletion: a job that the
// request does not select, or one to which a surviving job refers. seen has the jobs that
// were visited on the way, so that circles of references end.
func (cm *Commands) survives(req *apiv1.BulkJobsRequest, j *job.Job, seen map[string]bool) bool {
	if !Selects(req, j.Name(), j.Labels()) {
		return true
	}
	if seen[j.Name()] {
		return false
	}
	seen[j.Name()] = true
	return len(cm.l.relations.namers(jobKey{AppOf(req.App), j.Name()}, func(j *job.Job) bool { return cm.survives(req, j, seen) })) > 0
}

// PutApp records the settings of an app.
func (cm *Commands) PutApp(m *apiv1.App) (*apiv1.App, error) {
	if err := cmp.Or(cm.l.Holds.Free(m.Name), cm.l.limits.mayAddApp(m.Name), cm.l.commits.refuse()); err != nil {
		return nil, err
	}
	cm.setApp(m)
	return cm.l.AppMessage(m.Name), nil
}

// setApp records the settings of an app.
func (cm *Commands) setApp(m *apiv1.App) {
	m.UpdatedAt = timestamppb.New(cm.l.clock.now)
	m.DeletedAt = cm.l.State.app(m.Name).slots[job.ModuleSlot].Settings.GetDeletedAt()
	cm.l.commits.record(cm.l.State.app(m.Name).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AppPut{AppPut: &apiv1.AppPut{App: m}}})
}

// SetLimits replaces the limits of an app. They may be lower than what the app has: then it
// keeps that, and gets no more.
func (cm *Commands) SetLimits(app string, m *apiv1.AppLimits) (*apiv1.App, error) {
	if err := cmp.Or(cm.l.limits.mayAddApp(app), cm.l.commits.refuseChange()); err != nil {
		return nil, err
	}
	a := cm.l.State.app(app)
	cm.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AppLimits{AppLimits: m}})
	return a.message(cm.l.clock.nowMs), nil
}
