package job

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// This file has the state that a slot holds for handlers, values, secrets, grants and
// checkpoints, the change set of the app, its other definitions and its alerts. Each is a small row of its own in the store, so
// that a new checkpoint does not rewrite the row of its run.

// guests is the state that a slot holds for handlers. A map is nil until it has an entry,
// because most slots have none.
type guests struct {
	values     map[valueKey]*apiv1.ValueRow // immutable rows
	buckets    map[string]*Bucket
	version    uint64 // the highest version of any value so far
	valueBytes int64  // of keys and values

	secrets     map[string]*apiv1.SecretRow    // by name; only in ModuleSlot. Immutable rows
	grants      map[string]*apiv1.ModuleGrants // by module; only in ModuleSlot. Immutable rows
	checkpoints map[RunID]*apiv1.CheckpointRow // of live runs. Immutable rows

	definitions map[definitionKey]AppDefinition // only in ModuleSlot
	alerts      map[string]*apiv1.AlertRow      // by key; only in ModuleSlot. Immutable rows
}

// Row is a small row of the store after a record has changed it.
type Row struct {
	Key   string
	Value proto.Message // nil: the row is deleted. Immutable
}

// Grants reports whether the row has the grants of a module.
func (r *Row) Grants() bool { return isKind(r.Key, rowGrants) }

func isKind(key, kind string) bool { return strings.HasPrefix(key, kind+"/") }

// Lasting reports whether the row belongs to a run and must exist at least as long as the
// row of the run.
func (r *Row) Lasting() bool {
	return isKind(r.Key, rowMapInputs) || isKind(r.Key, rowMapOutputs)
}

// The kinds of rows. The key of a row begins with its kind.
const (
	rowValue      = "kv"
	rowVersion    = "kvseq"
	rowSecret     = "secret"
	rowGrants     = "grants"
	rowCheckpoint = "checkpoint"
	rowMapInputs  = "mapin"
	rowMapOutputs = "mapout"
	rowOwnership  = "place" // see move.go
	rowHome       = "home"
	rowChangeSet  = "changeset" // see changeset.go
	rowLimits     = "limits"
	rowPause      = "pause"
	rowDefinition = "definition" // see AppDefinition
	rowAlert      = "alert"
)

// ValueRows returns the prefix of the row keys of the values in a bucket.
func ValueRows(app, bucket string) string { return rowValue + "/" + app + "/" + bucket + "/" }

func (s *Slot) rowKey(kind, rest string) string { return kind + "/" + s.App + "/" + rest }

