package core

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file applies change sets to apps that are split over several partitions. The primary
// partition stores the set and sends each change of a job to the partition that has its slot.
// That partition records in the slot how far the set has reached it, and so applies a change
// once, however often it is sent.

// sharing is the state of a set of a split app.
type sharing struct {
	asked  bool // the other partitions are checking the set
	waits  bool // the check of this partition has ended before theirs
	copied bool // the other partitions have the calendars and aliases of the set
}

// concerns reports whether this partition has the object of a change. The primary partition has
// all objects but the jobs in slots that are elsewhere.
func (cs *ChangeSets) concerns(set *ChangeSet, it *changeItem) bool {
	return set.sharing == nil || kindOf(it.change) != job.KindJob || here(cs.slotOf(set, it))
}

func (cs *ChangeSets) slotOf(set *ChangeSet, it *changeItem) *job.Slot {
	return cs.l.State.app(set.app).slots[job.SlotOf(nameOf(it.change))]
}

// outside calls f on another goroutine, with a context that ends with the loop, and then then on
// the loop.
func (cs *ChangeSets) outside(f func(context.Context) error, then func(error)) {
	done := cs.l.Mail.Done
	go func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			select {
			case <-done:
				cancel()
			case <-ended:
			}
		}()
		err := f(ctx)
		close(ended)
		cs.later(func() { then(err) })
	}()
}

// ask lets the other partitions check a set.
func (cs *ChangeSets) ask(set *ChangeSet) {
	set.sharing.asked = true
	var answer *apiv1.ChangeSetCheck
	cs.outside(func(ctx context.Context) (err error) {
		req := &apiv1.ApplyChangeSetRequest{App: set.app}
		for i := range set.items {
			c := set.items[i].change
			if etag := set.items[i].etag; etag != "" {
				c = proto.CloneOf(c)
				c.GetJob().Etag = etag
			}
			if base := set.items[i].base; base != "" {
				c = proto.CloneOf(c)
				c.Base = base
			}
			req.Changes = append(req.Changes, c)
		}
		answer, err = cs.l.cfg.Others.CheckChanges(ctx, set.app, req)
		return err
	}, func(err error) {
		set.sharing.asked = false
		if err != nil {
			set.refused.add(set.items[0].index, err)
		}
		for _, r := range answer.GetResults() {
			it := &set.items[r.Index]
			it.same = r.Result == "unchanged"
			set.results[it.index] = &apiv1.ChangeResult{Result: r.Result}
		}
		for _, p := range answer.GetProblems() {
			set.refused.addOnce(set.items[p.Index].index, status.Error(codes.Code(p.Code), p.Error))
		}
		for i := range set.items {
			if it := &set.items[i]; err == nil && set.refused.n == 0 && set.results[it.index] == nil && !cs.concerns(set, it) {
				set.refused.add(it.index, &MovedError{set.app, cs.slotOf(set, it).Index})
			}
		}
		if set.sharing.waits {
			cs.check(set)
		}
	})
}

// CheckShare checks the changes of a set that concern this partition, for the primary one.
func (cs *ChangeSets) CheckShare(set *ChangeSet, answer func(*apiv1.ChangeSetCheck, error)) {
	set.dryRun, set.sharing = true, &sharing{}
	set.answer = func(_ *apiv1.ApplyChangeSetResponse, err error) {
		if err != nil && set.refused.n == 0 {
			answer(nil, err)
			return
		}
		m := &apiv1.ChangeSetCheck{Problems: set.refused.first, ProblemsInAll: int32(set.refused.n)}
		for i := range set.items {
			if it := &set.items[i]; kindOf(it.change) == job.KindJob && set.results[it.index] != nil {
				m.Results = append(m.Results, &apiv1.ChangeSetCheck_Result{Index: int32(it.index), Result: set.results[it.index].Result})
			}
		}
		answer(m, nil)
	}
	cs.check(set)
}

// ApplyShare applies changes that the primary partition has stored. They were checked, and are
// applied even if their references are gone since, as after a forced deletion.
func (cs *ChangeSets) ApplyShare(app string, share *apiv1.ChangeSetShare, answer func(struct{}, error)) {
	if share.Slot >= uint32(job.Slots) {
		answer(struct{}{}, status.Errorf(codes.InvalidArgument, "there is no slot %d", share.Slot))
		return
	}
	a := cs.l.State.app(app)
	s := a.slots[share.Slot]
	reached, newer := s.ReachedBy(share.Set)
	last := share.First + int64(len(share.Changes))
	err := cs.l.commits.refuse()
	switch {
	case !here(s):
		err = &MovedError{app, s.Index}
	case newer:
		err = status.Errorf(codes.Aborted, "a later change set has reached slot %d of app %s", s.Index, app)
	}
	if err != nil {
		answer(struct{}{}, err)
		return
	}
	cs.l.commits.by = share.Attribution
	defer func() { cs.l.commits.by = byServer }()
	set := &ChangeSet{app: app}
	for i, c := range share.Changes {
		it := &changeItem{change: c}
		if share.First+int64(i) >= reached && kindOf(c) == job.KindJob && job.SlotOf(nameOf(c)) == s.Index {
			cs.applyItem(set, it)
		}
	}
	cs.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_ChangeSetShared{ChangeSetShared: &apiv1.ChangeSetShared{Set: share.Set, Applied: last}}})
	cs.l.commits.onDurable(func(err error) { answer(struct{}{}, err) })
}

// send sends the next changes of a set to the partition that has their slot, and then continues
// with the set.
func (cs *ChangeSets) send(set *ChangeSet) {
	if !set.sharing.copied {
		cs.outside(func(ctx context.Context) error { return cs.l.cfg.Others.CopyState(ctx, set.app) }, func(err error) {
			if set.sharing.copied = err == nil; err != nil {
				cs.l.cfg.Logger.Warn("a change set waits until the other partitions of its app have a copy of the shared state", "app", set.app, "error", err)
				cs.again(set)
				return
			}
			cs.step(set)
		})
		return
	}
	s := cs.slotOf(set, &set.items[set.applied])
	share := &apiv1.ChangeSetShare{Slot: uint32(s.Index), Set: set.number, First: int64(set.applied), Attribution: set.by}
	end, size := set.applied, 0
	for end < len(set.items) && len(share.Changes) < stepChanges && size < partBytes {
		it := &set.items[end]
		if kindOf(it.change) != job.KindJob || cs.slotOf(set, it) != s {
			break
		}
		share.Changes = append(share.Changes, it.change)
		size += proto.Size(it.change)
		end++
	}
	cs.outside(func(ctx context.Context) error { return cs.l.cfg.Others.ApplyChanges(ctx, set.app, share) }, func(err error) {
		code := status.Code(err)
		switch {
		case err == nil:
		case slices.Contains([]codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled}, code):
			cs.again(set)
			return
		case code == codes.Aborted: // another owner of this partition continues with the set
			cs.end(set, err)
			return
		default: // never: the other partition has checked the changes
			cs.l.cfg.Logger.Error("changes of a checked set could not be applied in another partition, and are left out", "app", set.app, "slot", s.Index, "error", err)
		}
		set.applied = end
		cs.progress(set)
	})
}
