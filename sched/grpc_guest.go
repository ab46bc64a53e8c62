package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// guestAPI serves the calls of handlers (ADR 18). Each call is fenced: see loop.caller.
type guestAPI struct {
	apiv1.UnimplementedGuestServer
	s *Server
}

// change runs f on the loop with the run of the caller. It returns when the records of f are
// durable.
func (a *guestAPI) change(ctx context.Context, c *apiv1.Caller, f func(*loop, *job.Run) error) error {
	_, err := askDurable(ctx, a.s.loop, func(l *loop, answer func(struct{}, error)) {
		r, err := l.caller(c)
		if err == nil {
			err = f(l, r)
		}
		if err != nil {
			answer(struct{}{}, err)
			return
		}
		l.onDurable(func(err error) { answer(struct{}{}, err) })
	})
	return err
}

func (a *guestAPI) GetCheckpoint(ctx context.Context, req *apiv1.GuestGetCheckpointRequest) (*apiv1.GuestGetCheckpointResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.GuestGetCheckpointResponse, error) {
		r, err := l.caller(req.Caller)
		if err != nil {
			return nil, err
		}
		data, ok := l.slotOf(r).Checkpoint(r.ID)
		if !ok {
			return nil, status.Error(codes.NotFound, "no attempt of the run has left a checkpoint")
		}
		return &apiv1.GuestGetCheckpointResponse{Data: data}, nil
	})
}

func (a *guestAPI) SetCheckpoint(ctx context.Context, req *apiv1.GuestSetCheckpointRequest) (*apiv1.GuestSetCheckpointResponse, error) {
	err := a.change(ctx, req.Caller, func(l *loop, r *job.Run) error { return l.keepCheckpoint(r, req.Data) })
	return &apiv1.GuestSetCheckpointResponse{}, err
}

// entry fails if the bucket or key of a value is invalid, or the run's handler may not use it.
func entry(l *loop, r *job.Run, bucket, key string, write bool) error {
	if err := job.CheckKey(bucket, key); err != nil {
		return invalid(err)
	}
	if !job.MayUse(l.grantsOfRun(r), bucket, write) {
		what := "bucket " + bucket
		if write {
			what += " for writing"
		}
		return notGranted(r, what)
	}
	return nil
}

