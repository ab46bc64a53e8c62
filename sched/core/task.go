package core

import (
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
)

type startKey struct {
	slot *job.Slot
	host *hosts.Host
}

func (di *dispatcher) task(r *job.Run) *apiv1.Task {
	sh := r.Shape()
	t := codec.NewTask()
	t.Run, t.App, t.Job, t.Attempt, t.MaxAttempts, t.Epoch = r.ID[:], r.App, r.Job, r.Attempt, r.MaxAttempts(), di.l.cfg.Epoch
	t.PlannedMs, t.Module, t.Digest, t.Handler = r.PlannedMs, sh.Handler.Module, sh.Digest, sh.Handler.Name
	t.Input, t.Args, t.Env, t.Http, t.Command = r.Given(), sh.Handler.Args, sh.Handler.Env, sh.Handler.Http, sh.Handler.Command
	t.TimeoutMs, t.Covers = r.Policy.Timeout.Milliseconds(), r.Covers
	var traceState string
	if t.TraceParent, traceState = job.SplitTrace(r.TraceParent); traceState != "" {
		t.TraceState = proto.String(traceState) // not &traceState, which would be allocated for each task
	}
	t.Trust, t.MemoryBytes, t.Fuel = ownerOf(r.Slot()).trustID(), sh.Memory, sh.Fuel
	t.Priority, t.Pace = r.Policy.Priority, paceText(r.Pace)
	t.StartWithinMs = di.l.Sessions.startWithin(r)
	if r.IsPart() {
		t.Part, t.Parts = r.Fan.Part, r.Fan.Parts
		t.Role, t.Handler = r.Role(), r.HandlerName()
	}
	t.Grants = di.l.Guests.grantsOf(r.App, sh).encoded
	return t
}
