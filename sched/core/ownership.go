package core

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// MovedError says that a slot is in another partition or is moving. The call has changed
// nothing: the caller finds the partition of the slot and calls its owner.
type MovedError struct {
	App  string
	Slot uint8
}

// MovedText is the beginning of the text of a [MovedError]. The result of a command
// contains only the text, so callers recognise the error by it.
const MovedText = "the job is on its way to another unit of the cluster"

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s, with slot %d of app %s: try again in a moment", MovedText, e.Slot, e.App)
}

// GRPCStatus returns the code Unavailable, with which clients retry.
func (e *MovedError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// claim is the slot that must be in this partition for a call, see [OnSlot].
type claim struct {
	app  string
	slot uint8
}

type claimKey struct{}

// OnSlot returns a context with which each call fails with a [MovedError] if the
// slot is not here. Every call checks it, because the slot may move between two calls.
func OnSlot(ctx context.Context, app string, slot uint8) context.Context {
	return context.WithValue(ctx, claimKey{}, claim{AppOf(app), slot})
}

// OffSlot returns a context without the condition of [OnSlot].
func OffSlot(ctx context.Context) context.Context { return context.WithValue(ctx, claimKey{}, nil) }

// claimed returns an error if the slot that a context claims is not here.
func (mo *Moves) claimed(c claim) error {
	if a := mo.l.State.apps[c.app]; a != nil {
		return mo.errIfMoving(a.slots[c.slot])
	}
	return nil
}

// home is the primary partition of the app; "": this one.
func (a *app) primary() string { return a.slots[job.ModuleSlot].Home }

// here reports whether the jobs of a slot are in this partition.
func here(s *job.Slot) bool {
	return s.Ownership.State == job.Here && (s.Ownership.Move > 0 || ownerOf(s).primary() == "")
}

// split reports whether slots of the app are, or may be, in another partition.
func (a *app) split() bool {
	return a.primary() != "" || slices.ContainsFunc(a.slots[:], func(s *job.Slot) bool { return s.Ownership.State != job.Here })
}

// share returns the number of slots of the app in this partition, at most [job.Slots].
func (a *app) share() (n int64) {
	for _, s := range a.slots {
		if here(s) {
			n++
		}
	}
	return n
}

// errIfMoving fails with a [MovedError] if the slot has moved or is moving.
func (mo *Moves) errIfMoving(s *job.Slot) error {
	if !here(s) {
		return &MovedError{s.App, s.Index}
	}
	return nil
}

// ErrIfJobMoving is errIfMoving for the slot of a job.
func (mo *Moves) ErrIfJobMoving(app, name string) error {
	return mo.claimed(claim{app, job.SlotOf(name)})
}

// has reports whether the slot of a job is in this partition.
func (mo *Moves) has(app, name string) bool {
	a := mo.l.State.apps[app]
	return a != nil && here(a.slots[job.SlotOf(name)])
}

// errIfCrossPartition fails if the job other, to which def refers, is in another
// partition: jobs that refer to each other must be in the same partition.
func (mo *Moves) errIfCrossPartition(def *apiv1.Job, other string) error {
	if a := mo.l.State.apps[def.App]; a == nil || here(a.slots[job.SlotOf(other)]) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "job %s: it refers to job %s, and app %s is split: the two are in different partitions of the cluster. Bring the app together with `wheelwork cluster merge %s`; the jobs that refer to each other stay together afterwards", def.Name, other, def.App, def.App)
}

// errIfSplit fails if the app is split. Operations that must see all jobs of an app call it.
func (a *app) errIfSplit() error {
	if a == nil || !a.split() {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "app %s is split over several partitions of the cluster, and jobs of it in other partitions may refer to this: bring it together with `wheelwork cluster merge %s` first", a.name, a.name)
}
