package core

import (
	"cmp"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/rule"
	alerts "github.com/wheelworkhq/wheelwork/alert/state"
)

// Conditions is how a server is, for the alert rules about what belongs to no job.
type Conditions struct {
	DiskUsed    int           // percent; 0: unknown
	QueueAge    time.Duration // of the oldest message that a group has not finished
	DeadLetters int           // of the queue
}

// Check compares the conditions of the server, and the certificates of the machines if the partition
// has them, with the rules of all apps.
func (al *Alerts) Check(c Conditions) {
	more := 0
	if al.checked {
		more = c.DeadLetters - al.deadLetters
	}
	al.deadLetters, al.checked = c.DeadLetters, true
	for _, a := range al.l.State.apps {
		if a.alerts == nil || a.alerts.stale || !al.serves {
			continue
		}
		for _, r := range a.alerts.state.Rules() {
			if r.Selects(&rule.Subject{App: a.name}) {
				al.compare(a, r, c, more)
			}
		}
		al.touch(a)
	}
}

// compare folds the conditions into the groups of one rule.
func (al *Alerts) compare(a *app, r *alerts.Rule, c Conditions, more int) {
	server := al.l.cfg.ID
	if free := 100 - c.DiskUsed; r.Lists(rule.Disk) && c.DiskUsed > 0 {
		al.hold(a, r, rule.Disk, "disk/"+server, free < r.DiskFree, fmt.Sprintf("the disk of server %s has %d %% free space", server, free))
	}
	if r.Lists(rule.QueueAge) {
		al.hold(a, r, rule.QueueAge, "queue/"+server, c.QueueAge > r.QueueAge, fmt.Sprintf("the oldest message in a queue of server %s waits for %s", server, c.QueueAge.Round(time.Second)))
	}
	if r.Lists(rule.DeadLetter) && more > 0 {
		a.alerts.state.Observe(r, &rule.Event{Name: rule.DeadLetter, Subject: rule.Subject{App: a.name}, AtMs: al.l.clock.nowMs, Error: fmt.Sprintf("server %s has %d more dead letters", server, more)})
	}
	if r.Lists(rule.CertificateExpiry) {
		there := map[string]bool{}
		for _, c := range al.l.Access.State.Machines.Certificates() {
			if c.RevokedAt != nil {
				continue
			}
			// A machine renews its certificate when a third of its life is left, so a quarter says that it does not.
			ends := c.ExpiresAt.AsTime()
			left, life := ends.Sub(al.l.clock.now), ends.Sub(cmp.Or(c.RenewedAt, c.JoinedAt).AsTime())
			about := "certificate/" + c.Id
			there[about] = true
			text := fmt.Sprintf("the certificate of %s %s ends in %s", c.Kind, c.Name, left.Round(time.Minute))
			al.hold(a, r, rule.CertificateExpiry, about, left < min(r.CertificateExpiry, life/4), text)
		}
		a.alerts.state.EndOthers(r, "certificate/", there, al.l.clock.nowMs)
	}
}

// hold observes a condition that begins to hold, or its end.
func (al *Alerts) hold(a *app, r *alerts.Rule, event, about string, holds bool, text string) {
	e := rule.Event{Name: event, Subject: rule.Subject{App: a.name}, AtMs: al.l.clock.nowMs, About: about, Error: text}
	switch {
	case !holds:
		a.alerts.state.End(r, about, e.AtMs)
	case !a.alerts.state.Troubled(r, &e):
		a.alerts.state.Observe(r, &e)
	}
}
