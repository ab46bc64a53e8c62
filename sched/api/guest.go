package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// guestAPI serves the calls of handlers (ADR 18). Each call is fenced: see loop.caller.
type guestAPI struct {
	apiv1.UnimplementedGuestServer
	s *Services
}

// change runs f on the loop with the run of the caller. It returns when the records of f are
// durable.
func (a *guestAPI) change(ctx context.Context, c *apiv1.Caller, f func(*core.Loop, *job.Run) error) error {
	_, err := core.Change(ctx, a.s.loop, func(l *core.Loop) (struct{}, error) {
		r, err := l.Guests.Caller(c)
		if err == nil {
			err = f(l, r)
		}
		return struct{}{}, err
	})
	return err
}

func (a *guestAPI) GetCheckpoint(ctx context.Context, req *apiv1.GuestGetCheckpointRequest) (*apiv1.GuestGetCheckpointResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.GuestGetCheckpointResponse, error) {
		r, err := l.Guests.Caller(req.Caller)
		if err != nil {
			return nil, err
		}
		data, ok := r.Slot().Checkpoint(r.ID)
		if !ok {
			return nil, status.Error(codes.NotFound, "no attempt of the run has left a checkpoint")
		}
		return &apiv1.GuestGetCheckpointResponse{Data: data}, nil
	})
}

func (a *guestAPI) SetCheckpoint(ctx context.Context, req *apiv1.GuestSetCheckpointRequest) (*apiv1.GuestSetCheckpointResponse, error) {
	err := a.change(ctx, req.Caller, func(l *core.Loop, r *job.Run) error { return l.Guests.KeepCheckpoint(r, req.Data) })
	return &apiv1.GuestSetCheckpointResponse{}, err
}

func (a *guestAPI) GetEntry(ctx context.Context, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	resp, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.GuestGetEntryResponse, error) {
		r, err := l.Guests.Caller(req.Caller)
		if err == nil {
			err = core.Entry(l, r, req.Bucket, req.Key, false)
		}
		if err == nil {
			err = l.Guests.ErrIfNotPrimary(r.App)
		}
		if err != nil {
			return nil, err
		}
		row := l.Guests.Value(r.App, req.Bucket, req.Key)
		if row == nil {
			return nil, core.NoEntry(req.Bucket, req.Key)
		}
		return &apiv1.GuestGetEntryResponse{Value: row.Value, Version: row.Version}, nil
	})
	if errors.Is(err, core.NotPrimary{}) {
		return a.s.cfg.Remote.Get(ctx, req.Caller.App, req)
	}
	return resp, err
}

func (a *guestAPI) PutEntry(ctx context.Context, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	if err := job.CheckValue("value", len(req.Value)); err != nil {
		return nil, status.Error(codes.OutOfRange, err.Error())
	}
	if len(req.Id) > 64 {
		return nil, status.Error(codes.InvalidArgument, "the id of the call is longer than 64 bytes")
	}
	resp := &apiv1.GuestPutEntryResponse{}
	err := a.change(ctx, req.Caller, func(l *core.Loop, r *job.Run) error {
		if err := core.Entry(l, r, req.Bucket, req.Key, true); err != nil {
			return err
		}
		if err := l.Guests.ErrIfNotPrimary(r.App); err != nil {
			return err
		}
		row, err := l.Guests.PutEntry(r.App, req)
		resp.Version = row.GetVersion()
		return err
	})
	switch {
	case errors.Is(err, core.NotPrimary{}):
		return a.s.cfg.Remote.Put(ctx, req.Caller.App, req)
	case err != nil:
		return nil, err
	}
	return resp, nil
}

func (a *guestAPI) DeleteEntry(ctx context.Context, req *apiv1.GuestDeleteEntryRequest) (*apiv1.GuestDeleteEntryResponse, error) {
	err := a.change(ctx, req.Caller, func(l *core.Loop, r *job.Run) error {
		if err := core.Entry(l, r, req.Bucket, req.Key, true); err != nil {
			return err
		}
		if err := l.Guests.ErrIfNotPrimary(r.App); err != nil {
			return err
		}
		return l.Guests.DeleteEntry(r.App, req)
	})
	if errors.Is(err, core.NotPrimary{}) {
		err = a.s.cfg.Remote.Delete(ctx, req.Caller.App, req)
	}
	return &apiv1.GuestDeleteEntryResponse{}, err
}

