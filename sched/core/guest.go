package core

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file has the decisions of the loop for calls of handlers, and the small rows of slots.
// All methods of loop run on the loop.

var errStale = status.Error(codes.FailedPrecondition, "it is not the current attempt of its run on this host any more")

// Caller returns the run for which a host calls. It fails if the call is not from the current
// attempt of the run, on its host and in its session, or is for another epoch. The code is
// Unavailable if the server does not know of the attempt yet.
func (gu *Guests) Caller(c *apiv1.Caller) (*job.Run, error) {
	if len(c.GetRun()) != len(job.RunID{}) {
		return nil, status.Error(codes.InvalidArgument, "the caller has no run")
	}
	r := gu.l.State.LiveRun(c.App, job.RunID(c.Run))
	switch {
	case r == nil || c.Epoch != gu.l.cfg.Epoch:
		return nil, errStale
	case r.State != job.Running && c.Attempt == r.Attempt+1:
		// A crash lost the record of its start: the host will report it.
		return nil, status.Error(codes.Unavailable, "the server has been restarted and does not know of the attempt yet: try again in a moment")
	case !r.Current(c.Attempt, c.Host) || subtle.ConstantTimeCompare([]byte(r.Session), []byte(c.Session)) != 1:
		return nil, errStale
	}
	return r, nil
}

// maxGranted bounds the number of job templates whose grants are cached.
const maxGranted = 10_000

// grantsOf returns the capabilities that the module of a template may use: those that its
// manifest asks for and that were granted. Tasks of the same template share the result.
func (gu *Guests) grantsOf(app string, sh *job.Shape) grants {
	if sh == gu.recent {
		return gu.given
	}
	g, ok := gu.granted[sh] // the template belongs to one app
	if ok {
		gu.recent, gu.given = sh, g
		return g
	}
	s := gu.l.State.apps[app].slots[job.ModuleSlot]
	name, _, _ := strings.Cut(sh.Handler.GetModule(), "@")
	if sh.Handler.GetModule() == "" && sh.Handler.GetName() == job.HTTPModule {
		g.Grants = job.HTTPGrants(sh.Handler.Http, s.Grants(job.HTTPModule).GetGrants())
		g.encoded = job.EncodeGrants(g.Grants)
	} else if given := s.Grants(name).GetGrants(); given != nil {
		g.Grants = job.Effective(moduleOf(s, name, sh).GetRequests(), given)
		g.encoded = job.EncodeGrants(g.Grants)
	}
	if len(gu.granted) >= maxGranted {
		clear(gu.granted)
	}
	gu.granted[sh] = g
	return g
}

// forgetGrants drops what grantsOf has remembered: a module or its grants have changed.
func (gu *Guests) forgetGrants() {
	clear(gu.granted)
	gu.recent = nil
}

// moduleOf returns the version of a module with the digest of a template, or nil.
func moduleOf(s *job.Slot, name string, sh *job.Shape) *apiv1.Module {
	if m := s.Modules[sh.Handler.GetModule()]; m != nil && m.Digest == sh.Digest {
		return m
	}
	for _, m := range s.Modules {
		if m.Name == name && m.Digest == sh.Digest {
			return m
		}
	}
	return nil
}

// GrantsOfRun is grantsOf for a run.
func (gu *Guests) GrantsOfRun(r *job.Run) *apiv1.Grants { return gu.grantsOf(r.App, r.Shape()).Grants }

// NotGranted returns the error for a capability that the module of a run has not been
// granted.
func NotGranted(r *job.Run, what string) error {
	name, version, _ := strings.Cut(r.Shape().Handler.GetModule(), "@")
	if name == "" {
		return status.Errorf(codes.PermissionDenied, "%s may not use %s: `wheelwork module grant %s` allows it", r.Shape().Handler.GetName(), what, r.Shape().Handler.GetName())
	}
	return status.Errorf(codes.PermissionDenied, "module %s may not use %s: its manifest has to ask for it, and `wheelwork module grant %s --requested %s --app %s` allows what it asks for", name, what, name, version, r.App)
}

