package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched"
)

// auditEvery is how often the refused calls become audit events.
const auditEvery = time.Minute

// recorder makes audit events about what no partition of this server records by itself.
type recorder struct {
	// note gives events to a partition that this server serves. If there is none now, they go to the
	// log.
	note func(context.Context, []audit.Event) error
	log  *slog.Logger
}

// awaitOwned is how long events wait for a partition that this server serves: it may be about to
// take one.
const awaitOwned = time.Second

// record makes events.
func (r *recorder) record(ctx context.Context, events ...audit.Event) {
	err := r.note(ctx, events)
	for end := time.Now().Add(awaitOwned); errors.Is(err, errServesNone) && ctx.Err() == nil && time.Now().Before(end); {
		select {
		case <-time.After(awaitOwned / 20):
		case <-ctx.Done():
		}
		err = r.note(ctx, events)
	}
	if err == nil {
		return
	}
	for _, e := range events {
		r.log.Warn("an event is not in the audit log", "error", err, "code", e.Code, "actor", e.By.GetAuthor(), "address", e.By.GetAddress(), "app", e.App, "object", e.Object, "count", max(e.Count, 1))
	}
}

// refusals makes refused calls audit events until ctx ends.
func (r *recorder) refusals(ctx context.Context, every time.Duration, refused *audit.Refusals) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if events := refused.Take(time.Now()); len(events) > 0 {
				r.record(ctx, events...)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// called makes the event of a call that has succeeded, if its changes have none.
func (r *recorder) called(ctx context.Context, method string, req any) {
	if passed := len(metadata.ValueFromIncomingContext(ctx, access.ActingHeader)) > 0; passed && method == apiv1.Backups_RunBackup_FullMethodName {
		return // the server that has passed the call on makes the event
	}
	if e, ok := audit.OfCall(method, req); ok {
		r.noted(ctx, e)
	}
}

// noted makes an event of the caller whose context it is.
func (r *recorder) noted(ctx context.Context, e audit.Row) {
	by := sched.AttributionOf(ctx)
	if by == nil {
		by = &apiv1.Attribution{}
	}
	r.record(context.WithoutCancel(ctx), audit.Event{By: by, Row: e})
}

// Unary implements [grpc.UnaryServerInterceptor].
func (r *recorder) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	if err == nil {
		r.called(ctx, info.FullMethod, req)
	}
	return resp, err
}

// Stream implements [grpc.StreamServerInterceptor]. A stream has its event at its beginning: a part of a
// backup is a backup.
func (r *recorder) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	r.called(s.Context(), info.FullMethod, nil)
	return next(srv, s)
}