// Enqueue derives the id of a run without a key from the calling run and the sequence, so
// that a repeated call has the same run. The loop finds such a run if it is live or has just
// ended; for older ones Enqueue reads the history first.
func (a *guestAPI) Enqueue(ctx context.Context, req *apiv1.GuestEnqueueRequest) (*apiv1.GuestEnqueueResponse, error) {
	e, err := core.NewEnqueued(req.GetCaller().GetApp(), req)
	if err != nil {
		return nil, err
	}
	id, trace := job.RunID{}, ""
	if e.Key == "" {
		ended := false
		if ended, trace, err = a.endedBefore(ctx, req.Caller, e); ended {
			return &apiv1.GuestEnqueueResponse{Run: e.ID[:]}, nil
		}
	}
	if err == nil {
		err = a.change(ctx, req.Caller, func(l *core.Loop, r *job.Run) (err error) {
			trace = r.TraceParent
			if err := l.Guests.MayEnqueue(r, e); err != nil {
				return err
			}
			id, _, err = l.Guests.EnqueueFor(r.ID, r.TraceParent, e)
			return err
		})
	}
	switch {
	case errors.Is(err, core.Elsewhere{}):
		return a.s.cfg.Remote.Enqueue(ctx, req.Caller.App, req, trace)
	case err != nil:
		return nil, err
	}
	return &apiv1.GuestEnqueueResponse{Run: id[:]}, nil
}

// endedBefore reports whether the requested run is in the history. It fails if the caller may
// not enqueue the job. trace is the trace context of the caller's run.
func (a *guestAPI) endedBefore(ctx context.Context, c *apiv1.Caller, e *core.Enqueued) (ended bool, trace string, err error) {
	trace, err = core.Ask(ctx, a.s.loop, func(l *core.Loop) (string, error) {
		r, err := l.Guests.Caller(c)
		if err != nil {
			return "", err
		}
		trace = r.TraceParent
		return r.TraceParent, l.Guests.MayEnqueue(r, e)
	})
	if err != nil {
		return false, trace, err
	}
	ended, err = a.s.ended(ctx, e.App, e.ID)
	return ended, trace, err
}

func (a *guestAPI) Map(ctx context.Context, req *apiv1.GuestMapRequest) (*apiv1.GuestMapResponse, error) {
	size := 0
	for _, input := range req.Inputs {
		size += len(input)
	}
	if len(req.Inputs) > job.MaxMapBatch || size > job.MaxMapBytes {
		return nil, status.Errorf(codes.OutOfRange, "%d inputs of %d bytes, the limit of one call is %d and %d", len(req.Inputs), size, job.MaxMapBatch, job.MaxMapBytes)
	}
	err := a.change(ctx, req.Caller, func(l *core.Loop, r *job.Run) error { return l.Guests.MapParts(r, req.First, req.Inputs) })
	return &apiv1.GuestMapResponse{}, err
}

func (a *guestAPI) GetSecret(ctx context.Context, req *apiv1.GuestGetSecretRequest) (*apiv1.GuestGetSecretResponse, error) {
	row, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.SecretRow, error) {
		r, err := l.Guests.Caller(req.Caller)
		if err != nil {
			return nil, err
		}
		if !job.MayKnow(l.Guests.GrantsOfRun(r), req.Name) {
			return nil, core.NotGranted(r, "secret "+req.Name)
		}
		if row := l.Guests.Secret(r.App, req.Name); row != nil {
			return row, nil
		}
		return nil, core.NoSecret(r.App, req.Name)
	})
	if err != nil {
		return nil, err
	}
	value, err := a.s.OpenSecret(req.Caller.App, row)
	if err != nil {
		return nil, err
	}
	return &apiv1.GuestGetSecretResponse{Value: value}, nil
}
