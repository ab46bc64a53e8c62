package core

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ErrEnded is the error of calls that come when the loop ends, or has ended.
var ErrEnded = status.Error(codes.Unavailable, "the server is shutting down: try again in a moment")

// Ask runs f on the loop, and returns its answer when the state that f has read is
// durable. So no caller learns of a state that a crash could undo.
func Ask[T any](ctx context.Context, l *Loop, f func(*Loop) (T, error)) (T, error) {
	return AskDurable(ctx, l, func(l *Loop, answer func(T, error)) {
		v, err := f(l)
		l.commits.onDurable(func(lost error) { answer(v, cmp.Or(err, lost)) })
	})
}

// Change is ask for a function that writes records. An error of f is returned at once.
func Change[T any](ctx context.Context, l *Loop, f func(*Loop) (T, error)) (T, error) {
	return AskDurable(ctx, l, func(l *Loop, answer func(T, error)) {
		v, err := f(l)
		if err != nil {
			answer(v, err)
			return
		}
		l.commits.onDurable(func(err error) { answer(v, err) })
	})
}

// AskDurable runs f on the loop and returns what f passes to answer. f calls answer
// exactly once, at once or later. f does not run if the slot of OnSlot is not in this
// partition. It runs again later if it changes nothing because a change set holds the app.
func AskDurable[T any](ctx context.Context, l *Loop, f func(l *Loop, answer func(T, error))) (T, error) {
	type reply struct {
		v   T
		err error
	}
	ch := make(chan reply, 1)
	var zero T
	claim, claims := ctx.Value(claimKey{}).(claim)
	by := AttributionOf(ctx)
	var run func(l *Loop)
	run = func(l *Loop) {
		if claims {
			if err := l.Moves.claimed(claim); err != nil {
				ch <- reply{zero, err}
				return
			}
		}
		if by != nil {
			l.commits.by = by
			defer func() { l.commits.by = byServer }()
		}
		f(l, func(v T, err error) {
			if h := holdOf(err); h != nil {
				l.Holds.wait(h, func(l *Loop) {
					if ctx.Err() == nil {
						run(l)
					}
				})
				return
			}
			ch <- reply{v, err}
		})
	}
	if !l.Mail.Do(run) {
		return zero, ErrEnded
	}
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		return zero, status.FromContextError(ctx.Err()).Err()
	case <-l.Mail.Done:
		select {
		case r := <-ch:
			return r.v, r.err
		default:
			return zero, ErrEnded
		}
	}
}

type attributionKey struct{}

// WithAttribution returns a context whose calls change definitions with an attribution, which is
// immutable. Default: that of the server itself.
func WithAttribution(ctx context.Context, c *apiv1.Attribution) context.Context {
	return context.WithValue(ctx, attributionKey{}, c)
}

// AttributionOf returns the attribution of a context; nil: it has none.
func AttributionOf(ctx context.Context) *apiv1.Attribution {
	c, _ := ctx.Value(attributionKey{}).(*apiv1.Attribution)
	return c
}
