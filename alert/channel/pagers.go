package channel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// PagerDuty is an integration of a service of PagerDuty. Source: PagerDuty, Events API v2
// overview, Send an alert event, and its OpenAPI description (reference/events-v2).
type PagerDuty struct {
	URL string // default https://events.pagerduty.com/v2/enqueue
	Key string // the integration key
}

const pagerdutyURL = "https://events.pagerduty.com/v2/enqueue"

// Kind returns KindPagerDuty.
func (PagerDuty) Kind() Kind { return KindPagerDuty }

// Check returns an error that names the field that is wrong.
func (p PagerDuty) Check() error {
	switch {
	case p.Key == "":
		return errors.New("key is missing")
	case p.URL == "":
		return nil
	}
	return checkURL(p.URL)
}

func (p PagerDuty) secrets() []string {
	if p.URL == "" {
		return []string{p.Key}
	}
	return append(secretsOf(p.URL), p.Key)
}

// pagerdutyKey bounds the key by which PagerDuty knows an alert, in characters.
const pagerdutyKey = 255

type pagerdutyLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

type pagerdutyPayload struct {
	Summary   string           `json:"summary"`
	Source    string           `json:"source"`
	Severity  string           `json:"severity"`
	Timestamp time.Time        `json:"timestamp,omitzero"`
	Component string           `json:"component,omitempty"`
	Group     string           `json:"group,omitempty"`
	Class     string           `json:"class,omitempty"`
	Details   pagerdutyDetails `json:"custom_details"`
}

type pagerdutyDetails struct {
	ID        string                  `json:"notification"`
	Rule      string                  `json:"rule"`
	Labels    map[string]string       `json:"labels,omitempty"`
	Count     int                     `json:"count"`
	Incidents []notification.Incident `json:"incidents,omitempty"`
	Text      string                  `json:"text"`
}

func (p PagerDuty) request(_ time.Time, t *texts) (*http.Request, error) {
	if t.message.IsDigest() {
		return nil, errors.New("PagerDuty takes one notification in a request, and no digest")
	}
	n := &t.message.Notifications[0]
	body := struct {
		Key       string            `json:"routing_key"`
		Action    string            `json:"event_action"`
		Alert     string            `json:"dedup_key"`
		Payload   *pagerdutyPayload `json:"payload,omitempty"`
		Links     []pagerdutyLink   `json:"links,omitempty"`
		Client    string            `json:"client,omitempty"`
		ClientURL string            `json:"client_url,omitempty"`
	}{Key: p.Key, Action: "trigger", Alert: pagerdutyAlert(n.Alert)}
	address := p.URL
	if address == "" {
		address = pagerdutyURL
	}
	if n.State == notification.Resolved {
		body.Action = "resolve"
		return post(address, body)
	}
	title := t.title()
	// The names of the severities are the same.
	body.Payload = &pagerdutyPayload{
		Summary: title, Source: n.App, Severity: string(n.Severity), Timestamp: n.Since.UTC(), Component: n.Subject(), Group: n.Rule, Class: n.Event,
		Details: pagerdutyDetails{ID: n.ID, Rule: n.Rule, Labels: n.Labels, Count: n.Count, Incidents: n.Incidents, Text: t.text()},
	}
	if body.Payload.Source == "" {
		body.Payload.Source = "wheelwork"
	}
	body.Client = "Wheelwork"
	if strings.HasPrefix(n.Link, "http") {
		body.ClientURL = n.Link
		body.Links = []pagerdutyLink{{n.Link, title}}
	}
	return post(address, body)
}

func pagerdutyAlert(id string) string {
	if len(id) <= pagerdutyKey {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (p PagerDuty) read(now time.Time, a answer) Result {
	r := a.byStatus(now)
	var x struct {
		Status  string   `json:"status"`
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if json.Unmarshal(a.body, &x) == nil && r.Verdict != Delivered {
		r.Code = x.Status
		r.Reason = strings.Join(append([]string{x.Message}, x.Errors...), "; ")
	}
	return r
}

// Alertmanager is a Prometheus Alertmanager with the API v2. Source: its OpenAPI description
// (api/v2/openapi.yaml) and Alertmanager, Alerts API (Prometheus documents, clients).
type Alertmanager struct {
	URL   string // such as http://alertmanager:9093, also with a path in front of /api/v2
	Token string // of a proxy in front of it, sent as Bearer; "": none
	// Life is how long an alert fires there without news. It must be longer than the rule
	// waits before it repeats. Default: 12 hours.
	Life time.Duration
}

const alertLife = 12 * time.Hour

// Kind returns KindAlertmanager.
func (Alertmanager) Kind() Kind { return KindAlertmanager }

// Check returns an error that names the field that is wrong.
func (m Alertmanager) Check() error {
	if m.Life < 0 {
		return errors.New("life is negative")
	}
	if strings.ContainsAny(m.Token, "\r\n") {
		return errors.New("token has a line break")
	}
	return checkURL(m.URL)
}

func (m Alertmanager) secrets() []string { return append(secretsOf(m.URL), m.Token) }

type alertmanagerAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Starts      time.Time         `json:"startsAt"`
	Ends        time.Time         `json:"endsAt"`
	Link        string            `json:"generatorURL,omitempty"`
}

// request posts each notification of a digest as an alert of its own. The labels identify an
// alert there, so they have only what stays the same until it ends: the texts are
// annotations.
func (m Alertmanager) request(now time.Time, t *texts) (*http.Request, error) {
	life := m.Life
	if life == 0 {
		life = alertLife
	}
	var alerts []alertmanagerAlert
	for i := range t.message.Notifications {
		n := &t.message.Notifications[i]
		one := &texts{renderer: t.renderer, message: notification.Single(*n)}
		x := alertmanagerAlert{
			Labels:      map[string]string{},
			Annotations: map[string]string{"summary": one.title(), "description": one.text(), "notification": n.ID},
			Starts:      n.Since.UTC(), Ends: now.Add(life).UTC(),
		}
		t.errs = append(t.errs, one.errs...)
		for name, value := range n.Labels {
			x.Labels[labelName(name)] = value
		}
		x.Labels["alertname"], x.Labels["alert_id"], x.Labels["severity"] = n.Rule, n.Alert, string(n.Severity)
		if n.App != "" {
			x.Labels["app"] = n.App
		}
		if n.State == notification.Resolved {
			x.Ends = n.At.UTC()
		}
		if strings.HasPrefix(n.Link, "http") {
			x.Link = n.Link
		}
		alerts = append(alerts, x)
	}
	req, err := post(strings.TrimSuffix(m.URL, "/")+"/api/v2/alerts", alerts)
	if err == nil && m.Token != "" {
		req.Header.Set("Authorization", "Bearer "+m.Token)
	}
	return req, err
}

// labelName makes the name of a label one that Prometheus takes: letters, digits and _, and
// no digit first.
func labelName(s string) string {
	out := strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
	if out == "" || '0' <= out[0] && out[0] <= '9' {
		return "_" + out
	}
	return out
}

func (m Alertmanager) read(now time.Time, a answer) Result { return a.byStatus(now) }
