package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// A split app has its slots in several partitions, each with a [Server] of this package.
// The jobs of a slot are in one partition at a time; job/move.go describes how a slot
// moves. Modules, aliases, calendars, secrets, grants and settings change only in the
// primary partition, and the other partitions have copies. Values of handlers have no
// copies: the other partitions call the primary partition for them. See ADR 24.

// reopen resumes a slot whose move was given up.
func (mo *Moves) reopen(s *job.Slot) {
	c := mo.departing[s]
	if c == nil {
		return
	}
	delete(mo.departing, s)
	if s.Ownership.State != job.Here {
		return
	}
	for _, r := range c.parked {
		if mo.l.timing.due(r) {
			mo.l.Dispatcher.enqueue(r)
		}
	}
}

// BusyError says why a slot cannot leave now.
type BusyError struct{ why string }

func (e *BusyError) Error() string { return e.why }

// LeaveTo freezes a slot before it moves to another partition, and returns the number of the
// move. It fails with a [BusyError] while hosts execute runs of the slot; from then on the
// slot dispatches no run until it is reopened.
func (mo *Moves) LeaveTo(app string, slot uint8, partition string) (uint64, error) {
	a := mo.l.State.apps[app]
	switch {
	case a == nil || slot >= job.Slots || slot == job.ModuleSlot:
		return 0, status.Errorf(codes.InvalidArgument, "slot %d of app %s does not move", slot, app)
	case a.slots[slot].Ownership.State == job.Leaving:
		return a.slots[slot].Ownership.Move, nil
	case !here(a.slots[slot]):
		return 0, &MovedError{app, slot}
	}
	s := a.slots[slot]
	if why := mo.pinReason(a, slot); why != "" {
		return 0, status.Error(codes.FailedPrecondition, why)
	}
	if err := mo.l.commits.refuse(); err != nil {
		return 0, err
	}
	if mo.departing[s] == nil {
		if mo.departing == nil {
			mo.departing = map[*job.Slot]*departingSlot{}
		}
		mo.departing[s] = &departingSlot{}
	}
	if mo.l.Holds.Free(app) != nil {
		return 0, &BusyError{"a change set is being applied"}
	}
	if why := s.Busy(); why != "" {
		return 0, &BusyError{why}
	}
	if mo.l.Sessions.recovering { // a host may execute a run whose start was never recorded
		return 0, &BusyError{"the partition has a new owner, and hosts have not said yet what they execute"}
	}
	mo.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_SlotLeaving{SlotLeaving: &apiv1.SlotLeaving{Move: s.Ownership.Move + 1, Unit: partition}}})
	if s.Ownership.State != job.Leaving {
		return 0, fmt.Errorf("slot %d of app %s could not be frozen", slot, app) // never: it is not busy
	}
	return s.Ownership.Move, nil
}

// pinReason returns the reference that ties a slot to the other slots of its app; "": none.
// A reference to a job that does not exist counts too, because the job may be created.
func (mo *Moves) pinReason(a *app, slot uint8) string {
	if rules := a.slots[job.ModuleSlot].DefinitionsOf(job.KindAlertRule); len(rules) > 0 {
		return fmt.Sprintf("alert rule %s sees the jobs of one partition: an app with alert rules stays together", rules[0].GetName())
	}
	if a.alerts != nil && len(a.alerts.own) > 0 {
		return fmt.Sprintf("job %s has alerts, and alerts see the jobs of one partition: an app with alerts stays together", a.alerts.own.firstJob())
	}
	if j := mo.startedIn(a, slot); j != nil {
		return fmt.Sprintf("events start job %s: such jobs stay in the partition where app %s began, which takes the events", j.Name(), a.name)
	}
	for _, s := range a.slots {
		if !here(s) || !s.Refers() {
			continue
		}
		for j := range s.Jobs.All() {
			for _, other := range j.Refers() {
				if s.Index == slot || job.SlotOf(other) == slot {
					return fmt.Sprintf("job %s refers to job %s: jobs that refer to each other stay in the partition where app %s began", j.Name(), other, a.name)
				}
			}
		}
	}
	return ""
}

