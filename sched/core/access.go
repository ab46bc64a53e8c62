package core

import (
	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Change records changes that decide made of the state. They hold when they are durable.
func (a *Access) Change(decide func(*access.State) ([]access.Change, error)) error {
	if err := a.l.commits.refuse(); err != nil {
		return err
	}
	changes, err := decide(a.State)
	if err != nil {
		return err
	}
	for _, c := range changes {
		a.l.commits.recordAccess(c.Record())
		a.apply(c)
	}
	a.l.commits.onDurable(func(err error) {
		if err == nil {
			a.publish()
		}
	})
	return nil
}

func (a *Access) apply(c access.Change) {
	a.State.Apply(c)
	kind, id, row := c.Row()
	a.l.View.AccessChanged(kind, id, row)
	a.published = false
}

// replay applies a record of the journal.
func (a *Access) replay(rec *apiv1.Record) error {
	c, err := access.ChangeOf(rec)
	if err == nil {
		a.apply(c)
	}
	return err
}

// publish gives the state to the guard, unless the guard has it.
func (a *Access) publish() {
	if !a.published && a.l.cfg.Publish != nil {
		a.l.cfg.Publish(a.State.Credentials())
	}
	a.published = true
}
