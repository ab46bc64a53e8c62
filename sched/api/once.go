package api

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// Once identifies a request for runs that a server may have to repeat, at itself or at
// the server that owns the partition by then. The ids of the runs are fixed before the
// first try, so that a later try finds the runs that an earlier one has made (ADR 32).
// Once is safe for concurrent use.
type Once struct {
	at    time.Time
	salt  [9]byte
	tried atomic.Bool
}

type onceKey struct{}

// WithOnce returns a context with which a request for runs can be repeated. at is the
// planned time of the runs.
func WithOnce(ctx context.Context, at time.Time) (context.Context, *Once) {
	o := &Once{at: at}
	rand.Read(o.salt[:]) //nolint:errcheck // it never fails
	return context.WithValue(ctx, onceKey{}, o), o
}

// ID returns the id of the request's run of a job, the same for each try.
func (o *Once) ID(app, name string) job.RunID {
	return job.OccurrenceID(core.AppOf(app), name, o.at, string(o.salt[:]))
}

// NewRunID returns a random id for the run of a trigger that has no idempotency key and
// is accepted at that time.
func NewRunID(app, name string, at time.Time) job.RunID {
	return job.OccurrenceID(core.AppOf(app), name, at, rand.Text())
}

// At returns the planned time of the runs.
func (o *Once) At() time.Time { return o.at }

// Tried reports whether the request has reached a scheduler, which may have executed it.
func (o *Once) Tried() bool { return o.tried.Load() }

// RunsOnce reports whether a request with that context can be repeated.
func RunsOnce(ctx context.Context) bool { return onceOf(ctx) != nil }

// fix sets the id of a trigger that has no key. again says that the run may exist
// already. A nil receiver does nothing.
func (o *Once) fix(t *core.Trigger, again bool) {
	if o != nil && !t.HasKey() {
		t.Run, t.Again = o.ID(t.App, t.Name), again
	}
}

// try records a try of the request, and reports whether there was one before.
func (o *Once) try() bool { return o != nil && o.tried.Swap(true) }

func onceOf(ctx context.Context) *Once {
	o, _ := ctx.Value(onceKey{}).(*Once)
	return o
}