// startedIn returns a job of a slot with a trigger; nil: there is none.
func (mo *Moves) startedIn(a *app, slot uint8) *job.Job {
	for k, of := range mo.l.relations.started {
		if k.app != a.name {
			continue
		}
		for _, j := range of {
			if j.Current() && j.Event() != nil && j.Slot().Index == slot {
				return j
			}
		}
	}
	return nil
}

// Share describes the sub-app that one partition has.
type Share struct {
	Home  string                       // the primary partition; "": this one
	Slots [job.Slots]job.SlotOwnership // as this partition knows them
	Here  [job.Slots]bool              // the slots whose jobs are in this partition
	Rates [job.Slots]float64           // armed and triggered runs a second, with a half-life of 30 s
}

// shares returns the shares of the apps that are active or split.
func (mo *Moves) shares() map[string]Share {
	all := map[string]Share{}
	for name, a := range mo.l.State.apps {
		if sh, busy := mo.shareOf(a); busy || sh.Home != "" {
			all[name] = sh
		}
	}
	return all
}

func (mo *Moves) shareOf(a *app) (sh Share, busy bool) {
	sh.Home = a.primary()
	for i, s := range a.slots {
		sh.Slots[i], sh.Here[i] = s.Ownership, here(s)
		if a.rates != nil {
			sh.Rates[i] = a.rates[i].value(mo.l.clock.now)
		}
		busy = busy || sh.Rates[i] > 0.01 || s.Ownership != (job.SlotOwnership{})
	}
	return sh, busy
}

// countSlot counts one activation of a slot. Only a cluster needs the rates, for its placement.
func (mo *Moves) countSlot(a *app, slot uint8) {
	if !mo.l.cfg.Cluster {
		return
	}
	if a.rates == nil {
		a.rates = new([job.Slots]slotRate)
	}
	if a.rates[slot].pending == 0 {
		mo.countedRates = append(mo.countedRates, &a.rates[slot])
	}
	a.rates[slot].pending++
}

// publishRates adds the counts of this turn to the rates of the slots.
func (mo *Moves) publishRates() {
	for _, r := range mo.countedRates {
		r.add(mo.l.clock.now, r.pending)
		r.pending = 0
	}
	mo.countedRates = mo.countedRates[:0]
}

// CopyApp replaces this partition's copy of the state that the primary partition of an app
// has.
func (mo *Moves) CopyApp(st *apiv1.AppState) error {
	a := mo.l.State.app(st.App)
	m := a.slots[job.ModuleSlot]
	if a.primary() == "" && (m.Settings != nil || slices.ContainsFunc(a.slots[:], func(s *job.Slot) bool { return s.Jobs.Len() > 0 || s.Ownership.Move > 0 })) {
		return status.Errorf(codes.FailedPrecondition, "app %s began in this partition: it is not a copy of what is in %s", st.App, st.Home)
	}
	is := stamp{epoch: st.Epoch, revision: st.Revision}
	if is.before(a.copied) {
		return status.Errorf(codes.FailedPrecondition, "a later state of app %s has come to this partition", st.App)
	}
	if err := mo.l.commits.refuse(); err != nil {
		return err
	}
	a.copied = is
	if a.primary() != st.Home {
		mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_AppHomed{AppHomed: &apiv1.AppHomed{Unit: st.Home}}})
	}
	if at := st.Settings.GetDeletedAt(); at != nil && !proto.Equal(at, m.Settings.GetDeletedAt()) {
		for _, s := range a.slots {
			mo.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_AppDelete{AppDelete: &apiv1.AppDelete{}}})
		}
	}
	if st.Settings != nil && !proto.Equal(m.Settings, st.Settings) {
		mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_AppPut{AppPut: &apiv1.AppPut{App: st.Settings}}})
	}
	if !proto.Equal(m.Limits, st.Limits) {
		mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_AppLimits{AppLimits: cmp.Or(st.Limits, &apiv1.AppLimits{})}})
	}
	if !proto.Equal(m.Pause, st.Pause) {
		mo.l.Commands.pause(a, cmp.Or(st.Pause, &apiv1.AppPause{}))
	}
	for _, x := range st.Modules {
		if !proto.Equal(m.Modules[x.Name+"@"+x.Version], x) {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: x}}})
		}
	}
	mo.copyAliases(m, st.Aliases)
	if err := mo.copyCalendars(m, st.Calendars); err != nil {
		return err
	}
	mo.copySecrets(m, st.Secrets)
	mo.copyGrants(m, st.Grants)
	return nil
}