func (s *Slot) changed(fx []Effect, kind, rest string, value proto.Message) []Effect {
	return append(fx, Effect{Change: RowChanged, Row: &Row{Key: s.rowKey(kind, rest), Value: value}})
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// App returns the app of a row that belongs to one.
func (r *Row) App() string {
	_, rest, _ := strings.Cut(r.Key, "/")
	app, _, _ := strings.Cut(rest, "/")
	return app
}

// Defines returns the kind of the definition that the row has; "": it has none.
func (r *Row) Defines() string {
	if !isKind(r.Key, rowDefinition) {
		return ""
	}
	_, kind, _ := strings.Cut(r.Key[len(rowDefinition)+1:], "/")
	kind, _, _ = strings.Cut(kind, "/")
	return kind
}

// definitionKey names a definition in its app.
type definitionKey struct{ kind, name string }

func (s *Slot) changedSet(rows []setRow, fx []Effect) []Effect {
	for _, r := range rows {
		fx = s.changed(fx, rowChangeSet, r.key, r.value)
	}
	return fx
}

// ChangeSet returns the change set that is being applied; nil: none, or the slot is not the
// module slot.
func (s *Slot) ChangeSet() *ChangeSet {
	if s.changeSet == nil || s.changeSet.Row == nil || s.changeSet.Row.Applied >= s.changeSet.Row.Changes {
		return nil
	}
	return s.changeSet
}

// ChangeSetNumber returns the number of the last change set that was stored; 0: none.
func (s *Slot) ChangeSetNumber() uint64 {
	if s.changeSet == nil {
		return 0
	}
	return s.changeSet.Row.GetNumber()
}

// ReachedBy returns the position of a change set before which the changes of the slot were
// applied. newer reports that a newer set has reached the slot.
func (s *Slot) ReachedBy(set uint64) (applied int64, newer bool) {
	if last := s.lastSet.GetSet(); last != set {
		return 0, last > set
	}
	return s.lastSet.GetApplied(), false
}

// applyGuest applies a record that concerns the state for handlers.
func (s *Slot) applyGuest(rec *apiv1.Record, fx []Effect) []Effect {
	switch k := rec.Kind.(type) {
	case *apiv1.Record_ValuePut:
		if k.ValuePut.GetRow() != nil {
			fx = s.putValue(k.ValuePut, fx)
		}
	case *apiv1.Record_ValueDelete:
		fx = s.deleteValue(k.ValueDelete, fx)
	case *apiv1.Record_SecretPut:
		if m := k.SecretPut.GetSecret(); m != nil {
			set(&s.guests.secrets, m.Name, m)
			fx = s.changed(fx, rowSecret, m.Name, m)
		}
	case *apiv1.Record_SecretDelete:
		if name := k.SecretDelete.GetName(); s.guests.secrets[name] != nil {
			delete(s.guests.secrets, name)
			fx = s.changed(fx, rowSecret, name, nil)
		}
	case *apiv1.Record_GrantsPut:
		if m := k.GrantsPut.GetGrants(); m != nil {
			fx = s.putGrants(m, fx)
		}
	case *apiv1.Record_DefinitionPut:
		fx = s.putDefinition(k.DefinitionPut.GetDefinition(), fx)
	case *apiv1.Record_DefinitionDelete:
		fx = s.deleteDefinition(definitionKey{k.DefinitionDelete.GetKind(), k.DefinitionDelete.GetName()}, fx)
	case *apiv1.Record_Alerted:
		fx = s.putAlerts(k.Alerted.GetRows(), fx)
	case *apiv1.Record_Checkpointed:
		c := k.Checkpointed
		if r := s.Runs.Get(runID(c.Run)); r != nil && r.State == Running && r.Attempt == c.Attempt {
			row := &apiv1.CheckpointRow{Data: c.Data}
			set(&s.guests.checkpoints, r.ID, row)
			fx = s.changed(fx, rowCheckpoint, r.ID.String(), row)
		}
	case *apiv1.Record_Mapped:
		fx = s.mapParts(k.Mapped, rec.AtMs, fx)
	case *apiv1.Record_AppDelete:
		fx = s.deleteApp(rec.AtMs, fx)
	case *apiv1.Record_AppLimits:
		s.Limits = k.AppLimits
		fx = s.changed(fx, rowLimits, "", s.Limits)
	case *apiv1.Record_AppPause:
		fx = s.setPause(k.AppPause, fx)
	case *apiv1.Record_ChangeSetPart:
		if s.changeSet == nil {
			s.changeSet = &ChangeSet{}
		}
		fx = s.changedSet(s.changeSet.add(k.ChangeSetPart), fx)
	case *apiv1.Record_ChangeSetStep:
		if s.ChangeSet() != nil {
			fx = s.changedSet(s.changeSet.advance(k.ChangeSetStep.Applied), fx)
		}
	case *apiv1.Record_ChangeSetShared:
		if m := k.ChangeSetShared; m.Set > s.lastSet.GetSet() || m.Set == s.lastSet.GetSet() && m.Applied > s.lastSet.GetApplied() {
			s.lastSet = m
			fx = s.setOwnership(s.Ownership, fx)
		}
	}
	return fx
}

// setPause sets the pause of the app; nil or an empty one: none.
func (s *Slot) setPause(p *apiv1.AppPause, fx []Effect) []Effect {
	if p.GetSince() == nil {
		if s.Pause == nil {
			return fx
		}
		s.Pause = nil
		return s.changed(fx, rowPause, "", nil)
	}
	s.Pause = p
	return s.changed(fx, rowPause, "", p)
}

// deleteApp empties the slot. It does nothing while there are jobs or live runs.
func (s *Slot) deleteApp(atMs int64, fx []Effect) []Effect {
	if s.Jobs.Len()+s.Runs.Len() > 0 {
		return fx
	}
	keys := slices.SortedFunc(maps.Keys(s.guests.values), func(a, b valueKey) int {
		return cmp.Or(strings.Compare(a.bucket, b.bucket), strings.Compare(a.key, b.key))
	})
	for _, k := range keys {
		fx = s.deleteValue(&apiv1.ValueDelete{Bucket: k.bucket, Key: k.key}, fx)
	}
	if s.Index != ModuleSlot {
		return fx
	}
	for _, name := range slices.Sorted(maps.Keys(s.guests.secrets)) {
		delete(s.guests.secrets, name)
		fx = s.changed(fx, rowSecret, name, nil)
	}
	for _, module := range slices.Sorted(maps.Keys(s.guests.grants)) {
		fx = s.putGrants(&apiv1.ModuleGrants{Module: module}, fx)
	}
	for _, ref := range slices.Sorted(maps.Keys(s.Aliases)) {
		fx = s.deleteAlias(&apiv1.AliasDelete{Module: s.Aliases[ref].Module, Name: s.Aliases[ref].Name}, fx)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Calendars)) {
		fx = append(fx, Effect{Change: CalendarDeleted, Calendar: s.Calendars[name]})
	}
	clear(s.Calendars)
	for _, ref := range slices.Sorted(maps.Keys(s.Modules)) {
		fx = append(fx, Effect{Change: ModuleDeleted, Module: s.Modules[ref]})
	}
	clear(s.Modules)
	fx = s.dropDefinitions(fx)
	fx = s.setPause(nil, fx)
	s.revisions = s.revisions[:0] // an app that is gone has no history
	s.Settings = &apiv1.App{Name: s.App, DeletedAt: timestamppb.New(time.UnixMilli(atMs))}
	return append(fx, Effect{Change: AppChanged, App: s.Settings})
}

