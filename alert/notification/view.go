package notification

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// View is what a template sees of a message. All texts are one line each and harmless in
// the dialect of the template. Codes, such as Severity, are as the API has them. Times are
// texts in the time zone of the channel.
type View struct {
	ID, Title              string
	State, StateText       string            // code: firing | resolved
	Severity, SeverityText string            // code: critical | error | warning | info
	Event, EventText       string            // of a digest: ""
	Rule, App              string            // of a digest: what all notifications have, or ""
	Subject                string            // the job, or what else the alert is about
	Count                  int               // of incidents; of a digest, of notifications
	Labels                 map[string]string // of the group
	Group                  string            // all labels as one text: job=nightly, team=data
	Since, At, Link        string
	Incidents              []IncidentView
	More                   string // says how many incidents are not listed; "": all are
	Error                  string // the beginning of the newest error of its incidents
	Digest                 bool
	Alerts                 []View // of a digest, its notifications
	Word                   WordView
}

// IncidentView is what a template sees of an incident.
type IncidentView struct {
	Event, EventText, Job, Run, Error, At, Link string
}

// WordView has the names of values, in the language of the message.
type WordView struct {
	Rule, App, Severity, Labels, Since, Ended, Incidents, Run, At, Details, Alerts, Colon string
}

// timeFormat has the zone, because the readers of a channel may live in several.
const timeFormat = "2006-01-02 15:04:05 MST"

// viewer makes the views of one message.
type viewer struct {
	words   *words
	dialect Dialect
	zone    *time.Location
}

func (v viewer) time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(v.zone).Format(timeFormat)
}

func (v viewer) message(m Message) View {
	if !m.IsDigest() {
		return v.notification(m.Notifications[0])
	}
	out := View{ID: m.ID, State: string(m.State()), Severity: string(m.Severity()), Count: len(m.Notifications), Link: m.Link(), Digest: true, Word: v.word()}
	out.StateText, out.SeverityText = v.words.states[m.State()], v.words.severities[m.Severity()]
	out.Rule, out.App = m.Notifications[0].Rule, m.Notifications[0].App
	for _, n := range m.Notifications {
		out.Alerts = append(out.Alerts, v.notification(n))
		if n.Rule != out.Rule {
			out.Rule = ""
		}
		if n.App != out.App {
			out.App = ""
		}
	}
	out.Rule, out.App = v.dialect.Escape(out.Rule), v.dialect.Escape(out.App)
	out.Since, out.At = v.time(m.Notifications[0].Since), v.time(m.Notifications[len(m.Notifications)-1].At)
	return out
}

func (v viewer) notification(n Notification) View {
	e := v.dialect.Escape
	out := View{
		ID: e(n.ID), State: string(n.State), StateText: v.words.states[n.State],
		Severity: string(n.Severity), SeverityText: v.words.severities[n.Severity],
		Event: n.Event, EventText: e(v.words.event(n.Event)), Rule: e(n.Rule), App: e(n.App), Subject: e(n.Subject()), Count: n.Count,
		Labels: make(map[string]string, len(n.Labels)), Since: v.time(n.Since), At: v.time(n.At), Link: n.Link, Word: v.word(),
	}
	var group []string
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		out.Labels[name] = e(n.Labels[name])
		group = append(group, e(name+"="+n.Labels[name]))
	}
	out.Group = strings.Join(group, ", ")
	for _, x := range n.Incidents {
		i := IncidentView{Event: x.Event, Job: e(x.Job), Run: e(x.Run), Error: e(x.Error), At: v.time(x.At), Link: x.Link}
		if x.Event != "" && x.Event != n.Event {
			i.EventText = e(v.words.event(x.Event))
		}
		out.Incidents = append(out.Incidents, i)
		if x.Error != "" {
			out.Error = e(Cut(x.Error, briefError))
		}
	}
	if more := n.Count - len(n.Incidents); more > 0 && len(n.Incidents) > 0 {
		out.More = fmt.Sprintf(v.words.more, more)
	}
	return out
}

// briefError bounds the error in a line of a digest, in bytes.
const briefError = 100

func (v viewer) word() WordView {
	w := v.words
	return WordView{
		Rule: w.rule, App: w.app, Severity: w.severity, Labels: w.labels, Since: w.since, Ended: w.ended, Incidents: w.incidents,
		Run: w.run, At: w.at, Details: w.details, Alerts: w.alerts, Colon: w.colon,
	}
}

// Subject returns what a notification is about: the job of its group or of all its
// incidents, else the value of its only label, else its rule.
func (n *Notification) Subject() string {
	if job := n.Labels["job"]; job != "" {
		return job
	}
	if len(n.Incidents) > 0 {
		job := n.Incidents[0].Job
		if job != "" && !slices.ContainsFunc(n.Incidents, func(x Incident) bool { return x.Job != job }) && n.Count == len(n.Incidents) {
			return job
		}
	}
	if len(n.Labels) == 1 {
		for name, value := range n.Labels {
			if name != "event" { // the title has it beside the subject
				return name + "=" + value
			}
		}
	}
	return n.Rule
}

// Title returns the built-in title of a message: plain, and one line.
func Title(m Message) string {
	w := wordsOf(m.Language())
	if m.IsDigest() {
		return "[" + w.states[m.State()] + "] " + fmt.Sprintf(w.digest, len(m.Notifications))
	}
	n := &m.Notifications[0]
	title := fmt.Sprintf(w.title, w.states[n.State], Plain.Escape(n.Subject()), Plain.Escape(w.event(n.Event)))
	if n.Count > 1 && n.State == Firing {
		title = fmt.Sprintf(w.times, title, n.Count)
	}
	return Cut(title, maxTitle)
}