func (mo *Moves) copyAliases(m *job.Slot, to []*apiv1.Alias) {
	stay := map[string]bool{}
	for _, x := range to {
		ref := x.Module + "@" + x.Name
		if stay[ref] = true; !proto.Equal(m.Aliases[ref], x) {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_AliasPut{AliasPut: &apiv1.AliasPut{Alias: x}}})
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(m.Aliases)) {
		if x := m.Aliases[ref]; !stay[ref] {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_AliasDelete{AliasDelete: &apiv1.AliasDelete{Module: x.Module, Name: x.Name}}})
		}
	}
}

// copyCalendars also updates the planned times of the jobs that name a changed calendar.
// It does not delete a calendar that a job names.
func (mo *Moves) copyCalendars(m *job.Slot, to []*apiv1.Calendar) error {
	stay := map[string]bool{}
	for _, c := range to {
		stay[c.Name] = true
		c, have := proto.CloneOf(c), proto.CloneOf(m.Calendars[c.Name])
		if have != nil {
			have.UpdatedAt = c.UpdatedAt // the copy has the time at which it was made
		}
		if proto.Equal(have, c) {
			continue
		}
		compiled, err := schedule.CompileCalendar(c)
		if err != nil {
			return Invalid(err)
		}
		if _, err := mo.l.Planner.PutCalendar(c, compiled); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Calendars)) {
		if !stay[name] && len(mo.l.Planner.naming(m.App, name)) == 0 {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_CalendarDelete{CalendarDelete: &apiv1.CalendarDelete{Name: name}}})
		}
	}
	return nil
}

func (mo *Moves) copySecrets(m *job.Slot, to []*apiv1.SecretRow) {
	stay := map[string]bool{}
	for _, row := range to {
		if stay[row.Name] = true; !proto.Equal(m.Secret(row.Name), row) {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_SecretPut{SecretPut: &apiv1.SecretPut{Secret: row}}})
		}
	}
	var gone []string
	m.Secrets(func(row *apiv1.SecretRow) {
		if !stay[row.Name] {
			gone = append(gone, row.Name)
		}
	})
	slices.Sort(gone)
	for _, name := range gone {
		mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_SecretDelete{SecretDelete: &apiv1.SecretDelete{Name: name}}})
	}
}

func (mo *Moves) copyGrants(m *job.Slot, to []*apiv1.ModuleGrants) {
	stay := map[string]bool{}
	for _, g := range to {
		if stay[g.Module] = true; !proto.Equal(m.Grants(g.Module), g) {
			mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: g}}})
		}
	}
	var gone []string
	m.Granted(func(g *apiv1.ModuleGrants) {
		if !stay[g.Module] {
			gone = append(gone, g.Module)
		}
	})
	slices.Sort(gone)
	for _, name := range gone {
		mo.l.commits.record(m, &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: &apiv1.ModuleGrants{App: m.App, Module: name}}}})
	}
}

// NotPrimary is the error of a handler's call that only the primary partition can answer. The
// server then makes the call there.
type NotPrimary struct{}

func (NotPrimary) Error() string { return "only the primary partition of the app can answer" }

// ErrIfNotPrimary returns NotPrimary if the primary partition of the app is another one.
func (gu *Guests) ErrIfNotPrimary(app string) error {
	if gu.l.State.apps[app].primary() != "" {
		return NotPrimary{}
	}
	return nil
}

// Frozen returns a slot that was frozen for a move; nil: it is not.
func (mo *Moves) Frozen(app string, slot uint8, move uint64) *job.Slot {
	if a := mo.l.State.apps[app]; a != nil {
		if s := a.slots[slot]; s.Ownership.State == job.Leaving && s.Ownership.Move == move {
			return s
		}
	}
	return nil
}

