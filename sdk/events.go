package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

// EventSources returns the event sources of an app by name.
func (c *Client) EventSources(ctx context.Context, app string) ([]*EventSource, error) {
	r, err := c.events.ListEventSources(ctx, &apiv1.ListEventSourcesRequest{App: appOf(app)})
	return r.GetSources(), c.callError(ctx, "list event sources", err)
}

// Event is an event of CloudEvents 1.0.
type Event struct {
	ID      string    // unique for Source; the same at every attempt
	Source  string    // what sends it, a path or an address such as /shop/orders
	Type    string    // for example com.example.order.paid
	Subject string    // "": none
	Time    time.Time // zero: none
	Data    any       // anything that encodes as JSON; nil: none
}

// MarshalJSON returns the event in the JSON format of CloudEvents.
func (e Event) MarshalJSON() ([]byte, error) {
	m := map[string]any{"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Type}
	if e.Subject != "" {
		m["subject"] = e.Subject
	}
	if !e.Time.IsZero() {
		m["time"] = e.Time.Format(time.RFC3339Nano)
	}
	if e.Data != nil {
		m["data"] = e.Data
	}
	return json.Marshal(m)
}

// PublishEvent sends an event by an event source, signed with its key: "whsec_" and base64. It returns
// the runs that the event has started, once they are durable. An event that is sent again starts
// nothing again. The call needs no token. A key that signed nothing valid gives [ErrUnauthenticated],
// and a paused source [ErrDenied].
func (c *Client) PublishEvent(ctx context.Context, app, source, key string, e Event) (runs []string, err error) {
	keys, err := webhook.Keys(key)
	if err != nil {
		return nil, fmt.Errorf("publish event: the key: %w", err)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("publish event: %w", err)
	}
	signed := webhook.Sign(e.ID, time.Now(), body, keys...)
	r, err := c.events.PublishEvent(ctx, &apiv1.PublishEventRequest{App: appOf(app), Source: source, Body: body, Headers: map[string]string{
		"content-type": "application/cloudevents+json", webhook.IDHeader: signed.ID, webhook.TimestampHeader: signed.Timestamp, webhook.SignatureHeader: signed.Signature,
	}})
	return r.GetRuns(), c.callError(ctx, "publish event", err)
}