// busy is refuse for calls of handlers. Its error has the code Unavailable, so that they try
// again.
func (gu *Guests) busy() error {
	if err := gu.l.commits.refuse(); err != nil {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return nil
}

// KeepCheckpoint records the checkpoint that an attempt saves.
func (gu *Guests) KeepCheckpoint(r *job.Run, data []byte) error {
	if err := job.CheckValue("checkpoint", len(data)); err != nil {
		return status.Error(codes.OutOfRange, err.Error())
	}
	if err := gu.busy(); err != nil {
		return err
	}
	gu.l.commits.record(r.Slot(), &apiv1.Record{Kind: &apiv1.Record_Checkpointed{Checkpointed: &apiv1.Checkpointed{Run: r.ID[:], Attempt: r.Attempt, Data: data}}})
	return nil
}

// MapParts adds a part to the parent of r for each of the inputs. first is the number of the
// first input, counted over all calls for r. Inputs that were mapped before are left out.
func (gu *Guests) MapParts(r *job.Run, first int64, inputs [][]byte) error {
	s := r.Slot()
	parent := s.MapParent(r)
	switch {
	case parent == nil:
		return status.Errorf(codes.Unimplemented, "job %s does not map: its fanout.mode is neither map nor map_reduce, or this is the part that reduces", r.Job)
	case parent.CancelRequested:
		return status.Errorf(codes.FailedPrecondition, "run %s is being cancelled", parent.ID)
	case first < 0 || first > int64(r.Fan.Mapped):
		return status.Errorf(codes.InvalidArgument, "input %d comes after input %d: those between them are missing", first, r.Fan.Mapped)
	}
	known := int64(r.Fan.Mapped) - first
	if known >= int64(len(inputs)) {
		return nil // an earlier attempt mapped them
	}
	inputs = inputs[known:]
	in := &apiv1.MapChunk{First: parent.Fan.Made, Depth: r.Fan.Depth + 1, Sizes: make([]uint32, len(inputs))}
	size := 0
	for i, input := range inputs {
		if err := job.CheckInput(len(input)); err != nil {
			return status.Errorf(codes.OutOfRange, "input %d: %v", first+known+int64(i), err)
		}
		in.Sizes[i] = uint32(len(input))
		size += len(input)
	}
	parts, depth := r.MapLimits()
	_, waiting := parent.Waiting()
	switch {
	case in.Depth > depth:
		return status.Errorf(codes.OutOfRange, "job %s may map %d deep (fanout.max_depth), and this part is that deep already", r.Job, depth)
	case int64(parent.Fan.Made)+int64(len(inputs)) > int64(parts):
		return status.Errorf(codes.OutOfRange, "run %s would have more than %d parts (fanout.max_parts)", parent.ID, parts)
	case waiting+int64(size) > job.MaxMapWaiting:
		return status.Errorf(codes.Unavailable, "the parts of run %s that wait have %d MiB of inputs, which is the limit: it goes on when some have run", parent.ID, waiting>>20)
	}
	if err := gu.busy(); err != nil {
		return err
	}
	in.Data = make([]byte, 0, size)
	for _, input := range inputs {
		in.Data = append(in.Data, input...)
	}
	gu.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_Mapped{Mapped: &apiv1.Mapped{
		Part: r.ID[:], First: r.Fan.Mapped, Chunk: parent.Fan.Map.NextChunk(), Inputs: in,
	}}})
	return nil
}

// Enqueued is the request of a handler for a run.
type Enqueued struct {
	App, Name string
	ID        job.RunID // if there is no key: the same for the same sequence in any attempt
	Key       string
	input     []byte
	hasInput  bool
	delay     time.Duration
}

// MayEnqueue fails if the handler of r may not enqueue a job, and with elsewhere if the job
// is in another partition.
func (gu *Guests) MayEnqueue(r *job.Run, e *Enqueued) error {
	if !job.MayEnqueue(gu.GrantsOfRun(r), r.App, e.App, e.Name) {
		return NotGranted(r, "job "+e.App+"/"+e.Name)
	}
	if gu.l.cfg.Cluster && !gu.l.Moves.has(e.App, e.Name) {
		return Elsewhere{} // that partition calls TakesFrom
	}
	return gu.TakesFrom(r.App, e)
}

// Elsewhere is the error for a job that is in another partition, which must be called instead.
type Elsewhere struct{}

func (Elsewhere) Error() string { return "another partition has the job" }

// TakesFrom fails if the app of a job does not accept runs from app.
func (gu *Guests) TakesFrom(app string, e *Enqueued) error {
	if e.App == app {
		return nil
	}
	if to := gu.l.State.apps[e.App]; to != nil {
		for _, from := range to.slots[job.ModuleSlot].Settings.GetEnqueueFrom() {
			if from == app {
				return nil
			}
		}
	}
	return status.Errorf(codes.PermissionDenied, "app %s does not take jobs from app %s: its owner allows it with `wheelwork app set %s --enqueue-from %s`", e.App, app, e.App, app)
}

