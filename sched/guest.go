package sched

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/store"
)

// This file has the decisions of the loop for calls of handlers, and the small rows of slots.
// All methods of loop run on the loop.

// row adds a small row of a slot to the next projection batch.
func (c *checkpoints) row(r *job.Row) {
	if c.rows == nil {
		c.rows = map[string]*job.Row{}
	}
	c.rows[r.Key] = r
}

// guestRows returns the changed small rows of slots. A row without which a run cannot be
// loaded is deleted one projection batch after the run. So a crash during the commit of a
// large batch may leave rows without a run, which the next start deletes, but never a run
// without its rows.
func (c *checkpoints) guestRows(marshal func(proto.Message) []byte) []store.Row {
	rows := make([]store.Row, 0, len(c.rows)+len(c.dropped))
	for _, r := range c.dropped {
		rows = append(rows, store.Row{Key: r.Key})
	}
	c.dropped = nil
	for key, r := range c.rows {
		switch {
		case r.Value != nil:
			value := marshal(r.Value)
			if value == nil {
				value = []byte{} // nil deletes
			}
			rows = append(rows, store.Row{Key: key, Value: value})
		case r.Lasting():
			c.dropped = append(c.dropped, r)
		default:
			rows = append(rows, store.Row{Key: key})
		}
	}
	return rows
}

// loadGuestRow restores a small row of a slot from the store. It deletes a row whose run is
// gone.
func (l *loop) loadGuestRow(a *app, kind, rest, key string, value []byte) error {
	slot, ours, err := job.SlotOfRow(kind, rest)
	if err != nil {
		return fmt.Errorf("row %q: %w", key, err)
	}
	if !ours {
		return fmt.Errorf("the store has a row %q that is none of ours", key)
	}
	orphan, err := a.slots[slot].LoadRow(kind, rest, value)
	if err != nil {
		return fmt.Errorf("row %q: %w", key, err)
	}
	if orphan {
		l.view.row(&job.Row{Key: key})
	}
	return nil
}

var errStale = status.Error(codes.FailedPrecondition, "it is not the current attempt of its run on this host any more")

// caller returns the run for which a host calls. It fails if the call is not from the current
// attempt of the run, on its host and in its session, or is for another epoch. The code is
// Unavailable if the server does not know of the attempt yet.
func (l *loop) caller(c *apiv1.Caller) (*job.Run, error) {
	if len(c.GetRun()) != len(job.RunID{}) {
		return nil, status.Error(codes.InvalidArgument, "the caller has no run")
	}
	r := l.liveRun(c.App, job.RunID(c.Run))
	switch {
	case r == nil || c.Epoch != l.cfg.Epoch:
		return nil, errStale
	case r.State != job.Running && c.Attempt == r.Attempt+1:
		// A crash lost the record of its start: the host will report it.
		return nil, status.Error(codes.Unavailable, "the server has been restarted and does not know of the attempt yet: try again in a moment")
	case !r.Current(c.Attempt, c.Host) || subtle.ConstantTimeCompare([]byte(r.Session), []byte(c.Session)) != 1:
		return nil, errStale
	}
	return r, nil
}

// grants has the capabilities that a module may use, and their encoding for tasks.
type grants struct {
	*apiv1.Grants
	encoded []byte
}

// maxGranted bounds the templates (in the code: shapes) whose grants are cached.
const maxGranted = 10_000

