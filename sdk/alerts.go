package sdk

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Alerts returns the alerts of an app that fire, the newest first.
func (c *Client) Alerts(ctx context.Context, app string) ([]*Alert, error) {
	var all []*Alert
	for req := (&apiv1.ListAlertsRequest{App: appOf(app)}); ; {
		r, err := c.alerts.ListAlerts(ctx, req)
		if all = append(all, r.GetAlerts()...); err != nil || r.NextPageToken == "" {
			return all, c.callError(ctx, "list alerts", err)
		}
		req.PageToken = r.NextPageToken
	}
}

// AcknowledgeAlert notes that the caller takes care of an alert, which is neither repeated nor
// escalated then. It fails with [ErrNotFound] if the alert does not fire.
func (c *Client) AcknowledgeAlert(ctx context.Context, app, id string) (*Alert, error) {
	r, err := c.alerts.AcknowledgeAlert(ctx, &apiv1.AcknowledgeAlertRequest{App: appOf(app), Id: id})
	return r, c.callError(ctx, "acknowledge alert "+id, err)
}

// Silence is a request to keep alerts from being told for a time.
type Silence struct {
	App    string
	Rule   string            // "": all rules
	Labels map[string]string // of groups, such as job; empty: all groups
	From   time.Time         // zero: now
	For    time.Duration     // from then on
	Reason string            // for people, at most 500 bytes
}

// SilenceAlerts begins a silence. Resolve messages of alerts that were told are still sent.
func (c *Client) SilenceAlerts(ctx context.Context, s Silence) (*AlertSilence, error) {
	req := &apiv1.CreateSilenceRequest{App: appOf(s.App), Rule: s.Rule, Labels: s.Labels, Duration: s.For.String(), Reason: s.Reason}
	if !s.From.IsZero() {
		req.From = timestamppb.New(s.From)
	}
	r, err := c.alerts.CreateSilence(ctx, req)
	return r, c.callError(ctx, "silence alerts", err)
}

// AlertSilences returns the silences that have not ended, the one that ends first first.
func (c *Client) AlertSilences(ctx context.Context, app string) ([]*AlertSilence, error) {
	r, err := c.alerts.ListSilences(ctx, &apiv1.ListSilencesRequest{App: appOf(app)})
	return r.GetSilences(), c.callError(ctx, "list silences", err)
}

// EndSilence ends a silence.
func (c *Client) EndSilence(ctx context.Context, app, id string) error {
	_, err := c.alerts.EndSilence(ctx, &apiv1.EndSilenceRequest{App: appOf(app), Id: id})
	return c.callError(ctx, "end silence "+id, err)
}

// AlertRules returns the alert rules of an app by name.
func (c *Client) AlertRules(ctx context.Context, app string) ([]*AlertRule, error) {
	var all []*AlertRule
	for req := (&apiv1.ListAlertRulesRequest{App: appOf(app)}); ; {
		r, err := c.alerts.ListAlertRules(ctx, req)
		if all = append(all, r.GetRules()...); err != nil || r.NextPageToken == "" {
			return all, c.callError(ctx, "list alert rules", err)
		}
		req.PageToken = r.NextPageToken
	}
}

// AlertChannels returns the alert channels of an app by name.
func (c *Client) AlertChannels(ctx context.Context, app string) ([]*AlertChannel, error) {
	var all []*AlertChannel
	for req := (&apiv1.ListAlertChannelsRequest{App: appOf(app)}); ; {
		r, err := c.alerts.ListAlertChannels(ctx, req)
		if all = append(all, r.GetChannels()...); err != nil || r.NextPageToken == "" {
			return all, c.callError(ctx, "list alert channels", err)
		}
		req.PageToken = r.NextPageToken
	}
}

// TestAlertChannel queues an example for a channel and returns its delivery. language is en, zh
// or "", which is that of the channel.
func (c *Client) TestAlertChannel(ctx context.Context, app, channel, language string) (*AlertDelivery, error) {
	r, err := c.alerts.TestAlertChannel(ctx, &apiv1.TestAlertChannelRequest{App: appOf(app), Channel: channel, Language: language})
	return r, c.callError(ctx, "test alert channel "+channel, err)
}

// PreviewAlert returns what a channel would send for an example of an event. It sends nothing and opens no
// secret. event is "failed" if it is empty, and language, en or zh, that of the channel.
func (c *Client) PreviewAlert(ctx context.Context, app, channel, event, language string) (*AlertPreview, error) {
	r, err := c.alerts.PreviewAlert(ctx, &apiv1.PreviewAlertRequest{App: appOf(app), Channel: channel, Event: event, Language: language})
	return r, c.callError(ctx, "preview alert channel "+channel, err)
}

// DeliveryQuery selects deliveries. Empty fields select all.
type DeliveryQuery struct {
	App     string
	Channel string
	State   string // waiting, delivered, refused, given_up or dropped
	Alert   string
}

// AlertDeliveries yields the deliveries of an app, the newest first: all that wait, and the last
// 1 000 that have ended. An error ends the sequence.
func (c *Client) AlertDeliveries(ctx context.Context, q DeliveryQuery) iter.Seq2[*AlertDelivery, error] {
	return func(yield func(*AlertDelivery, error) bool) {
		req := &apiv1.ListAlertDeliveriesRequest{App: appOf(q.App), Channel: q.Channel, State: q.State, Alert: q.Alert, PageSize: 200}
		for {
			r, err := c.alerts.ListAlertDeliveries(ctx, req)
			if err != nil {
				yield(nil, c.callError(ctx, "list alert deliveries", err))
				return
			}
			for _, d := range r.GetDeliveries() {
				if !yield(d, nil) {
					return
				}
			}
			if req.PageToken = r.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// RetryAlertDelivery queues a delivery again that was refused, given up or dropped.
func (c *Client) RetryAlertDelivery(ctx context.Context, app, id string) (*AlertDelivery, error) {
	r, err := c.alerts.RetryAlertDelivery(ctx, &apiv1.RetryAlertDeliveryRequest{App: appOf(app), Id: id})
	return r, c.callError(ctx, "retry alert delivery "+id, err)
}
