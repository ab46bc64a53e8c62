package rule

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// maxSubjects bounds the subjects of a group that are followed to their end. Further ones count as events without an
// end.
const maxSubjects = 10_000

// Group is the state of a rule for one key. Its fields are exported to be stored; only the methods change them. The zero
// Group is one that has seen nothing.
type Group struct {
	Key    string            `json:"key,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`

	// Seen are the times of the latest events before an alert, as many as the threshold says.
	Seen []int64 `json:"seen,omitempty"`
	// InRow has the failures in a row of each job, for failed_in_row.
	InRow map[string]int `json:"in_row,omitempty"`
	// Subjects are in trouble.
	Subjects []string `json:"subjects,omitempty"` // sorted

	First     string                  `json:"first,omitempty"`    // the run, or the subject and the time, with which the alert began
	SinceMs   int64                   `json:"since_ms,omitempty"` // when the alert began; 0: there is none
	Event     string                  `json:"event,omitempty"`    // with which it began
	Count     int                     `json:"count,omitempty"`    // of its events
	Recent    []notification.Incident `json:"recent,omitempty"`   // the latest of them, the newest last
	Owners    []string                `json:"owners,omitempty"`   // of its jobs, as far as they are mail addresses, sorted
	Told      int64                   `json:"told,omitempty"`     // its notifications
	ToldMs    int64                   `json:"told_ms,omitempty"`  // of the last one
	Escalated bool                    `json:"escalated,omitempty"`
	AckedBy   string                  `json:"acked_by,omitempty"` // "": no person has
	AckedMs   int64                   `json:"acked_ms,omitempty"`

	// QuietMs is the end of the silence after the last notification of an alert.
	QuietMs int64 `json:"quiet_ms,omitempty"`
}

// Quiet says until when a group tells nothing, because of a silence or a calendar; 0: it may tell.
type Quiet func(nowMs int64) (untilMs int64)

// Never is the quiet of a group that may always tell.
func Never(int64) int64 { return 0 }

// Output is a notification and where it goes.
type Output struct {
	Notification notification.Notification
	Channels     []string
	Escalation   bool
}

// Observe folds an event, which the rule selects and lists, or an end. It returns the notifications that are due at
// once.
func (g *Group) Observe(r *Rule, e *Event, quiet Quiet) []Output {
	if e.Ends {
		return g.end(r, e, quiet)
	}
	if !r.Lists(e.Name) || e.Name == Recovered {
		return nil
	}
	if e.Name == FailedInRow {
		if g.InRow == nil {
			g.InRow = map[string]int{}
		}
		if g.InRow[e.About]++; g.InRow[e.About] < r.threshold() {
			return nil
		}
	} else if g.SinceMs == 0 && !g.reaches(r, e.AtMs) {
		g.note(e)
		return nil
	}
	if g.SinceMs == 0 {
		g.SinceMs, g.Event, g.First = e.AtMs, e.Name, cmp.Or(e.Run, fmt.Sprintf("%s@%d", e.About, e.AtMs))
	}
	g.note(e)
	g.add(e.About)
	return g.Tick(r, e.AtMs, quiet)
}

// reaches counts an event before an alert, and reports whether it begins one.
func (g *Group) reaches(r *Rule, atMs int64) bool {
	if r.Window > 0 {
		g.Seen = slices.DeleteFunc(g.Seen, func(ms int64) bool { return ms <= atMs-r.Window.Milliseconds() })
	}
	if g.Count = len(g.Seen); g.Count == 0 {
		g.Owners = nil
	}
	g.Recent = g.Recent[len(g.Recent)-min(len(g.Recent), g.Count):]
	g.Seen = append(g.Seen, atMs)
	if len(g.Seen) < r.threshold() {
		return false
	}
	g.Seen = nil
	return true
}

// note counts an event among those that the next notification tells.
func (g *Group) note(e *Event) {
	g.Count++
	g.own(e.Owner)
	g.Recent = append(g.Recent, notification.Incident{
		Event: e.Name, Job: e.Job, Run: e.Run, Error: notification.Cut(e.Error, notification.MaxError), At: time.UnixMilli(e.AtMs).UTC(),
	})
	if n := len(g.Recent) - notification.MaxIncidents; n > 0 {
		g.Recent = slices.Delete(g.Recent, 0, n)
	}
}

// own notes the owner of a job, if it is a mail address.
func (g *Group) own(owner string) {
	if !strings.Contains(owner, "@") || len(g.Owners) >= notification.MaxOwners {
		return
	}
	if at, found := slices.BinarySearch(g.Owners, owner); !found {
		g.Owners = slices.Insert(g.Owners, at, owner)
	}
}

func (g *Group) add(about string) {
	if about == "" || len(g.Subjects) >= maxSubjects {
		return
	}
	if at, found := slices.BinarySearch(g.Subjects, about); !found {
		g.Subjects = slices.Insert(g.Subjects, at, about)
	}
}

// end folds the end of the trouble of a subject.
func (g *Group) end(r *Rule, e *Event, quiet Quiet) []Output {
	delete(g.InRow, e.About)
	at, found := slices.BinarySearch(g.Subjects, e.About)
	if !found {
		return nil
	}
	g.Subjects = slices.Delete(g.Subjects, at, at+1)
	if len(g.Subjects) > 0 || g.SinceMs == 0 {
		return nil
	}
	var out []Output
	if g.Told == 0 && g.allowed(e.AtMs, quiet) == 0 {
		out = append(out, g.tell(r, e.AtMs, notification.Firing))
	}
	if g.Told > 0 && r.Lists(Recovered) {
		out = append(out, g.resolve(r, e.AtMs))
	}
	g.over()
	return out
}

