package sched

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// Once is one request for runs that a server may have to make several times: at
// itself, and at whichever server owns the partition by then. The ids of the runs are
// fixed before the first try, so that a later one finds what an earlier one did.
// Safe for concurrent use.
type Once struct {
	at    time.Time
	salt  [9]byte
	tried atomic.Bool
}

type onceKey struct{}

// WithOnce returns a context with which a request for runs can be made again.
func WithOnce(ctx context.Context, at time.Time) (context.Context, *Once) {
	o := &Once{at: at}
	rand.Read(o.salt[:]) //nolint:errcheck // it never fails
	return context.WithValue(ctx, onceKey{}, o), o
}

// ID returns the id of the run of a job.
func (o *Once) ID(app, name string) job.RunID {
	return job.OccurrenceID(appOf(app), name, o.at, string(o.salt[:]))
}

// NewRunID returns an id for the run of a trigger without a key that is accepted at
// that time. It is random, so that no two are the same.
func NewRunID(app, name string, at time.Time) job.RunID {
	return job.OccurrenceID(appOf(app), name, at, rand.Text())
}

// At returns the planned time of the runs.
func (o *Once) At() time.Time { return o.at }

// Tried reports whether the request has reached a scheduler, so that it may have
// been carried out.
func (o *Once) Tried() bool { return o.tried.Load() }

// RunsOnce reports whether a request with that context can be made again.
func RunsOnce(ctx context.Context) bool { return onceOf(ctx) != nil }

// fix gives a trigger without a key its id, if the request that it is part of has one.
func (o *Once) fix(t *trigger, again bool) {
	if o != nil && t.key == "" {
		t.run, t.again = o.ID(t.app, t.name), again
	}
}

// try notes that the request is made, and reports whether it was made before.
func (o *Once) try() bool { return o != nil && o.tried.Swap(true) }

func onceOf(ctx context.Context) *Once {
	o, _ := ctx.Value(onceKey{}).(*Once)
	return o
}