// EnqueueFor accepts a run of the job in e; by is the run that enqueues it. known reports
// that an earlier call has already accepted the same run.
func (gu *Guests) EnqueueFor(by job.RunID, traceParent string, e *Enqueued) (id job.RunID, known bool, err error) {
	j := gu.l.State.Job(e.App, e.Name)
	if j == nil {
		return id, false, noJob(e.App, e.Name)
	}
	acc := &apiv1.Accepted{
		Job: e.Name, HasInput: e.hasInput, Input: e.input, TraceParent: traceParent, Trigger: string(job.ByHandler), Cause: by[:],
		PlannedMs: gu.l.clock.nowMs + e.delay.Milliseconds(),
	}
	id = e.ID
	if e.Key != "" {
		hash := keyHash(e.Name, e.Key)
		if id, same, ok := j.Slot().RunOfKey(hash, job.InputSum(e.hasInput, e.input)); ok {
			if !same {
				return id, true, reusedKey(e.Key, id)
			}
			return id, true, nil
		}
		acc.KeyHash = hash[:]
		id = gu.l.Commands.freshID(j)
	}
	if gu.l.HasRecent(e.App, id) {
		return id, true, nil
	}
	if err := gu.busy(); err != nil {
		return id, false, err
	}
	if err := gu.l.limits.mayAccept(ownerOf(j.Slot()), len(e.input), 1); err != nil {
		return id, false, status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	acc.Run = id[:]
	gu.l.commits.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	return id, false, nil
}

// Entry fails if the bucket or key of a value is invalid, or the run's handler may not use it.
func Entry(l *Loop, r *job.Run, bucket, key string, write bool) error {
	if err := job.CheckKey(bucket, key); err != nil {
		return Invalid(err)
	}
	if !job.MayUse(l.Guests.GrantsOfRun(r), bucket, write) {
		what := "bucket " + bucket
		if write {
			what += " for writing"
		}
		return NotGranted(r, what)
	}
	return nil
}

// PutEntry sets a value for a handler. The caller has checked that the handler may do so.
func (gu *Guests) PutEntry(app string, req *apiv1.GuestPutEntryRequest) (*apiv1.ValueRow, error) {
	if err := gu.busy(); err != nil {
		return nil, err
	}
	return gu.PutValue(&ValueChange{App: app, Bucket: req.Bucket, Key: req.Key, Value: req.Value, Expect: req.Expect, id: req.Id})
}

// DeleteEntry deletes a value for a handler. The caller has checked that the handler may do
// so.
func (gu *Guests) DeleteEntry(app string, req *apiv1.GuestDeleteEntryRequest) error {
	if err := gu.l.commits.refuseChange(); err != nil {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return gu.DeleteValue(app, req.Bucket, req.Key, req.Expect)
}

// maxDelay bounds the delay with which a handler may enqueue a run.
const maxDelay = schedule.MaxInterval

// NewEnqueued validates a request from a handler of an app.
func NewEnqueued(app string, req *apiv1.GuestEnqueueRequest) (*Enqueued, error) {
	if err := job.CheckInput(len(req.Input)); err != nil {
		return nil, status.Error(codes.OutOfRange, err.Error())
	}
	e := &Enqueued{
		App: req.App, Name: req.Job, Key: req.Key, input: req.Input, hasInput: req.HasInput, delay: time.Duration(req.DelayMs) * time.Millisecond,
	}
	e.App = cmp.Or(e.App, app)
	switch {
	case len(req.Key) > maxKeyBytes:
		return nil, status.Errorf(codes.OutOfRange, "the idempotency key is %d bytes, the limit is %d", len(req.Key), maxKeyBytes)
	case req.DelayMs < 0 || req.DelayMs > maxDelay.Milliseconds():
		return nil, status.Errorf(codes.OutOfRange, "delay_ms is %d, it must be 0 to %d", req.DelayMs, maxDelay.Milliseconds())
	case len(req.GetCaller().GetRun()) != len(job.RunID{}):
		return nil, status.Error(codes.InvalidArgument, "the caller has no run")
	}
	if e.Key == "" {
		by := job.RunID(req.Caller.Run)
		e.ID = job.OccurrenceID(e.App, e.Name, by.Planned(), fmt.Sprintf("enqueue/%d/%s/%s", req.Sequence, app, by))
	}
	return e, nil
}

// maxKeyBytes bounds an idempotency key, in bytes.
const maxKeyBytes = 256
