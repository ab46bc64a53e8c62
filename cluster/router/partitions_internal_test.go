package router

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/modules"
)

// served is a partition that this server owns.
type served struct{ services *Services }

func (p served) Serving() *Services                  { return p.services }
func (served) Code() *modules.Store                  { return nil }
func (served) CopyOut(context.Context, string) error { return nil }

// A request to another partition ends when this server loses its own one. The error tells the
// caller to try again, and is never the cancellation of a context that the caller does not know.
func TestRequestEndsWithThePartition(t *testing.T) {
	services := &Services{Gone: make(chan struct{})}
	x := &remote{&Router{Forwarder: Forwarder{Partitions: map[string]Hosted{"main": served{services}}}}, "main"}
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}

	caller, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.whileOwned(caller, waits); status.FromContextError(err).Code() != codes.Canceled {
		t.Errorf("a caller that canceled its call got %v", err)
	}
	if err := x.whileOwned(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("an answered request failed: %v", err)
	}

	err := x.whileOwned(t.Context(), func(ctx context.Context) error {
		close(services.Gone)
		return waits(ctx)
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the partition left during the request: %v, want Unavailable", err)
	}
}
