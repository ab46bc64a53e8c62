// Package sender sends the messages of alerts that the owner of their state hands out.
//
// It has no state that matters: a message that was handed out when its process ended is
// handed out again, with the same id, by the next owner.
package sender

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/state"
)

// maxSending bounds the messages that are sent at the same time.
const maxSending = 16

// Source is the owner of the state of alerts. It is safe for concurrent use.
type Source interface {
	// Take returns messages that may be sent now, when it is durable that they must be, and the time
	// to ask again; zero: after the next change.
	Take(ctx context.Context) ([]state.Work, time.Time, error)
	// Open returns a channel as it is defined now.
	Open(ctx context.Context, app, name string) (channel.Channel, error)
	// Done makes the result of a message durable.
	Done(ctx context.Context, w state.Work, at time.Time, r channel.Result) error
}

// Sender sends messages.
type Sender struct {
	source    Source
	publicURL string
	kick      chan struct{}
	log       *slog.Logger
	attempts  metric.Int64Counter
}

// New returns a sender. publicURL is where people reach the console; "": messages have no links.
func New(source Source, publicURL string, meter metric.Meter, log *slog.Logger) (*Sender, error) {
	attempts, err := meter.Int64Counter("wheelwork_alert_attempts", metric.WithDescription("Attempts to send a message of alerts, by the kind of the channel and the verdict."))
	if err != nil {
		return nil, err
	}
	return &Sender{source: source, publicURL: publicURL, kick: make(chan struct{}, 1), log: log, attempts: attempts}, nil
}

// Notify says that there may be something to send. It does not block.
func (s *Sender) Notify() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends or the source fails. It waits for the attempts that are under way.
func (s *Sender) Run(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	free := make(chan struct{}, maxSending)
	timer := time.NewTimer(0) // what a former owner has left
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		work, next, err := s.source.Take(ctx)
		if err != nil {
			return
		}
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
		for _, w := range work {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			sending.Go(func() {
				defer func() { <-free; s.Notify() }()
				s.send(ctx, w)
			})
		}
	}
}

// send makes one attempt, and reports it also when ctx ended meanwhile.
func (s *Sender) send(ctx context.Context, w state.Work) {
	kind, r := s.attempt(ctx, w)
	if ctx.Err() != nil && r.Verdict == channel.Retry { // it was interrupted: the next owner sends it
		return
	}
	s.attempts.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", string(kind)), attribute.String("verdict", string(r.Verdict))))
	if r.Verdict != channel.Delivered {
		s.log.Warn("a message of alerts was not delivered", "app", w.App, "channel", w.Channel, "message", w.Message.ID, "verdict", r.Verdict, "status", r.Status, "code", r.Code, "reason", r.Reason)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer cancel()
	if err := s.source.Done(ctx, w, time.Now(), r); err != nil {
		s.log.Warn("the delivery of a message of alerts could not be recorded, and the message is sent again", "app", w.App, "channel", w.Channel, "message", w.Message.ID, "error", err)
	}
}

// reportTime bounds the time in which a result is recorded.
const reportTime = 10 * time.Second

func (s *Sender) attempt(ctx context.Context, w state.Work) (channel.Kind, channel.Result) {
	c, err := s.source.Open(ctx, w.App, w.Channel)
	if err != nil {
		verdict := channel.Retry
		if errors.Is(err, state.ErrNoChannel) {
			verdict = channel.Refused
		}
		return "", channel.Result{Verdict: verdict, Reason: notification.Cut(err.Error(), notification.MaxText)}
	}
	if part, ok := c.(channel.Partial); ok && len(w.Rest) > 0 {
		c = part.Only(w.Rest)
	}
	return c.Kind(), c.Send(ctx, time.Now(), s.linked(w))
}

// linked returns the message with links to the console. They are no part of the state, because the
// address of the console may change.
func (s *Sender) linked(w state.Work) notification.Message {
	m := w.Message
	if s.publicURL == "" {
		return m
	}
	m.Notifications = slices.Clone(m.Notifications)
	app := s.publicURL + "/apps/" + url.PathEscape(w.App)
	for i := range m.Notifications {
		n := &m.Notifications[i]
		n.Link = app + "/alerts"
		n.Incidents = slices.Clone(n.Incidents)
		for k := range n.Incidents {
			if n.Incidents[k].Run != "" {
				n.Incidents[k].Link = app + "/runs/" + n.Incidents[k].Run
			}
		}
	}
	return m
}
