package api

import (
	"cmp"
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// Remote calls the servers of other partitions. Implementations are safe for concurrent
// use.
type Remote interface {
	// Run returns a run of an app that another partition has, live or in its history;
	// nil: no partition has it.
	Run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error)
	// Get, Put and Delete read and change a value of the app in its primary partition.
	// The caller has checked that the run may use the value.
	Get(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error)
	Put(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error)
	Delete(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error
	// Enqueue enqueues a job in the partition that has it, for a run of the app from. The
	// caller has checked that the module of the run may enqueue it.
	Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, traceParent string) (*apiv1.GuestEnqueueResponse, error)
	core.Others
}

// elsewhere returns a run that another partition has; nil: no partition has it.
func (s *Services) elsewhere(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	if s.cfg.Remote == nil {
		return nil, nil
	}
	return s.cfg.Remote.Run(ctx, app, id)
}

// ended reports whether a run is in the history of this or another partition.
func (s *Services) ended(ctx context.Context, app string, id job.RunID) (bool, error) {
	ended, err := s.cfg.Store.Has(app, id)
	if err != nil || ended {
		return ended, err
	}
	m, err := s.elsewhere(ctx, app, id)
	return m != nil && job.State(m.State).Terminal(), err
}

// CheckChanges checks a change set as far as it concerns this partition, for the primary
// partition of its app.
func (s *Services) CheckChanges(ctx context.Context, req *apiv1.ApplyChangeSetRequest) (*apiv1.ChangeSetCheck, error) {
	set, err := core.NewChangeSet(ctx, req)
	if err != nil {
		return nil, err
	}
	return core.AskDurable(ctx, s.loop, func(l *core.Loop, answer func(*apiv1.ChangeSetCheck, error)) { l.ChangeSets.CheckShare(set, answer) })
}

// ApplyChanges applies changes of a set that the primary partition of the app has stored.
func (s *Services) ApplyChanges(ctx context.Context, app string, share *apiv1.ChangeSetShare) error {
	_, err := core.AskDurable(ctx, s.loop, func(l *core.Loop, answer func(struct{}, error)) { l.ChangeSets.ApplyShare(app, share, answer) })
	return err
}

// Find returns a run that this partition has, live or in its history; nil: it has none.
func (s *Services) Find(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	return s.find(ctx, app, id)
}

// Entry returns a value for a run of another partition. The caller has checked that the
// run may read it.
func (s *Services) Entry(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (*apiv1.GuestGetEntryResponse, error) {
		row := l.Guests.Value(app, req.Bucket, req.Key)
		if row == nil {
			return nil, core.NoEntry(req.Bucket, req.Key)
		}
		return &apiv1.GuestGetEntryResponse{Value: row.Value, Version: row.Version}, nil
	})
}

// PutEntry sets a value for a run of another partition. The caller has checked that the
// run may write it.
func (s *Services) PutEntry(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	return core.Change(ctx, s.loop, func(l *core.Loop) (*apiv1.GuestPutEntryResponse, error) {
		row, err := l.Guests.PutEntry(app, req)
		if err != nil {
			return nil, err
		}
		return &apiv1.GuestPutEntryResponse{Version: row.Version}, nil
	})
}

// DeleteEntry deletes a value for a run of another partition. The caller has checked that
// the run may write it.
func (s *Services) DeleteEntry(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error {
	_, err := core.Change(ctx, s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.Guests.DeleteEntry(app, req) })
	return err
}

// Enqueue accepts a run of a job of this partition, for a run of the app from in another
// partition. The caller has checked that the module of that run may enqueue the job. A
// repeated call returns the same run.
func (s *Services) Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, traceParent string) (*apiv1.GuestEnqueueResponse, error) {
	e, err := core.NewEnqueued(from, req)
	if err != nil {
		return nil, err
	}
	if _, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.Guests.TakesFrom(from, e) }); err != nil {
		return nil, err
	}
	if e.Key == "" {
		if ended, err := s.ended(ctx, e.App, e.ID); err != nil || ended {
			return &apiv1.GuestEnqueueResponse{Run: e.ID[:]}, err
		}
	}
	return core.Change(ctx, s.loop, func(l *core.Loop) (*apiv1.GuestEnqueueResponse, error) {
		if err := cmp.Or(l.Guests.TakesFrom(from, e), l.Moves.ErrIfJobMoving(e.App, e.Name)); err != nil {
			return nil, err
		}
		id, _, err := l.Guests.EnqueueFor(job.RunID(req.Caller.Run), traceParent, e)
		return &apiv1.GuestEnqueueResponse{Run: id[:]}, err
	})
}
