package api

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hashing bounds the hashes of passwords that are computed at a time: each takes 64 MiB and a
// processor. waiting bounds the calls that wait for their turn.
const (
	hashing = 2
	waiting = 16
)

// hashes is the turn of calls that compute a hash.
type hashes struct {
	turn  chan struct{} // capacity hashing
	queue chan struct{} // capacity waiting
}

func newHashes() hashes {
	return hashes{make(chan struct{}, hashing), make(chan struct{}, waiting)}
}

// do calls f when it is the turn of the caller.
func (h *hashes) do(ctx context.Context, f func() error) error {
	select {
	case h.queue <- struct{}{}:
		defer func() { <-h.queue }()
	default:
		return status.Error(codes.ResourceExhausted, "too many sign-ins at a time: try again in a moment")
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
		return f()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