// Close ends the alert because its rule is gone, and returns the resolve message if the alert was told and the rule
// lists recovered.
func (g *Group) Close(r *Rule, nowMs int64) []Output {
	var out []Output
	if g.SinceMs != 0 && g.Told > 0 && r.Lists(Recovered) {
		out = append(out, g.resolve(r, nowMs))
	}
	g.Subjects, g.Seen, g.InRow = nil, nil, nil
	g.over()
	return out
}

// resolve returns the resolve message, for all channels that were told.
func (g *Group) resolve(r *Rule, nowMs int64) Output {
	o := g.tell(r, nowMs, notification.Resolved)
	if g.Escalated {
		o.Channels = slices.Clone(o.Channels)
		for _, name := range r.EscalateTo {
			if !slices.Contains(o.Channels, name) {
				o.Channels = append(o.Channels, name)
			}
		}
	}
	return o
}

// over ends the alert. What the group has counted begins again.
func (g *Group) over() {
	g.First, g.SinceMs, g.Event, g.Count, g.Recent, g.Owners, g.Told, g.ToldMs, g.Escalated, g.AckedBy, g.AckedMs = "", 0, "", 0, nil, nil, 0, 0, false, "", 0
}

// allowed returns 0 if the group may tell, or the time at which it may.
func (g *Group) allowed(nowMs int64, quiet Quiet) int64 {
	until := quiet(nowMs)
	if g.Told == 0 {
		until = max(until, g.QuietMs)
	}
	if until > nowMs {
		return until
	}
	return 0
}

// Tick makes the notifications that are due at a time.
func (g *Group) Tick(r *Rule, nowMs int64, quiet Quiet) []Output {
	if due := g.due(r); due == 0 || due > nowMs || g.allowed(nowMs, quiet) != 0 {
		return nil
	}
	var out []Output
	if g.Told == 0 || g.repeats(r) && g.ToldMs+r.Repeat.Milliseconds() <= nowMs {
		out = append(out, g.tell(r, nowMs, notification.Firing))
	}
	if g.escalates(r) && g.SinceMs+r.Escalate.Milliseconds() <= nowMs {
		g.Escalated = true
		x := g.tell(r, nowMs, notification.Firing)
		x.Channels, x.Escalation = r.EscalateTo, true
		out = append(out, x)
	}
	if len(g.Subjects) == 0 { // events without an end: nothing is left to wait for
		g.over()
	}
	return out
}

// Due returns the next time at which Tick may make a notification; 0: none before the next event.
func (g *Group) Due(r *Rule, nowMs int64, quiet Quiet) int64 {
	due := g.due(r)
	if due == 0 {
		return 0
	}
	return max(due, g.allowed(max(due, nowMs), quiet))
}

func (g *Group) due(r *Rule) int64 {
	if g.SinceMs == 0 {
		return 0
	}
	if g.Told == 0 {
		return g.SinceMs + r.Wait.Milliseconds()
	}
	due := int64(0)
	if g.repeats(r) {
		due = g.ToldMs + r.Repeat.Milliseconds()
	}
	if at := g.SinceMs + r.Escalate.Milliseconds(); g.escalates(r) && (due == 0 || at < due) {
		due = at
	}
	return due
}

func (g *Group) repeats(r *Rule) bool   { return r.Repeat > 0 && g.AckedBy == "" }
func (g *Group) escalates(r *Rule) bool { return r.Escalate > 0 && !g.Escalated && g.AckedBy == "" }

// Acknowledge notes that a person takes care of the alert. It reports false if there is none, or if it was
// acknowledged before.
func (g *Group) Acknowledge(by string, nowMs int64) bool {
	if g.SinceMs == 0 || g.AckedBy != "" || by == "" {
		return false
	}
	g.AckedBy, g.AckedMs = by, nowMs
	return true
}

// Idle reports whether the group can be forgotten: it has no alert, and nothing that counts towards one.
func (g *Group) Idle(r *Rule, nowMs int64) bool {
	if g.SinceMs != 0 || g.QuietMs > nowMs || len(g.InRow) > 0 {
		return false
	}
	return len(g.Seen) == 0 || r.Window > 0 && g.Seen[len(g.Seen)-1] <= nowMs-r.Window.Milliseconds()
}

// AlertID returns the id of the alert; "": there is none.
func (g *Group) AlertID(r *Rule) string {
	if g.SinceMs == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", r.App, r.Name, g.Key, g.First))
	return "alert-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

func (g *Group) tell(r *Rule, nowMs int64, state notification.State) Output {
	alert := g.AlertID(r)
	g.Told++
	n := notification.Notification{
		ID: alert + "-" + strconv.FormatInt(g.Told, 10), Alert: alert, Rule: r.Name, App: r.App, Event: g.Event, Severity: r.severity(), State: state,
		Labels: g.Labels, Count: g.Count, Incidents: slices.Clone(g.Recent), Owners: slices.Clone(g.Owners), Since: time.UnixMilli(g.SinceMs).UTC(), At: time.UnixMilli(nowMs).UTC(),
		Language: notification.English,
	}
	for i := range n.Incidents {
		if n.Incidents[i].Event == n.Event {
			n.Incidents[i].Event = ""
		}
	}
	if state == notification.Firing {
		g.ToldMs, g.QuietMs = nowMs, nowMs+r.Silence.Milliseconds()
	}
	return Output{Notification: n, Channels: r.Channels}
}