// Deleted reports whether an app with these settings was deleted, and has had no settings
// since.
func Deleted(settings *apiv1.App) bool {
	return settings.GetDeletedAt() != nil && settings.UpdatedAt == nil
}

// HasResources reports whether the slot has anything except jobs and runs.
func (s *Slot) HasResources() bool {
	g := &s.guests
	return len(g.values)+len(g.secrets)+len(g.grants)+len(g.definitions)+len(s.Aliases)+len(s.Calendars)+len(s.Modules) > 0
}

// Checkpoint returns the last checkpoint of a live run.
func (s *Slot) Checkpoint(id RunID) (data []byte, ok bool) {
	row := s.guests.checkpoints[id]
	return row.GetData(), row != nil
}

// dropCheckpoint removes the checkpoint of a run that has ended.
func (s *Slot) dropCheckpoint(r *Run, fx []Effect) []Effect {
	if s.guests.checkpoints[r.ID] == nil {
		return fx
	}
	delete(s.guests.checkpoints, r.ID)
	return s.changed(fx, rowCheckpoint, r.ID.String(), nil)
}

// Secret returns the stored form of a secret, or nil.
func (s *Slot) Secret(name string) *apiv1.SecretRow { return s.guests.secrets[name] }

// Secrets returns the number of secrets and calls fn for each, in no order.
func (s *Slot) Secrets(fn func(*apiv1.SecretRow)) int {
	for _, m := range s.guests.secrets {
		fn(m)
	}
	return len(s.guests.secrets)
}

// errRow reports a row in the store that this version does not write.
var errRow = errors.New("this version does not write such a row")

// LoadRow restores a small row of the store. The live runs must have been loaded before.
// orphan reports that the run of the row no longer exists, so that the caller deletes the
// row. The caller must choose the slot by [SlotOfRow].
func (s *Slot) LoadRow(kind, rest string, value []byte) (orphan bool, err error) {
	switch kind {
	case rowValue:
		k, ok := parseValueKey(rest)
		m := &apiv1.ValueRow{}
		if !ok {
			return false, errRow
		}
		if err := proto.Unmarshal(value, m); err != nil {
			return false, err
		}
		s.keepValue(k, m)
	case rowVersion:
		m := &apiv1.VersionRow{}
		if err := proto.Unmarshal(value, m); err != nil {
			return false, err
		}
		s.guests.version = max(s.guests.version, m.Version)
	case rowSecret:
		m := &apiv1.SecretRow{}
		set(&s.guests.secrets, rest, m)
		return false, proto.Unmarshal(value, m)
	case rowGrants:
		m := &apiv1.ModuleGrants{}
		set(&s.guests.grants, rest, m)
		return false, proto.Unmarshal(value, m)
	case rowCheckpoint:
		id, err := ParseRunID(rest)
		if err != nil {
			return false, err
		}
		if s.Runs.Get(id) == nil {
			return true, nil
		}
		m := &apiv1.CheckpointRow{}
		set(&s.guests.checkpoints, id, m)
		return false, proto.Unmarshal(value, m)
	case rowMapInputs, rowMapOutputs:
		return s.loadMapRow(kind, rest, value)
	case rowOwnership:
		return false, s.loadOwnership(value)
	case rowHome:
		m := &apiv1.HomeRow{}
		if err := proto.Unmarshal(value, m); err != nil {
			return false, err
		}
		s.Home = m.Unit
	case rowDefinition:
		m := &apiv1.DefinitionRow{}
		if err := proto.Unmarshal(value, m); err != nil {
			return false, err
		}
		if kind, d := unwrap(m); d != nil {
			set(&s.guests.definitions, definitionKey{kind, d.GetName()}, d)
		}
	case rowAlert:
		m := &apiv1.AlertRow{}
		set(&s.guests.alerts, rest, m)
		return false, proto.Unmarshal(value, m)
	case rowLimits:
		s.Limits = &apiv1.AppLimits{}
		return false, proto.Unmarshal(value, s.Limits)
	case rowPause:
		s.Pause = &apiv1.AppPause{}
		return false, proto.Unmarshal(value, s.Pause)
	case rowChangeSet:
		if s.changeSet == nil {
			s.changeSet = &ChangeSet{}
		}
		if ok, err := s.changeSet.load(rest, value); err != nil || !ok {
			return false, cmp.Or(err, errRow)
		}
	default:
		return false, fmt.Errorf("kind %q: %w", kind, errRow)
	}
	return false, nil
}

