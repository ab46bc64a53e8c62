// Package delivery carries audit events from a server to other systems: the oldest first, each at least
// once, and over restarts of either side.
//
// A [Follower] reads pages of events, gives them to a [Receiver], and then stores in a file up to where
// they were delivered. A process that ends in between delivers the events of that page again. The
// partition and the sequence of an event tell the receiver which ones it has.
package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	// every is how often a follower that has all events looks for further ones.
	every = 2 * time.Second
	// callTimeout bounds one call of the server.
	callTimeout = time.Minute

	firstPause   = time.Second // after a failure; it doubles with each further one
	longestPause = time.Minute
	// longestRetryAfter bounds the pause that a receiver asks for.
	longestRetryAfter = time.Hour

	// GapCode is the code of an event that replaces those missing from the log.
	GapCode = "audit.gap"
)

// Receiver takes events.
type Receiver interface {
	// Deliver hands over the first events of a list, at least one, and returns their number when the
	// receiver has them. After an error the follower calls it again with the same events, unless the
	// error is a [FinalError].
	Deliver(ctx context.Context, events []*sdk.AuditEvent) (n int, err error)
	Close() error
}

// FinalError is an error that another attempt does not mend. Its text says what does.
type FinalError struct{ error }

// Unwrap returns the reason.
func (e *FinalError) Unwrap() error { return e.error }

// Final makes an error final.
func Final(err error) error { return &FinalError{err} }

func final(format string, args ...any) error { return Final(fmt.Errorf(format, args...)) }

// laterError is the failure of a receiver that says when to try again.
type laterError struct {
	error
	after time.Duration
}

// Source is the part of [sdk.Client] that a follower uses.
type Source interface {
	AuditEventsAfter(ctx context.Context, q sdk.AuditQuery, after string, size int) (*sdk.AuditPage, error)
}

// Follower carries events.
type Follower struct {
	From  Source
	Query sdk.AuditQuery // without Until
	To    Receiver
	State *State                           // nil: it begins with the oldest event each time
	Size  int                              // of a page, at most 1000 events
	Once  bool                             // Run ends when all events are delivered
	Note  func(format string, args ...any) // tells people about failures and gaps
}

// Run carries events until ctx ends, which is no error, or one cannot be delivered.
func (f *Follower) Run(ctx context.Context) error {
	q, after := f.Query, ""
	if f.State != nil {
		if err := f.State.begin(&q); err != nil {
			return err
		}
		after = f.State.after()
	}
	for {
		page, err := f.step(ctx, q, after)
		switch {
		case errors.Is(err, context.Canceled) && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !page.More && f.Once:
			return nil
		case !page.More && !wait.For(ctx, every):
			return ended(ctx)
		}
		after = page.After
	}
}

// ended returns the reason why ctx ended if that is a failure.
func ended(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// step reads one page, delivers it, and stores that.
func (f *Follower) step(ctx context.Context, q sdk.AuditQuery, after string) (page *sdk.AuditPage, err error) {
	err = f.persist(ctx, func() (err error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		page, err = f.From.AuditEventsAfter(call, q, after, f.Size)
		return err
	})
	if err != nil {
		return nil, err
	}
	for events := f.complete(page); len(events) > 0; {
		if err := f.persist(ctx, func() error {
			n, err := f.To.Deliver(ctx, events)
			events = events[n:]
			return err
		}); err != nil {
			return nil, err
		}
	}
	if f.State == nil || page.After == after {
		return page, nil
	}
	return page, f.persist(ctx, func() error { return f.State.save(page.After) })
}

// persist repeats an action until it succeeds, fails for good, or ctx ends.
func (f *Follower) persist(ctx context.Context, do func() error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := do()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case isFinal(err):
			return err
		}
		d := pause/2 + rand.N(pause/2+1)
		var later *laterError
		if errors.As(err, &later) {
			d = max(d, min(later.after, longestRetryAfter))
		}
		f.Note("%v; trying again in %v", err, d.Round(100*time.Millisecond))
		if !wait.For(ctx, d) {
			return ctx.Err()
		}
	}
}

// isFinal reports whether another attempt fails in the same way.
func isFinal(err error) bool {
	for _, refusal := range []error{sdk.ErrDenied, sdk.ErrUnauthenticated, sdk.ErrInvalid, sdk.ErrPrecondition} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return errors.As(err, new(*FinalError))
}

// complete returns the events of a page, with one for each gap, before the events that follow it.
func (f *Follower) complete(page *sdk.AuditPage) []*sdk.AuditEvent {
	events := slices.Clone(page.Events)
	for _, g := range page.Gaps {
		e := gapEvent(g)
		f.Note("%s", e.Message)
		at := slices.IndexFunc(events, func(x *sdk.AuditEvent) bool { return x.Partition == g.Partition && x.Sequence > g.Last })
		if at < 0 {
			at = len(events)
		}
		events = slices.Insert(events, at, e)
	}
	return events
}

func gapEvent(g *sdk.AuditGap) *sdk.AuditEvent {
	what := fmt.Sprintf("%d to %d", g.First, g.Last)
	return &sdk.AuditEvent{
		Time: timestamppb.Now(), Code: GapCode, Object: what, Outcome: "failed", Count: int64(g.Last - g.First + 1), Partition: g.Partition, Sequence: g.Last,
		Message: fmt.Sprintf("the audit log no longer has the events %s of the partition %s: they were removed or damaged before they were delivered", what, g.Partition),
	}
}

// encode returns an event as one line of JSON without its end, as `wheelwork audit list -o jsonl` prints it.
func encode(e *sdk.AuditEvent) ([]byte, error) {
	raw, err := output.Message(e, nil).JSON()
	var b bytes.Buffer
	if err == nil {
		err = json.Compact(&b, raw)
	}
	if err != nil {
		return nil, final("the event %d of the partition %s cannot be encoded: %v", e.Sequence, e.Partition, err)
	}
	return b.Bytes(), nil
}

// lines returns events as lines of JSON.
func lines(events []*sdk.AuditEvent) ([]byte, error) {
	var all []byte
	for _, e := range events {
		line, err := encode(e)
		if err != nil {
			return nil, err
		}
		all = append(append(all, line...), '\n')
	}
	return all, nil
}
