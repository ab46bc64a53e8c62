package notification

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// State says whether an alert begins or ends.
type State string

// States of an alert.
const (
	Firing   State = "firing"
	Resolved State = "resolved"
)

// Severity says how soon a person has to look.
type Severity string

// Severities, the most urgent first.
const (
	Critical Severity = "critical"
	Error    Severity = "error"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// Severities returns all severities, the most urgent first.
func Severities() []Severity { return []Severity{Critical, Error, Warning, Info} }

// Language is the language of the texts of a notification.
type Language string

// Languages of the built-in texts.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// Bounds of a notification. [Notification.Trim] enforces them.
const (
	MaxIncidents = 20   // that a notification lists; Count has the number of all
	MaxLabels    = 32   // of a group
	MaxOwners    = 100  // with a mail address; RFC 5321 promises that a server takes 100 recipients
	MaxText      = 512  // bytes of a name, a label or an id
	MaxError     = 1000 // bytes of the error of an incident
	MaxLink      = 2048 // bytes of a link; a longer one is left out, since a part of it leads nowhere
)

// Notification is what one alert tells at one time.
type Notification struct {
	ID       string            `json:"id"`               // the same at every try to deliver it
	Alert    string            `json:"alert"`            // the same from the first notification of an alert until it is resolved
	Rule     string            `json:"rule"`             // name of the rule
	App      string            `json:"app"`              // to which the rule belongs
	Event    string            `json:"event"`            // that the rule saw, such as "failed"
	Severity Severity          `json:"severity"`         //
	State    State             `json:"state"`            //
	Labels   map[string]string `json:"labels,omitempty"` // of the group, such as job
	Count    int               `json:"count"`            // of the incidents since the alert began
	// Incidents are the latest of Count, the newest last.
	Incidents []Incident `json:"incidents,omitempty"`
	// Owners are the mail addresses among the owners of the jobs of the alert, sorted.
	Owners   []string  `json:"owners,omitempty"`
	Since    time.Time `json:"since"`          // when the alert began
	At       time.Time `json:"at"`             // when the rule made this notification; of a resolved alert, its end
	Link     string    `json:"link,omitempty"` // to the alert in the console
	Language Language  `json:"language"`
}

// Incident is one event of an alert.
type Incident struct {
	Event string    `json:"event,omitempty"` // if it differs from the event of the notification
	Job   string    `json:"job,omitempty"`   // "": the incident is of no job, such as a full disk
	Run   string    `json:"run,omitempty"`   // id of the run
	Error string    `json:"error,omitempty"` // what the handler or the server said
	At    time.Time `json:"at"`
	Link  string    `json:"link,omitempty"` // to the run in the console
}

// Check returns an error that names the field that is wrong.
func (n *Notification) Check() error {
	switch {
	case n.ID == "":
		return fmt.Errorf("a notification has no id")
	case n.Alert == "":
		return fmt.Errorf("notification %s names no alert", n.ID)
	case n.State != Firing && n.State != Resolved:
		return fmt.Errorf("notification %s: state %q is neither %s nor %s", n.ID, n.State, Firing, Resolved)
	case !slices.Contains(Severities(), n.Severity):
		return fmt.Errorf("notification %s: severity %q is none of %v", n.ID, n.Severity, Severities())
	case n.Language != English && n.Language != Chinese:
		return fmt.Errorf("notification %s: language %q is neither %s nor %s", n.ID, n.Language, English, Chinese)
	case n.Count < len(n.Incidents):
		return fmt.Errorf("notification %s: count %d is less than its %d incidents", n.ID, n.Count, len(n.Incidents))
	}
	return nil
}

// Trim returns the notification within the bounds of this package: it keeps the latest
// incidents and the beginning of each text.
func (n Notification) Trim() Notification {
	n.Rule, n.App, n.Event = Cut(n.Rule, MaxText), Cut(n.App, MaxText), Cut(n.Event, MaxText)
	n.Link = link(n.Link)
	if len(n.Incidents) > MaxIncidents {
		n.Incidents = n.Incidents[len(n.Incidents)-MaxIncidents:]
	}
	n.Owners = slices.Clone(n.Owners[:min(len(n.Owners), MaxOwners)])
	n.Incidents = slices.Clone(n.Incidents)
	for i := range n.Incidents {
		x := &n.Incidents[i]
		x.Event, x.Job, x.Run, x.Error, x.Link = Cut(x.Event, MaxText), Cut(x.Job, MaxText), Cut(x.Run, MaxText), Cut(x.Error, MaxError), link(x.Link)
	}
	labels := make(map[string]string, min(len(n.Labels), MaxLabels))
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		if len(labels) == MaxLabels {
			break
		}
		labels[Cut(name, MaxText)] = Cut(n.Labels[name], MaxText)
	}
	n.Labels = labels
	return n
}

func link(s string) string {
	if len(s) > MaxLink {
		return ""
	}
	return s
}

// Message is what one request to a channel carries: one notification, or several as a
// digest. The language is that of the first.
type Message struct {
	ID            string // the same at every try
	Notifications []Notification
}

// Single returns the message of one notification.
func Single(n Notification) Message {
	return Message{ID: n.ID, Notifications: []Notification{n.Trim()}}
}

// Digest returns the message of several notifications. Its id follows from their ids and
// their order, so that the digest of the same notifications has the same id after a
// restart.
func Digest(list []Notification) Message {
	if len(list) == 1 {
		return Single(list[0])
	}
	sum := sha256.New()
	m := Message{}
	for _, n := range list {
		fmt.Fprintf(sum, "%d:%s", len(n.ID), n.ID)
		m.Notifications = append(m.Notifications, n.Trim())
	}
	m.ID = "digest-" + hex.EncodeToString(sum.Sum(nil)[:16])
	return m
}

// Check returns an error for a message without notifications, or with one that is wrong.
func (m Message) Check() error {
	if m.ID == "" || len(m.Notifications) == 0 {
		return fmt.Errorf("a message needs an id and a notification")
	}
	for i := range m.Notifications {
		if err := m.Notifications[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// IsDigest reports whether the message has several notifications.
func (m Message) IsDigest() bool { return len(m.Notifications) > 1 }

// Language returns the language of the message.
func (m Message) Language() Language {
	if len(m.Notifications) == 0 {
		return English
	}
	return cmp.Or(m.Notifications[0].Language, English)
}

// State returns [Resolved] if every alert of the message has ended.
func (m Message) State() State {
	for _, n := range m.Notifications {
		if n.State != Resolved {
			return Firing
		}
	}
	return Resolved
}

// Severity returns the most urgent severity of the alerts that are firing, or of all if
// none is.
func (m Message) Severity() Severity {
	least := len(Severities()) - 1
	rank := func(n Notification) int {
		if i := slices.Index(Severities(), n.Severity); i >= 0 {
			return i
		}
		return least
	}
	firing, all := least+1, least
	for _, n := range m.Notifications {
		all = min(all, rank(n))
		if n.State != Resolved {
			firing = min(firing, rank(n))
		}
	}
	if firing <= least {
		return Severities()[firing]
	}
	return Severities()[all]
}

// Link returns the link of the only notification, or that of a digest if all have the
// same.
func (m Message) Link() string {
	if len(m.Notifications) == 0 {
		return ""
	}
	first := m.Notifications[0].Link
	for _, n := range m.Notifications {
		if n.Link != first {
			return ""
		}
	}
	return first
}