func (a *guestAPI) GetEntry(ctx context.Context, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	resp, err := ask(ctx, a.s.loop, func(l *loop) (*apiv1.GuestGetEntryResponse, error) {
		r, err := l.caller(req.Caller)
		if err == nil {
			err = entry(l, r, req.Bucket, req.Key, false)
		}
		if err == nil {
			err = l.toHome(r.App)
		}
		if err != nil {
			return nil, err
		}
		row := l.value(r.App, req.Bucket, req.Key)
		if row == nil {
			return nil, noEntry(req.Bucket, req.Key)
		}
		return &apiv1.GuestGetEntryResponse{Value: row.Value, Version: row.Version}, nil
	})
	if errors.Is(err, atHome{}) {
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
	err := a.change(ctx, req.Caller, func(l *loop, r *job.Run) error {
		if err := entry(l, r, req.Bucket, req.Key, true); err != nil {
			return err
		}
		if err := l.toHome(r.App); err != nil {
			return err
		}
		row, err := l.putEntry(r.App, req)
		resp.Version = row.GetVersion()
		return err
	})
	switch {
	case errors.Is(err, atHome{}):
		return a.s.cfg.Remote.Put(ctx, req.Caller.App, req)
	case err != nil:
		return nil, err
	}
	return resp, nil
}

// putEntry sets a value for a handler. The caller has checked that the handler may do so.
func (l *loop) putEntry(app string, req *apiv1.GuestPutEntryRequest) (*apiv1.ValueRow, error) {
	if err := l.busy(); err != nil {
		return nil, err
	}
	return l.putValue(&put{app: app, bucket: req.Bucket, key: req.Key, value: req.Value, expect: req.Expect, id: req.Id})
}

func (a *guestAPI) DeleteEntry(ctx context.Context, req *apiv1.GuestDeleteEntryRequest) (*apiv1.GuestDeleteEntryResponse, error) {
	err := a.change(ctx, req.Caller, func(l *loop, r *job.Run) error {
		if err := entry(l, r, req.Bucket, req.Key, true); err != nil {
			return err
		}
		if err := l.toHome(r.App); err != nil {
			return err
		}
		return l.deleteEntry(r.App, req)
	})
	if errors.Is(err, atHome{}) {
		err = a.s.cfg.Remote.Delete(ctx, req.Caller.App, req)
	}
	return &apiv1.GuestDeleteEntryResponse{}, err
}

// deleteEntry deletes a value for a handler. The caller has checked that the handler may do
// so.
func (l *loop) deleteEntry(app string, req *apiv1.GuestDeleteEntryRequest) error {
	if err := l.refuseChange(); err != nil {
		return status.Error(codes.Unavailable, status.Convert(err).Message())
	}
	return l.deleteValue(app, req.Bucket, req.Key, req.Expect)
}

// maxDelay bounds the delay with which a handler may enqueue a run.
const maxDelay = schedule.MaxInterval

// Enqueue derives the id of a run without a key from the calling run and the sequence, so
// that a repeated call has the same run. The loop finds such a run if it is live or has just
// ended; for older ones Enqueue reads the history first.
func (a *guestAPI) Enqueue(ctx context.Context, req *apiv1.GuestEnqueueRequest) (*apiv1.GuestEnqueueResponse, error) {
	e, err := newEnqueued(req.GetCaller().GetApp(), req)
	if err != nil {
		return nil, err
	}
	id, trace := job.RunID{}, ""
	if e.key == "" {
		ended := false
		if ended, trace, err = a.endedBefore(ctx, req.Caller, e); ended {
			return &apiv1.GuestEnqueueResponse{Run: e.id[:]}, nil
		}
	}
	if err == nil {
		err = a.change(ctx, req.Caller, func(l *loop, r *job.Run) (err error) {
			trace = r.TraceParent
			if err := l.mayEnqueue(r, e); err != nil {
				return err
			}
			id, _, err = l.enqueueFor(r.ID, r.TraceParent, e)
			return err
		})
	}
	switch {
	case errors.Is(err, elsewhere{}):
		return a.s.cfg.Remote.Enqueue(ctx, req.Caller.App, req, trace)
	case err != nil:
		return nil, err
	}
	return &apiv1.GuestEnqueueResponse{Run: id[:]}, nil
}

// newEnqueued validates a request from a handler of an app.
func newEnqueued(app string, req *apiv1.GuestEnqueueRequest) (*enqueued, error) {
	if err := job.CheckInput(len(req.Input)); err != nil {
		return nil, status.Error(codes.OutOfRange, err.Error())
	}
	e := &enqueued{
		app: req.App, name: req.Job, key: req.Key, input: req.Input, hasInput: req.HasInput, delay: time.Duration(req.DelayMs) * time.Millisecond,
	}
	e.app = cmp.Or(e.app, app)
	switch {
	case len(req.Key) > maxKeyBytes:
		return nil, status.Errorf(codes.OutOfRange, "the idempotency key is %d bytes, the limit is %d", len(req.Key), maxKeyBytes)
	case req.DelayMs < 0 || req.DelayMs > maxDelay.Milliseconds():
		return nil, status.Errorf(codes.OutOfRange, "delay_ms is %d, it must be 0 to %d", req.DelayMs, maxDelay.Milliseconds())
	case len(req.GetCaller().GetRun()) != len(job.RunID{}):
		return nil, status.Error(codes.InvalidArgument, "the caller has no run")
	}
	if e.key == "" {
		by := job.RunID(req.Caller.Run)
		e.id = job.OccurrenceID(e.app, e.name, by.Planned(), fmt.Sprintf("enqueue/%d/%s/%s", req.Sequence, app, by))
	}
	return e, nil
}

// maxKeyBytes bounds an idempotency key, in bytes.
const maxKeyBytes = 256

// endedBefore reports whether the requested run is in the history. It fails if the caller may
// not enqueue the job. trace is the trace context of the caller's run.
func (a *guestAPI) endedBefore(ctx context.Context, c *apiv1.Caller, e *enqueued) (ended bool, trace string, err error) {
	trace, err = ask(ctx, a.s.loop, func(l *loop) (string, error) {
		r, err := l.caller(c)
		if err != nil {
			return "", err
		}
		trace = r.TraceParent
		return r.TraceParent, l.mayEnqueue(r, e)
	})
	if err != nil {
		return false, trace, err
	}
	ended, err = a.s.ended(ctx, e.app, e.id)
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
	err := a.change(ctx, req.Caller, func(l *loop, r *job.Run) error { return l.mapParts(r, req.First, req.Inputs) })
	return &apiv1.GuestMapResponse{}, err
}

func (a *guestAPI) GetSecret(ctx context.Context, req *apiv1.GuestGetSecretRequest) (*apiv1.GuestGetSecretResponse, error) {
	row, err := ask(ctx, a.s.loop, func(l *loop) (*apiv1.SecretRow, error) {
		r, err := l.caller(req.Caller)
		if err != nil {
			return nil, err
		}
		if !job.MayKnow(l.grantsOfRun(r), req.Name) {
			return nil, notGranted(r, "secret "+req.Name)
		}
		if row := l.secret(r.App, req.Name); row != nil {
			return row, nil
		}
		return nil, noSecret(r.App, req.Name)
	})
	if err != nil {
		return nil, err
	}
	value, err := a.s.openSecret(req.Caller.App, row)
	if err != nil {
		return nil, err
	}
	return &apiv1.GuestGetSecretResponse{Value: value}, nil
}
