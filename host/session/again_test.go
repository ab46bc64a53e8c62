package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestAsksAgainSoon: a host that is refused because another server owns the partition
// tries again soon. A host that finds no server waits longer each time.
func TestAsksAgainSoon(t *testing.T) {
	moved := func(a *apiv1.Assignment) error {
		s, err := status.New(codes.FailedPrecondition, "it is elsewhere").WithDetails(a)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("join: %w", errors.Join(s.Err(), context.Canceled))
	}
	for name, c := range map[string]struct {
		err      error
		min, max int // attempts within three seconds
	}{
		"elsewhere":           {moved(&apiv1.Assignment{Server: "s", Address: "h:1"}), 25, 35},
		"nobody is named":     {moved(&apiv1.Assignment{}), 5, 8},
		"refused":             {status.Error(codes.FailedPrecondition, "no"), 5, 8},
		"away":                {status.Error(codes.Unavailable, "gone"), 5, 8},
		"nothing of a server": {errors.New("no route"), 5, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			w, err := New(Config{
				ID: "h", Slots: 1, DrainTimeout: time.Millisecond,
				Run: func(context.Context, *Attempt) *apiv1.TaskResult { return nil },
				Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
					n++
					return nil, nil, c.err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := w.Run(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n < c.min || n > c.max {
				t.Errorf("%s: %d attempts within three seconds, want %d to %d", name, n, c.min, c.max)
			}
		})
	}
}
