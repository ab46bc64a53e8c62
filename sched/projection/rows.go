package projection

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// This file has the keys of the small rows of the store. Each kind has one function that
// builds its key; loadRow reads them all.

func countRow(app string) string { return "count/" + app }

func minuteRow(app string, minute int64) string { return fmt.Sprintf("minute/%s/%012d", app, minute) }

// statsStartRow is the key of the row with the length of the history up to which the
// statistics of jobs have counted all runs.
const statsStartRow = "tally/"

func settingsRow(app string) string { return "settings/" + app }

func calendarRow(k rowKey) string { return "calendar/" + k.app + "/" + k.name }

// parseRow splits the key of a small row, which has the form kind/app or kind/app/rest.
func parseRow(key string) (kind, app, rest string, err error) {
	kind, rest, ok := strings.Cut(key, "/")
	if !ok {
		return "", "", "", fmt.Errorf("the store has a row %q that is none of ours", key)
	}
	app, rest, _ = strings.Cut(rest, "/")
	return kind, app, rest, nil
}

// retain gives the retention of an app to the store. Settings were checked when they were
// put; if a newer version wrote them and they are not understood, the store keeps its own
// retention.
func (v *View) retain(m *apiv1.App) {
	if v.cfg.Store == nil {
		return
	}
	r, _ := job.RetentionOf(m)
	keep := store.Retention{Runs: r.Runs, Logs: r.Logs, RevisionBytes: m.RevisionBytes}
	if m.DeletedAt != nil {
		keep.SinceMs = m.DeletedAt.AsTime().UnixMilli() + 1
	}
	v.cfg.Store.SetRetention(m.Name, keep)
}

// row restores what a small row of the store has.
func (ld *loading) row(key string, value []byte) error {
	kind, name, rest, err := parseRow(key)
	if err != nil {
		return err
	}
	if kind+"/" == bundlePrefix { // loadBundle has read it
		return nil
	}
	if key == statsStartRow {
		from, n := binary.Uvarint(value)
		if n <= 0 {
			return fmt.Errorf("row %q: its number is damaged", key)
		}
		ld.v.deferred.from, ld.v.deferred.groups[0].from = int64(from), int64(from)
		return nil
	}
	if kind == accessKind {
		return ld.to.LoadAccess(name, rest, value)
	}
	if kind+"/" == auditRow {
		m := &apiv1.AuditHeadRow{}
		if err := proto.Unmarshal(value, m); err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		ld.to.LoadAudit(m)
		return nil
	}
	a := ld.app(name)
	switch kind {
	case "count":
		return proto.Unmarshal(value, &a.Count)
	case "settings":
		m := &apiv1.App{}
		a.Slots[job.ModuleSlot].Settings = m
		if err := proto.Unmarshal(value, m); err != nil {
			return err
		}
		ld.v.retain(m)
		return nil
	case "calendar":
		m := &apiv1.Calendar{}
		a.Slots[job.ModuleSlot].Calendars[rest] = m
		return proto.Unmarshal(value, m)
	case "alias", "canary":
		return ld.alias(a, kind, rest, value)
	case "minute":
		at, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		m := &apiv1.MinuteRow{}
		a.minutes[at] = m
		return proto.Unmarshal(value, m)
	case "keys": // older formats stored keys here; the next projection batch moves them to the key log
		ld.v.unmark(key)
		_, err := a.loadKeys(value, func(hash [16]byte, id job.RunID, atMs int64, input uint32) { ld.v.KeyAdded(a, hash, id, atMs, input) })
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		return nil
	}
	return ld.slotRow(a, kind, rest, key, value)
}

// accessKind begins the keys of the rows of the access state.
const accessKind = "access"

// auditRow is the key of the row with the end of the chain of audit events.
const auditRow = "audit/"

// Audited adds an entry with audit events to the next batch. names are those by which it is found, and
// head is the end of the chain after it.
func (c *changes) Audited(e *apiv1.Audited, atMs int64, names []string, head *apiv1.AuditHeadRow) {
	value, err := proto.Marshal(e)
	if err != nil { // it was decoded, or encoded before
		panic("projection: an audit entry does not encode: " + err.Error())
	}
	c.audit = append(c.audit, store.AuditEntry{First: e.First, AtMs: atMs, Value: value, Names: names})
	c.mark(auditRow, func() proto.Message { return head })
}