// SlotOfRow returns the slot to which a small row belongs. ok is false for a row that
// does not belong to a slot.
func SlotOfRow(kind, rest string) (slot uint8, ok bool, err error) {
	switch kind {
	case rowValue:
		k, ok := parseValueKey(rest)
		if !ok {
			return 0, true, errRow
		}
		return SlotOfValue(k.bucket, k.key), true, nil
	case rowVersion, rowOwnership:
		if _, err := fmt.Sscanf(rest, "%d", &slot); err != nil || slot >= Slots {
			return 0, true, errRow
		}
		return slot, true, nil
	case rowSecret, rowGrants, rowHome, rowChangeSet, rowLimits, rowPause, rowDefinition, rowAlert:
		return ModuleSlot, true, nil
	case rowCheckpoint, rowMapInputs, rowMapOutputs:
		const length = 26 // of the text of a run's id
		if len(rest) < length {
			return 0, true, errRow
		}
		id, err := ParseRunID(rest[:length])
		return id.Slot(), true, err
	}
	return 0, false, nil
}

// Definition returns a definition; nil: there is none.
func (s *Slot) Definition(kind, name string) AppDefinition {
	return s.guests.definitions[definitionKey{kind, name}]
}

// DefinitionsOf returns the definitions of a kind by name.
func (s *Slot) DefinitionsOf(kind string) (all []AppDefinition) {
	for key, d := range s.guests.definitions {
		if key.kind == kind {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b AppDefinition) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

func (s *Slot) putDefinition(row *apiv1.DefinitionRow, fx []Effect) []Effect {
	kind, d := unwrap(row)
	if d == nil {
		return fx
	}
	key := definitionKey{kind, d.GetName()}
	revise(s, kind, key.name, s.guests.definitions[key], d)
	set(&s.guests.definitions, key, d)
	return s.changed(fx, rowDefinition, kind+"/"+key.name, row)
}

func (s *Slot) deleteDefinition(key definitionKey, fx []Effect) []Effect {
	old := s.guests.definitions[key]
	if old == nil {
		return fx
	}
	revise(s, key.kind, key.name, old, nil)
	delete(s.guests.definitions, key)
	return s.changed(fx, rowDefinition, key.kind+"/"+key.name, nil)
}

// numberDefinition sets the number of the revision of a definition that is put.
func (s *Slot) numberDefinition(row *apiv1.DefinitionRow) {
	kind, d := unwrap(row)
	if d == nil {
		return
	}
	m := d.ProtoReflect()
	number := next(s.guests.definitions[definitionKey{kind, d.GetName()}], d)
	m.Set(m.Descriptor().Fields().ByName("revision"), protoreflect.ValueOfInt64(number))
}

// putAlerts sets parts of the state of alerts.
func (s *Slot) putAlerts(rows []*apiv1.AlertRow, fx []Effect) []Effect {
	for _, row := range rows {
		if len(row.Value) == 0 {
			if s.guests.alerts[row.Key] == nil {
				continue
			}
			delete(s.guests.alerts, row.Key)
			fx = s.changed(fx, rowAlert, row.Key, nil)
			continue
		}
		set(&s.guests.alerts, row.Key, row)
		fx = s.changed(fx, rowAlert, row.Key, row)
	}
	return fx
}

// HasAlerts reports whether the slot has a part of the state of alerts.
func (s *Slot) HasAlerts() bool { return len(s.guests.alerts) > 0 }

// Alerts calls fn for each part of the state of the alerts of the app, in no order. fn must not
// modify the value.
func (s *Slot) Alerts(fn func(key string, value []byte)) {
	for key, row := range s.guests.alerts {
		fn(key, row.Value)
	}
}

// dropDefinitions empties the definitions and the state of alerts.
func (s *Slot) dropDefinitions(fx []Effect) []Effect {
	var keys []definitionKey
	for key := range s.guests.definitions {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b definitionKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, key := range keys {
		fx = s.deleteDefinition(key, fx)
	}
	var rows []*apiv1.AlertRow
	for key := range s.guests.alerts {
		rows = append(rows, &apiv1.AlertRow{Key: key})
	}
	slices.SortFunc(rows, func(a, b *apiv1.AlertRow) int { return cmp.Compare(a.Key, b.Key) })
	return s.putAlerts(rows, fx)
}