// Take records a chunk of a slot that arrives. caller identifies the call of Take that
// brings the slot. done reports that the slot has arrived before.
func (mo *Moves) Take(app string, slot uint8, chunk *apiv1.SlotComing, caller *byte) (done bool, err error) {
	a := mo.l.State.app(app)
	s, move := a.slots[slot], chunk.Move
	switch p := s.Ownership; {
	case p.Move > move, p.Move == move && p.State != job.Coming:
		return true, nil // it may have left again
	case p.State == job.Leaving:
		return false, status.Errorf(codes.Aborted, "slot %d of app %s is leaving here itself", slot, app)
	case a.primary() == "" && p.Move == 0:
		return false, status.Errorf(codes.FailedPrecondition, "app %s began in this partition: its slot %d was never elsewhere", app, slot)
	case !chunk.First && mo.taking[s] != caller:
		return false, status.Errorf(codes.Aborted, "another server brings slot %d of app %s", slot, app)
	}
	if err := mo.l.commits.refuse(); err != nil {
		return false, err
	}
	if mo.taking == nil {
		mo.taking = map[*job.Slot]*byte{}
	}
	mo.taking[s] = caller
	mo.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_SlotComing{SlotComing: chunk}})
	if s.Ownership.Broken() || chunk.Last && s.Ownership.State != job.Here {
		return false, status.Errorf(codes.Internal, "slot %d of app %s could not be made of what came", slot, app)
	}
	if chunk.Last {
		delete(mo.taking, s)
	}
	return false, nil
}

// Forget records that a slot has arrived in the other partition. It does nothing if the
// slot is not frozen for that move.
func (mo *Moves) Forget(app string, slot uint8, move uint64) error {
	s := mo.Frozen(app, slot, move)
	if s == nil {
		return nil
	}
	if err := mo.l.commits.refuseChange(); err != nil {
		return err
	}
	mo.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_SlotLeft{SlotLeft: &apiv1.SlotLeft{Move: move}}})
	return nil
}

// ReopenSlot resumes a slot whose move was given up. It does nothing if there is no such app.
func (mo *Moves) ReopenSlot(app string, slot uint8) {
	if a := mo.l.State.apps[app]; a != nil {
		mo.reopen(a.slots[slot])
	}
}

// ShareOfApp returns the share of an app that this partition has; nil: it has none.
func (mo *Moves) ShareOfApp(app string) *Share {
	a := mo.l.State.apps[app]
	if a == nil {
		return nil
	}
	sh, _ := mo.shareOf(a)
	return &sh
}

// Ready returns the reason why no slot of an app can move to this partition now; nil: a
// slot can.
func (mo *Moves) Ready(app string) error {
	a := mo.l.State.apps[app]
	if a == nil || a.primary() == "" && !a.split() {
		return status.Errorf(codes.FailedPrecondition, "this partition has no copy yet of the modules and settings of app %s", app)
	}
	return mo.l.commits.refuse()
}

// AppState returns the state that only the primary partition of an app changes; nil: this
// is not the primary partition, or it does not have the app.
func (mo *Moves) AppState(app string) *apiv1.AppState {
	a := mo.l.State.apps[app]
	if a == nil || a.primary() != "" {
		return nil
	}
	m := a.slots[job.ModuleSlot]
	st := &apiv1.AppState{App: app, Settings: m.Settings, Limits: m.Limits, Pause: m.Pause}
	for _, k := range slices.Sorted(maps.Keys(m.Modules)) {
		st.Modules = append(st.Modules, m.Modules[k])
	}
	for _, k := range slices.Sorted(maps.Keys(m.Aliases)) {
		st.Aliases = append(st.Aliases, m.Aliases[k])
	}
	for _, k := range slices.Sorted(maps.Keys(m.Calendars)) {
		st.Calendars = append(st.Calendars, m.Calendars[k])
	}
	m.Secrets(func(row *apiv1.SecretRow) { st.Secrets = append(st.Secrets, row) })
	slices.SortFunc(st.Secrets, func(a, b *apiv1.SecretRow) int { return strings.Compare(a.Name, b.Name) })
	m.Granted(func(g *apiv1.ModuleGrants) { st.Grants = append(st.Grants, g) })
	slices.SortFunc(st.Grants, func(a, b *apiv1.ModuleGrants) int { return strings.Compare(a.Module, b.Module) })
	return st
}

// firstJob returns the name of the first job with alerts; "": there is none.
func (x jobAlerts) firstJob() string {
	if len(x) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(x)))
}
