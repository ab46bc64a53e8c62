package channel

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

// Modes of CloudEvents.
const (
	Structured = "structured" // the event is the body
	Binary     = "binary"     // the data is the body, and the attributes are headers
)

// CloudEvents is a receiver of CloudEvents 1.0. Sources: CloudEvents, its JSON format and its HTTP
// binding; Standard Webhooks, whose signature is over the body.
type CloudEvents struct {
	URL    string
	Secret string // as that of [Webhook]
	Mode   string // default Structured
}

// Kind returns KindCloudEvents.
func (CloudEvents) Kind() Kind { return KindCloudEvents }

// Check returns an error that names the field that is wrong.
func (c CloudEvents) Check() error {
	if err := checkURL(c.URL); err != nil {
		return err
	}
	if c.Mode != "" && c.Mode != Structured && c.Mode != Binary {
		return fmt.Errorf("mode is %.20q, want %s or %s", c.Mode, Structured, Binary)
	}
	_, err := webhook.Keys(c.Secret)
	return err
}

func (c CloudEvents) secrets() []string { return signedSecrets(c.URL, c.Secret) }

// cloudEvent is an event in the JSON format.
type cloudEvent struct {
	Specversion string `json:"specversion"`
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject"`
	Time        string `json:"time"`
	ContentType string `json:"datacontenttype"`
	Data        any    `json:"data"`
}

// runData is the data of an event about one run.
type runData struct {
	App   string `json:"app"`
	Job   string `json:"job"`
	Run   string `json:"run"`
	Event string `json:"event"`
	Rule  string `json:"rule"`
	Error string `json:"error,omitempty"`
	Link  string `json:"link,omitempty"`
}

// alertData is the data of an event about several runs, or about none.
type alertData struct {
	Title string                     `json:"title"`
	Alert *notification.Notification `json:"alert"`
}

// eventTypes begins the type of each event.
const eventTypes = "io.wheelwork."

// eventOf returns the event of a notification. What it says of one run has an identity made of the run
// and the event, whichever rule has told it, so a receiver can tell an event that it has from a new one.
func eventOf(n *notification.Notification, title string) cloudEvent {
	app := "/apps/" + url.PathEscape(n.App)
	e := cloudEvent{Specversion: "1.0", ContentType: "application/json"}
	if n.State == notification.Firing && n.Count == 1 && len(n.Incidents) == 1 && n.Incidents[0].Run != "" {
		x := &n.Incidents[0]
		name := cmp.Or(x.Event, n.Event)
		e.ID, e.Source, e.Type = x.Run+"."+name, app+"/jobs/"+url.PathEscape(x.Job), eventTypes+"run."+name
		e.Subject, e.Time = x.Run, x.At.UTC().Format(time.RFC3339Nano)
		e.Data = runData{App: n.App, Job: x.Job, Run: x.Run, Event: name, Rule: n.Rule, Error: x.Error, Link: x.Link}
		return e
	}
	e.ID, e.Source, e.Type = n.ID, app+"/alert-rules/"+url.PathEscape(n.Rule), eventTypes+"alert."+string(n.State)
	e.Subject, e.Time, e.Data = n.Alert, n.At.UTC().Format(time.RFC3339Nano), alertData{title, n}
	return e
}

// request sends a digest as a batch, which has one mode.
func (c CloudEvents) request(now time.Time, t *texts) (*http.Request, error) {
	var events []cloudEvent
	for i := range t.message.Notifications {
		n := &t.message.Notifications[i]
		one := &texts{renderer: t.renderer, message: notification.Single(*n)}
		events = append(events, eventOf(n, one.title()))
		t.errs = append(t.errs, one.errs...)
	}
	e := &events[0]
	kind, content := "application/cloudevents+json; charset=utf-8", any(e)
	switch {
	case len(events) > 1:
		kind, content = "application/cloudevents-batch+json; charset=utf-8", events
	case c.Mode == Binary:
		kind, content = e.ContentType, e.Data
	}
	body, err := encode(content)
	if err != nil {
		return nil, err
	}
	req, err := postBytes(c.URL, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	if c.Mode == Binary && len(events) == 1 {
		for name, value := range map[string]string{
			"specversion": e.Specversion, "id": e.ID, "source": e.Source, "type": e.Type, "subject": e.Subject, "time": e.Time,
		} {
			req.Header.Set("Ce-"+name, value)
		}
	}
	return req, signRequest(req, c.Secret, t.message.ID, now, body)
}

func (c CloudEvents) read(now time.Time, a answer) Result { return a.byStatus(now) }