// grantsOf returns the capabilities that the module of a template may use: those that its
// manifest asks for and that were granted. Tasks of the same template share the result.
func (l *loop) grantsOf(app string, sh *job.Shape) grants {
	g, ok := l.granted[sh] // the template belongs to one app
	if ok {
		return g
	}
	s := l.apps[app].slots[job.ModuleSlot]
	name, _, _ := strings.Cut(sh.Handler.GetModule(), "@")
	if sh.Handler.GetModule() == "" && sh.Handler.GetName() == job.HTTPModule {
		g.Grants = job.HTTPGrants(sh.Handler.Http, s.Grants(job.HTTPModule).GetGrants())
		g.encoded = job.EncodeGrants(g.Grants)
	} else if given := s.Grants(name).GetGrants(); given != nil {
		g.Grants = job.Effective(moduleOf(s, name, sh).GetRequests(), given)
		g.encoded = job.EncodeGrants(g.Grants)
	}
	if len(l.granted) >= maxGranted {
		clear(l.granted)
	}
	l.granted[sh] = g
	return g
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

// grantsOfRun is grantsOf for a run.
func (l *loop) grantsOfRun(r *job.Run) *apiv1.Grants { return l.grantsOf(r.App, r.Shape()).Grants }

func notGranted(r *job.Run, what string) error {
	name, _, _ := strings.Cut(r.Shape().Handler.GetModule(), "@")
	if name == "" {
		return status.Errorf(codes.PermissionDenied, "%s may not use %s: `wheelwork module grant %s` allows it", r.Shape().Handler.GetName(), what, r.Shape().Handler.GetName())
	}
	return status.Errorf(codes.PermissionDenied, "module %s may not use %s: its manifest has to ask for it, and `wheelwork module grant %s` allows it", name, what, name)
}

// busy is refuse for calls of handlers. Its error has the code Unavailable, so that they try
// again.
func (l *loop) busy() error {
	if err := l.refuse(); err != nil {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return nil
}

// keepCheckpoint records the checkpoint that an attempt saves.
func (l *loop) keepCheckpoint(r *job.Run, data []byte) error {
	if err := job.CheckValue("checkpoint", len(data)); err != nil {
		return status.Error(codes.OutOfRange, err.Error())
	}
	if err := l.busy(); err != nil {
		return err
	}
	l.record(l.slotOf(r), &apiv1.Record{Kind: &apiv1.Record_Checkpointed{Checkpointed: &apiv1.Checkpointed{Run: r.ID[:], Attempt: r.Attempt, Data: data}}})
	return nil
}

// mapParts adds a part to the parent of r for each of the inputs. first is the number of the
// first input, counted over all calls for r. Inputs that were mapped before are left out.
func (l *loop) mapParts(r *job.Run, first int64, inputs [][]byte) error {
	s := l.slotOf(r)
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
	if err := l.busy(); err != nil {
		return err
	}
	in.Data = make([]byte, 0, size)
	for _, input := range inputs {
		in.Data = append(in.Data, input...)
	}
	l.record(s, &apiv1.Record{Kind: &apiv1.Record_Mapped{Mapped: &apiv1.Mapped{
		Part: r.ID[:], First: r.Fan.Mapped, Chunk: parent.Fan.Map.NextChunk(), Inputs: in,
	}}})
	return nil
}

// enqueued is the request of a handler for a run.
type enqueued struct {
	app, name string
	id        job.RunID // if there is no key: the same for the same sequence in any attempt
	key       string
	input     []byte
	hasInput  bool
	delay     time.Duration
}

// mayEnqueue fails if the handler of r may not enqueue a job, and with elsewhere if the job
// is in another partition.
func (l *loop) mayEnqueue(r *job.Run, e *enqueued) error {
	if !job.MayEnqueue(l.grantsOfRun(r), r.App, e.app, e.name) {
		return notGranted(r, "job "+e.app+"/"+e.name)
	}
	if l.cfg.Remote != nil && !l.has(e.app, e.name) {
		return elsewhere{} // that partition calls takesFrom
	}
	return l.takesFrom(r.App, e)
}

// elsewhere is the error for a job that is in another partition, which must be called instead.
type elsewhere struct{}

func (elsewhere) Error() string { return "another partition has the job" }

// takesFrom fails if the app of a job does not accept runs from app.
func (l *loop) takesFrom(app string, e *enqueued) error {
	if e.app == app {
		return nil
	}
	if to := l.apps[e.app]; to != nil {
		for _, from := range to.slots[job.ModuleSlot].Settings.GetEnqueueFrom() {
			if from == app {
				return nil
			}
		}
	}
	return status.Errorf(codes.PermissionDenied, "app %s does not take jobs from app %s: its owner allows it with `wheelwork app set %s --enqueue-from %s`", e.app, app, e.app, app)
}

// enqueueFor accepts a run that the run by enqueues. known reports that there was already such
// a run.
func (l *loop) enqueueFor(by job.RunID, traceParent string, e *enqueued) (id job.RunID, known bool, err error) {
	j := l.job(e.app, e.name)
	if j == nil {
		return id, false, noJob(e.app, e.name)
	}
	acc := &apiv1.Accepted{
		Job: e.name, HasInput: e.hasInput, Input: e.input, TraceParent: traceParent, Trigger: string(job.ByHandler), Cause: by[:],
		PlannedMs: l.nowMs + e.delay.Milliseconds(),
	}
	id = e.id
	if e.key != "" {
		hash := keyHash(e.name, e.key)
		if id, same, ok := j.Slot().RunOfKey(hash, job.InputSum(e.hasInput, e.input)); ok {
			if !same {
				return id, true, reusedKey(e.key, id)
			}
			return id, true, nil
		}
		acc.KeyHash = hash[:]
		id = l.freshID(j)
	}
	if l.liveRun(e.app, id) != nil || l.view.recent(e.app, id) != nil {
		return id, true, nil
	}
	if err := l.busy(); err != nil {
		return id, false, err
	}
	if l.live >= l.cfg.MaxLive {
		return id, false, status.Errorf(codes.Unavailable, "%d runs have not ended, which is the limit: try again when some have", l.live)
	}
	acc.Run = id[:]
	l.record(j.Slot(), &apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: acc}})
	return id, false, nil
}

// checkAppLimits validates kv_bytes, weight and enqueue_from of an app.
func checkAppLimits(m *apiv1.App) error {
	if m.KvBytes < 0 || m.KvBytes > 16<<30 {
		return errors.New("kv_bytes must be 0 to 16 GiB")
	}
	if m.Weight < 0 || m.Weight > 1000 {
		return errors.New("weight must be 1 to 1000, or 0 for 1")
	}
	if len(m.EnqueueFrom) > 100 {
		return errors.New("enqueue_from has more than 100 apps")
	}
	for _, app := range m.EnqueueFrom {
		if err := naming.Check("enqueue_from: app", app); err != nil {
			return err
		}
	}
	return nil
}
