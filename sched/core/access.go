package core

import (
	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func (a *Access) apply(c access.Change) {
	a.State.Apply(c)
	kind, id, row := c.Row()
	a.l.View.AccessChanged(kind, id, row)
	a.published = a.published && !c.OfCredentials()
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
