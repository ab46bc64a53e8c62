package api

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/event"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type eventsAPI struct {
	apiv1.UnimplementedEventsServer
	s     *Services
	rates rates
}

func (a *eventsAPI) ListEventSources(ctx context.Context, req *apiv1.ListEventSourcesRequest) (*apiv1.ListEventSourcesResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListEventSourcesResponse, error) {
		return &apiv1.ListEventSourcesResponse{Sources: l.Commands.EventSources(core.AppOf(req.App))}, nil
	})
}

// The results of events, for the metric.
const (
	eventsAccepted  = "accepted"
	eventsUnsigned  = "unsigned"  // no key of the source has signed the message, or there is no source
	eventsLate      = "late"      // the time of the message is too far away
	eventsPaused    = "paused"    // the source is paused
	eventsMalformed = "malformed" // or of a type that the source does not admit
	eventsOverRate  = "over_rate"
	eventsFailed    = "failed" // the server had no room for the runs
)

// PublishEvent implements [apiv1.EventsServer]. The signature is checked before anything of the message
// is read.
func (a *eventsAPI) PublishEvent(ctx context.Context, req *apiv1.PublishEventRequest) (*apiv1.PublishEventResponse, error) {
	m := &core.EventMessage{App: core.AppOf(req.App), Source: req.Source, TraceParent: TraceParent(ctx)}
	result, err := a.publish(ctx, m, req)
	a.s.loop.Stats.CountEvents(result, max(len(m.Events), 1))
	if err != nil {
		return nil, err
	}
	return &apiv1.PublishEventResponse{Runs: m.Runs}, nil
}

func (a *eventsAPI) publish(ctx context.Context, m *core.EventMessage, req *apiv1.PublishEventRequest) (result string, err error) {
	if len(req.Body) > event.MaxBody { // before it is hashed
		return eventsMalformed, status.Errorf(codes.InvalidArgument, "the body has %d bytes, the limit is %d", len(req.Body), event.MaxBody)
	}
	source, result, err := a.verify(ctx, m, req)
	if err != nil {
		return result, err
	}
	if source.Paused {
		return eventsPaused, status.Errorf(codes.PermissionDenied, "event source %s is paused: it refuses events until its definition has no paused", source.Name)
	}
	events, err := event.Parse(req.Headers, req.Body)
	if err != nil {
		return eventsMalformed, core.Invalid(err)
	}
	for _, e := range events {
		if !event.Admits(source, e.Type) {
			return eventsMalformed, status.Errorf(codes.PermissionDenied, "event source %s does not admit events of the type %.100q: its definition lists the types", source.Name, e.Type)
		}
		if err := job.CheckInput(len(e.JSON)); err != nil {
			return eventsMalformed, status.Errorf(codes.InvalidArgument, "event %.100q: %v", e.ID, err)
		}
	}
	if wait := a.rates.take(m.App, m.Source, event.RateOf(source), len(events), time.Now()); wait > 0 {
		return eventsOverRate, core.Refused(codes.ResourceExhausted, "event source "+source.Name+" admits no more events now: send this one again later", &apiv1.Refusal{
			Reason: core.ReasonBusy, RetryAfterS: int32(math.Ceil(wait.Seconds())),
		})
	}
	m.Events = events
	for done := false; !done; {
		if done, err = core.Change(ctx, a.s.loop, func(l *core.Loop) (bool, error) { return l.Commands.StartJobs(m) }); err != nil {
			return eventsFailed, err
		}
	}
	return eventsAccepted, nil
}

// decoy is the key with which messages for unknown sources are checked: the answer takes as long as for
// a wrong signature.
var decoy = make([]byte, 32)

// verify returns the source of a message if one of its keys has signed it.
func (a *eventsAPI) verify(ctx context.Context, m *core.EventMessage, req *apiv1.PublishEventRequest) (source *apiv1.EventSource, result string, err error) {
	type found struct {
		source  *apiv1.EventSource
		secrets []*apiv1.SecretRow
	}
	f, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (f found, err error) {
		if f.source = l.Commands.SourceOfEvents(m.App, m.Source); f.source == nil {
			return f, nil
		}
		for _, name := range event.SecretsOf(f.source) {
			if row := l.Guests.Secret(m.App, name); row != nil {
				f.secrets = append(f.secrets, row)
			}
		}
		return f, nil
	})
	if err != nil {
		return nil, eventsFailed, err
	}
	var keys [][]byte
	for _, row := range f.secrets {
		text, err := a.s.OpenSecret(m.App, row)
		if err != nil {
			continue // it was logged
		}
		if of, err := webhook.Keys(string(text)); err == nil {
			keys = append(keys, of...)
		}
	}
	trusted := len(keys) > 0
	if !trusted {
		keys = [][]byte{decoy}
	}
	sent := webhook.Headers{ID: req.Headers[webhook.IDHeader], Timestamp: req.Headers[webhook.TimestampHeader], Signature: req.Headers[webhook.SignatureHeader]}
	err = sent.Verify(time.Now(), req.Body, keys...)
	var late *webhook.TimeError
	switch {
	case trusted && errors.As(err, &late):
		return nil, eventsLate, status.Error(codes.Unauthenticated, late.Error())
	case !trusted || err != nil:
		return nil, eventsUnsigned, status.Errorf(codes.Unauthenticated, "app %.128s has no event source %.128q whose key has signed this message: sign %s.%s.BODY with the key of the source, and name the source as ?source=NAME", m.App, m.Source, webhook.IDHeader, webhook.TimestampHeader)
	}
	return f.source, "", nil
}

// rates bounds how many events each source starts jobs with. The zero value has admitted none.
type rates struct {
	mu sync.Mutex
	of map[[2]string]*bucket
}

// bucket has the events that a source may send at once. It is refilled with time.
type bucket struct {
	left float64
	at   time.Time
}

// take admits n events, and returns 0, or refuses them, and returns how long the sender has to wait. A
// source that was silent for a second may send as many at once as it may in a second, and a batch that
// is larger when it has not sent anything for so long.
func (r *rates) take(app, source string, rate, n int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[[2]string]*bucket{}
	}
	full := float64(rate)
	b := r.of[[2]string{app, source}]
	if b == nil {
		b = &bucket{full, now}
		r.of[[2]string{app, source}] = b
	}
	b.left, b.at = min(full, b.left+full*max(now.Sub(b.at).Seconds(), 0)), now
	if need := min(float64(n), full); b.left < need {
		return max(time.Duration((need-b.left)/full*float64(time.Second)), time.Millisecond)
	}
	b.left -= float64(n)
	return 0
}
