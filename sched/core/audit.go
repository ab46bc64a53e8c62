package core

import (
	"cmp"
	"strings"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// revised adds the events of definitions that a record of this turn has changed.
func (au *Audit) revised(by *apiv1.Attribution, app string, all []job.Revision) {
	for i := range all {
		r := &all[i]
		au.add(by, audit.OfRevision(app, r.Kind, r.Name, r.Number, r.After == job.Content{}))
	}
}

// recorded adds the event of a record of this turn that changes no definition, if a caller made the
// change.
func (au *Audit) recorded(app string, rec *apiv1.Record) {
	if by := au.l.commits.by; by != byServer {
		if e, ok := audit.OfRecord(app, rec); ok {
			au.add(by, e)
		}
	}
}

// accepted adds the event of a run that a caller has requested by another way than a trigger. A run
// says itself what triggered it.
func (au *Audit) accepted(j *job.Job, acc *apiv1.Accepted) {
	switch job.Trigger(acc.Trigger) {
	case job.ByRetry:
		if by := au.l.commits.by; by != byServer {
			au.add(by, audit.Row{Code: "run.retried", App: j.Slot().App, Object: job.RunID(acc.Cause).String(), Message: choicesOf(j, acc)})
		}
	case job.ByBackfill:
		au.called("job.backfilled", j.Slot().App, j.Name())
	}
}

// choicesOf says what a retry has chosen for its run, for people; "": nothing.
func choicesOf(j *job.Job, acc *apiv1.Accepted) string {
	var all []string
	if acc.FromNode != "" {
		all = append(all, "from node "+acc.FromNode)
	}
	if p := acc.Pin; p != nil && cmp.Or(p.Alias, p.Module) != j.Module() {
		all = append(all, "with module "+p.Module)
	}
	if acc.Host != "" {
		all = append(all, "on host "+acc.Host)
	}
	return strings.Join(all, ", ")
}

// called adds the event of a call that changes no definition, if a caller made it.
func (au *Audit) called(code, app, object string) {
	if by := au.l.commits.by; by != byServer {
		au.add(by, audit.Row{Code: code, App: app, Object: object})
	}
}

// maxEntry is the size, in bytes, from which on the events of a turn go on in another record of the same
// batch: a record has at most 4 MiB.
const maxEntry = 1 << 20

// add adds an event of this turn.
func (au *Audit) add(by *apiv1.Attribution, e audit.Row) {
	au.events.Add(by, e)
	if au.events.Len() >= maxEntry {
		au.close()
	}
}

// close adds the record with the events of the turn so far to its batch.
func (au *Audit) close() {
	if rec := au.seal(au.l.clock.nowMs); rec != nil {
		au.l.commits.recordUnnamed(rec)
	}
}

// seal returns the record with the events of the turn; nil: there are none.
func (au *Audit) seal(nowMs int64) *apiv1.Record {
	text, names, n := au.events.Finish()
	if n == 0 {
		return nil
	}
	entry := au.chain.Add(nowMs, text, n)
	au.show(entry, nowMs, names)
	return &apiv1.Record{Kind: &apiv1.Record_Audited{Audited: entry}}
}

// show gives an entry to the projection. names are those by which its events are found.
func (au *Audit) show(e *apiv1.Audited, atMs int64, names []string) {
	au.l.View.Audited(e, atMs, names, &apiv1.AuditHeadRow{Next: au.chain.Next, Head: au.chain.Head[:]})
}

// replay applies an entry of the journal.
func (au *Audit) replay(e *apiv1.Audited, atMs int64) error {
	events, err := audit.Events(e)
	if err != nil {
		return err
	}
	if err := au.chain.Follow(e, atMs, false); err != nil {
		au.l.cfg.Logger.Error("the audit log does not continue where it ended", "event", e.First, "error", err)
	}
	au.show(e, atMs, audit.Names(events))
	return nil
}

// Next returns the sequence of the next event.
func (au *Audit) Next() uint64 { return au.chain.First() }

// End returns the present end of the chain, which may not be durable yet.
func (au *Audit) End() audit.Anchor { return au.chain.Anchor() }

// load sets the end of the chain that the store has.
func (au *Audit) load(row *apiv1.AuditHeadRow) {
	au.chain.Next = row.Next
	copy(au.chain.Head[:], row.Head)
}