// AccessChanged adds a row of the access state to the next batch. Without one it is deleted.
func (c *changes) AccessChanged(kind, id string, row proto.Message) {
	c.mark(accessKind+"/"+kind+"/"+id, func() proto.Message { return row })
}

func aliasRow(app, ref string) string { return "alias/" + app + "/" + ref }

func canaryRow(app, ref string) string { return "canary/" + app + "/" + ref }

// mark adds a small row to the next projection batch. value is called when the batch is
// made; if it returns nil, the row is deleted.
func (c *changes) mark(key string, value func() proto.Message) {
	if c.small == nil {
		c.small = map[string]func() proto.Message{}
	}
	c.small[key] = value
}

func (c *changes) unmark(key string) { c.mark(key, func() proto.Message { return nil }) }

// AliasChanged adds an alias to the next batch.
func (c *changes) AliasChanged(x *apiv1.Alias) {
	c.mark(aliasRow(x.App, job.AliasRef(x)), func() proto.Message { return x })
}

// AliasDeleted deletes the row of an alias in the next batch.
func (c *changes) AliasDeleted(x *apiv1.Alias) { c.unmark(aliasRow(x.App, job.AliasRef(x))) }

// CanaryCounted adds the counts of a canary to the next batch. ref is name@alias. row is
// called when the batch is made; if it returns nil, the row is deleted.
func (c *changes) CanaryCounted(app, ref string, row func() *apiv1.TallyRow) {
	c.mark(canaryRow(app, ref), func() proto.Message {
		if r := row(); r != nil {
			return r
		}
		return nil
	})
}

// CanaryEnded deletes the counts of a canary in the next batch. ref is name@alias.
func (c *changes) CanaryEnded(app, ref string) { c.unmark(canaryRow(app, ref)) }

// alias restores an alias, or the counts of its canary.
func (ld *loading) alias(a *App, kind, ref string, value []byte) error {
	if kind == "alias" {
		x := &apiv1.Alias{}
		a.Slots[job.ModuleSlot].Aliases[ref] = x
		return proto.Unmarshal(value, x)
	}
	row := &apiv1.TallyRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return err
	}
	ld.to.LoadCanary(a.Name, ref, job.LoadTally(row))
	return nil
}

// RowChanged adds a small row of a slot to the next projection batch.
func (c *changes) RowChanged(r *job.Row) {
	if c.rows == nil {
		c.rows = map[string]*job.Row{}
	}
	c.rows[r.Key] = r
}

// guestRows returns the changed small rows of slots. A row without which a run cannot be
// loaded is deleted one projection batch after the run. So a crash during the commit of a
// large batch may leave rows without a run, which the next start deletes, but never a run
// without its rows.
func (c *changes) guestRows(marshal func(proto.Message) []byte) []store.Row {
	rows := make([]store.Row, 0, len(c.rows)+len(c.dropped))
	for _, r := range c.dropped {
		rows = append(rows, store.Row{Key: r.Key})
	}
	c.dropped = nil
	for key, r := range c.rows {
		switch {
		case r.Value != nil:
			value := marshal(r.Value)
			if value == nil {
				value = []byte{} // nil deletes
			}
			rows = append(rows, store.Row{Key: key, Value: value})
		case r.Lasting():
			c.dropped = append(c.dropped, r)
		default:
			rows = append(rows, store.Row{Key: key})
		}
	}
	return rows
}

// slotRow restores a small row of a slot from the store. It deletes a row whose run is
// gone.
func (ld *loading) slotRow(a *App, kind, rest, key string, value []byte) error {
	slot, ours, err := job.SlotOfRow(kind, rest)
	if err != nil {
		return fmt.Errorf("row %q: %w", key, err)
	}
	if !ours {
		return fmt.Errorf("the store has a row %q that is none of ours", key)
	}
	orphan, err := a.Slots[slot].LoadRow(kind, rest, value)
	if err != nil {
		return fmt.Errorf("row %q: %w", key, err)
	}
	if orphan {
		ld.v.RowChanged(&job.Row{Key: key})
	}
	return nil
}
