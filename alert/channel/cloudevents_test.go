package channel_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/event"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

// TestCloudEventsOfARun checks the request of one run in both modes, its signature, and that the parser of
// event sources reads the same event from both.
func TestCloudEventsOfARun(t *testing.T) {
	n := notification.Notification{
		ID: "n-1", Alert: "a-1", Rule: "warehouse", App: "shop", Event: "succeeded", Severity: notification.Info, State: notification.Firing,
		Language: notification.English, Labels: map[string]string{"run": "0001"}, Count: 1, Since: began, At: began,
		Incidents: []notification.Incident{{Job: "nightly", Run: "0001", At: began, Link: "https://wheelwork.example/runs/0001"}},
	}
	for _, mode := range []string{channel.Structured, channel.Binary} {
		c := over(t, channel.CloudEvents{URL: "https://events.example/in", Secret: hookKey, Mode: mode}, nil)
		req, err := c.Request(now, notification.Single(n))
		if err != nil {
			t.Fatal(err)
		}
		body, err := req.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/cloudevents/run-"+mode+".http", dump(t, req))
		keys, err := webhook.Keys(hookKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := signatureOf(req.Header).Verify(now, text, keys...); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if err := signatureOf(req.Header).Verify(now, append(text, ' '), keys...); err == nil {
			t.Errorf("%s: the signature fits another body", mode)
		}
		headers := map[string]string{}
		for name, values := range req.Header {
			headers[strings.ToLower(name)] = values[0]
		}
		read, err := event.Parse(headers, text)
		if err != nil || len(read) != 1 || read[0].ID != "0001.succeeded" || read[0].Source != "/apps/shop/jobs/nightly" || read[0].Type != "io.wheelwork.run.succeeded" {
			t.Errorf("%s: %+v, %v", mode, read, err)
		}
	}
	_, err := channel.Over(&http.Client{}, channel.CloudEvents{URL: "https://events.example/in", Secret: hookKey, Mode: "batch"}, renderer(t))
	if err == nil || !strings.Contains(err.Error(), "want structured or binary") {
		t.Errorf("another mode: %v", err)
	}
}

func signatureOf(h http.Header) webhook.Headers {
	return webhook.Headers{ID: h.Get(webhook.IDHeader), Timestamp: h.Get(webhook.TimestampHeader), Signature: h.Get(webhook.SignatureHeader)}
}

// TestCloudEventsLimit checks that events are never folded.
func TestCloudEventsLimit(t *testing.T) {
	d := channel.LimitOf(channel.KindCloudEvents).Decide(channel.Usage{}, time.Now(), 5000)
	if d.Action != channel.SendOne {
		t.Errorf("5000 events wait: %+v", d)
	}
}
