package core

import (
	"context"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// Config configures a loop. Journal and View are required.
type Config struct {
	ID    string // name of the server in the API and for hosts
	Epoch uint64 // of its ownership of the partition

	Now     func() time.Time // nil: time.Now. A turn reads it once
	Journal Journal
	View    *projection.View
	History History // nil: no run has ended before the loop began
	// HasModule reports whether the code of a module is on this server's disk.
	HasModule func(digest string) bool

	// Cluster says that the partition is one of several.
	Cluster bool
	Others  Others // the other partitions; nil: there are none
	// Gathered reports whether a broadcast of an app need not wait for further hosts to
	// connect; have is the number of hosts of the app that are connected. It must not
	// block. nil: every host is connected to every partition.
	Gathered func(app string, have int) bool

	// Publish gives the guard the tokens that the server has issued, after each change. It must not
	// block. nil: the partition does not have the access state.
	Publish func([]access.Credential)

	Sync      string        // what durable means for the journal: always, interval or os
	MaxLive   int           // bound of the runs that have not ended
	MaxApps   int           // bound of the apps of the partition; 0: none
	HostLease time.Duration // how long a host may be disconnected before its runs are lost
	Random    io.Reader     // makes the ids of triggered runs; it never fails
	Meter     metric.Meter  // nil: nothing is measured
	Logger    *slog.Logger
}

// Journal is what the loop needs of a [journal.Journal]. It may also be a
// [journal.Refuser] and a [journal.Orderly].
type Journal interface {
	Append(records []journal.Record, done func(error)) (last uint64, err error)
	AppendLazy(records []journal.Record) (last uint64, err error)
	Room() int64
	Read(from uint64, fn func(seq uint64, slot journal.Slot, body []byte) error) error
	Next() uint64
}

// History has the runs that have ended and are in the store.
type History interface {
	// Has reports whether there is or was a run with an id.
	Has(app string, id [16]byte) (bool, error)
}

// Others is what the loop needs of the other partitions of an app. Implementations are safe
// for concurrent use.
type Others interface {
	// CheckChanges lets the other partitions check a set as far as it concerns them.
	CheckChanges(ctx context.Context, app string, set *apiv1.ApplyChangeSetRequest) (*apiv1.ChangeSetCheck, error)
	// ApplyChanges applies changes in the partition that has their slot. It returns when they
	// are durable.
	ApplyChanges(ctx context.Context, app string, share *apiv1.ChangeSetShare) error
	// CopyState returns when the other partitions have a copy of the shared state of the app.
	CopyState(ctx context.Context, app string) error
}

// ended reports whether the history has a run.
func (c *Config) ended(app string, id job.RunID) (bool, error) {
	if c.History == nil {
		return false, nil
	}
	return c.History.Has(app, id)
}
