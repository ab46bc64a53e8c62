package sched

import (
	"context"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// The names of sched/core and sched/api that the users of a [Server] need.
type (
	// Load is the load of a server as it reports it to the nameserver and the balancer.
	Load = core.Load
	// Share describes the sub-app that one partition has.
	Share = core.Share
	// HostDemand is the hosts that a partition has and those that it still needs.
	HostDemand = core.HostDemand
	// HostCapacity is what one connected host can execute.
	HostCapacity = core.HostCapacity
	// MovedError says that a slot is in another partition or is moving.
	MovedError = core.MovedError
	// BusyError says why a slot cannot leave now.
	BusyError = core.BusyError
	// Remote calls the servers of other partitions.
	Remote = api.Remote
	// Ingress accepts commands that are applied later.
	Ingress = api.Ingress
	// ModuleInfo is what the upload verifier finds in a module.
	ModuleInfo = api.ModuleInfo
	// Trial is one call of a handler of a script that is not stored.
	Trial = api.Trial
	// Tried is the result of a Trial.
	Tried = api.Tried
	// TriedLine is a line of the log of a Trial.
	TriedLine = api.TriedLine
	// Once identifies a request for runs that a server may have to repeat.
	Once = api.Once
	// Page counts the bytes of the elements of one page of a list.
	Page = api.Page
)

// MovedText is the beginning of the text of a [MovedError], see [core.MovedText].
const MovedText = core.MovedText

// OnSlot returns a context with which each call fails with a [MovedError] if the slot is not
// here, see [core.OnSlot].
func OnSlot(ctx context.Context, app string, slot uint8) context.Context {
	return core.OnSlot(ctx, app, slot)
}

// OffSlot returns a context without the condition of [OnSlot].
func OffSlot(ctx context.Context) context.Context { return core.OffSlot(ctx) }

// WithOnce returns a context with which a request for runs can be repeated, see
// [api.WithOnce].
func WithOnce(ctx context.Context, at time.Time) (context.Context, *Once) {
	return api.WithOnce(ctx, at)
}

// RunsOnce reports whether a request with that context can be repeated.
func RunsOnce(ctx context.Context) bool { return api.RunsOnce(ctx) }

// NewRunID returns a random id for the run of a trigger that has no idempotency key and is
// accepted at that time.
func NewRunID(app, name string, at time.Time) job.RunID { return api.NewRunID(app, name, at) }

// TraceParent returns the W3C trace context of a call, see [api.TraceParent].
func TraceParent(ctx context.Context) string { return api.TraceParent(ctx) }

// WaitTime parses how long a trigger waits for the end of its run, see [api.WaitTime].
func WaitTime(s string) (time.Duration, error) { return api.WaitTime(s) }

// AuditPage returns the number of events on a page of a list of audit events.
func AuditPage(req *apiv1.ListAuditEventsRequest) int { return api.AuditPage(req) }

// AttributionOf returns the attribution of a call; nil: it has none.
func AttributionOf(ctx context.Context) *apiv1.Attribution { return core.AttributionOf(ctx) }
