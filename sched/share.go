package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// A split app has its slots in several partitions, each with a [Server] of this package.
// The jobs of a slot are in one partition at a time; job/move.go describes how a slot
// moves. Modules, aliases, calendars, secrets, grants and settings change only in the
// primary partition, and the other partitions have copies. Values of handlers have no
// copies: the other partitions call the primary partition for them. See ADR 24.

// Remote calls the servers of other partitions. Implementations are safe for concurrent
// use.
type Remote interface {
	// Run returns a run of an app that another partition has, live or in its history;
	// nil: no partition has it.
	Run(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error)
	// Get, Put and Delete read and change a value of the app in its primary partition.
	// The caller has checked that the run may use the value.
	Get(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error)
	Put(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error)
	Delete(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error
	// Enqueue enqueues a job in the partition that has it, for a run of the app from. The
	// caller has checked that the module of the run may enqueue it.
	Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, traceParent string) (*apiv1.GuestEnqueueResponse, error)
}

// MovedError says that a slot is in another partition or is moving. The call has changed
// nothing: the caller finds the partition of the slot and calls its owner.
type MovedError struct {
	App  string
	Slot uint8
}

// MovedText is the beginning of the text of a [MovedError]. The result of a command
// contains only the text, so callers recognise the error by it.
const MovedText = "the job is on its way to another unit of the cluster"

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s, with slot %d of app %s: try again in a moment", MovedText, e.Slot, e.App)
}

// GRPCStatus returns the code Unavailable, with which clients retry.
func (e *MovedError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// claim is the slot that must be in this partition for a call, see [OnSlot].
type claim struct {
	app  string
	slot uint8
}

type claimKey struct{}

// OnSlot returns a context with which each call fails with a [MovedError] if the
// slot is not here. Every call checks it, because the slot may move between two calls.
func OnSlot(ctx context.Context, app string, slot uint8) context.Context {
	return context.WithValue(ctx, claimKey{}, claim{appOf(app), slot})
}

// OffSlot returns a context without the condition of [OnSlot].
func OffSlot(ctx context.Context) context.Context { return context.WithValue(ctx, claimKey{}, nil) }

// claimed returns an error if the slot that a context claims is not here.
func (l *loop) claimed(c claim) error {
	if a := l.apps[c.app]; a != nil {
		return l.errIfMoving(a.slots[c.slot])
	}
	return nil
}

// home is the primary partition of the app; "": this one.
func (a *app) home() string { return a.slots[job.ModuleSlot].Home }

// here reports whether the jobs of a slot are in this partition.
func here(s *job.Slot) bool {
	return s.Ownership.State == job.Here && (s.Ownership.Move > 0 || ownerOf(s).home() == "")
}

// split reports whether slots of the app are, or may be, in another partition.
func (a *app) split() bool {
	return a.home() != "" || slices.ContainsFunc(a.slots[:], func(s *job.Slot) bool { return s.Ownership.State != job.Here })
}

// share returns the number of slots of the app in this partition, at most [job.Slots].
func (a *app) share() (n int64) {
	for _, s := range a.slots {
		if here(s) {
			n++
		}
	}
	return n
}

// errIfMoving fails with a [MovedError] if the slot has moved or is moving.
func (l *loop) errIfMoving(s *job.Slot) error {
	if !here(s) {
		return &MovedError{s.App, s.Index}
	}
	return nil
}

// errIfJobMoving is errIfMoving for the slot of a job.
func (l *loop) errIfJobMoving(app, name string) error {
	return l.claimed(claim{app, job.SlotOf(name)})
}

// has reports whether the slot of a job is in this partition.
func (l *loop) has(app, name string) bool {
	a := l.apps[app]
	return a != nil && here(a.slots[job.SlotOf(name)])
}

// errIfCrossPartition fails if the job other, to which def refers, is in another
// partition: jobs that refer to each other must be in the same partition.
func (l *loop) errIfCrossPartition(def *apiv1.Job, other string) error {
	if a := l.apps[def.App]; a == nil || here(a.slots[job.SlotOf(other)]) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "job %s: it refers to job %s, and app %s is split: the two are in different partitions of the cluster. Bring the app together with `wheelwork cluster merge %s`; the jobs that refer to each other stay together afterwards", def.Name, other, def.App, def.App)
}

// errIfSplit fails if the app is split. Operations that must see all jobs of an app call it.
func (a *app) errIfSplit() error {
	if a == nil || !a.split() {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "app %s is split over several partitions of the cluster, and jobs of it in other partitions may refer to this: bring it together with `wheelwork cluster merge %s` first", a.name, a.name)
}

// departingSlot is a slot that leaves when its tasks at hosts have ended. Until then its
// due runs are not dispatched; triggers and schedules go on.
type departingSlot struct {
	parked []*job.Run // due, in the order in which they would have been dispatched
}

// reopen resumes a slot whose move was given up.
func (l *loop) reopen(s *job.Slot) {
	c := l.departing[s]
	if c == nil {
		return
	}
	delete(l.departing, s)
	if s.Ownership.State != job.Here {
		return
	}
	for _, r := range c.parked {
		if l.due(r) {
			l.enqueue(r)
		}
	}
}

// departPoll is the interval at which Leave checks whether the runs of a slot have ended.
const departPoll = 5 * time.Millisecond

// BusyError says why a slot cannot leave now.
type BusyError struct{ why string }

func (e *BusyError) Error() string { return e.why }

// Leave freezes a slot before it moves to another partition, and returns the number of
// the move. A frozen slot remains frozen. Up to patience, Leave dispatches no run of the
// slot and waits for the runs that hosts have. After a [BusyError] the slot has not
// moved, and the caller may try again later.
func (s *Server) Leave(ctx context.Context, app string, slot uint8, partition string, patience time.Duration) (move uint64, err error) {
	over := time.Now().Add(patience)
	defer s.loop.do(func(l *loop) {
		if a := l.apps[app]; a != nil {
			l.reopen(a.slots[slot])
		}
	})
	for {
		move, err = askDurable(ctx, s.loop, func(l *loop, answer func(uint64, error)) {
			move, err := l.leaveTo(app, slot, partition)
			if err != nil {
				answer(0, err)
				return
			}
			l.onDurable(func(err error) { answer(move, err) })
		})
		var busy *BusyError
		if !errors.As(err, &busy) || !time.Now().Before(over) {
			return move, err
		}
		select {
		case <-time.After(departPoll):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (l *loop) leaveTo(app string, slot uint8, partition string) (uint64, error) {
	a := l.apps[app]
	switch {
	case a == nil || slot >= job.Slots || slot == job.ModuleSlot:
		return 0, status.Errorf(codes.InvalidArgument, "slot %d of app %s does not move", slot, app)
	case a.slots[slot].Ownership.State == job.Leaving:
		return a.slots[slot].Ownership.Move, nil
	case !here(a.slots[slot]):
		return 0, &MovedError{app, slot}
	}
	s := a.slots[slot]
	if why := l.pinReason(a, slot); why != "" {
		return 0, status.Error(codes.FailedPrecondition, why)
	}
	if err := l.refuse(); err != nil {
		return 0, err
	}
	if l.departing[s] == nil {
		if l.departing == nil {
			l.departing = map[*job.Slot]*departingSlot{}
		}
		l.departing[s] = &departingSlot{}
	}
	if why := s.Busy(); why != "" {
		return 0, &BusyError{why}
	}
	if l.recovering { // a host may execute a run whose start was never recorded
		return 0, &BusyError{"the partition has a new owner, and hosts have not said yet what they execute"}
	}
	l.record(s, &apiv1.Record{Kind: &apiv1.Record_SlotLeaving{SlotLeaving: &apiv1.SlotLeaving{Move: s.Ownership.Move + 1, Unit: partition}}})
	if s.Ownership.State != job.Leaving {
		return 0, fmt.Errorf("slot %d of app %s could not be frozen", slot, app) // never: it is not busy
	}
	return s.Ownership.Move, nil
}

// pinReason returns the reference that ties a slot to the other slots of its app; "": none.
// A reference to a job that does not exist counts too, because the job may be created.
func (l *loop) pinReason(a *app, slot uint8) string {
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

// exportBytes is about the size, in bytes, of the items that one message of a move has.
const exportBytes = 256 << 10

// Export calls fn with the content of a slot that Leave has frozen, about exportBytes at
// a time. It fails with a [MovedError] if the slot is not frozen for that move. An error
// of fn ends it and is returned.
func (s *Server) Export(ctx context.Context, app string, slot uint8, move uint64, fn func([]*apiv1.SlotItem) error) error {
	next, stop := iter.Pull(func(yield func([]*apiv1.SlotItem) bool) {
		var items []*apiv1.SlotItem
		size := 0
		s.loop.apps[app].slots[slot].Export(func(item *apiv1.SlotItem) bool { // runs on the loop, in next
			items, size = append(items, item), size+len(item.Value)+len(item.Name)
			if size < exportBytes {
				return true
			}
			more := yield(items)
			items, size = nil, 0
			return more
		})
		if len(items) > 0 {
			yield(items)
		}
	})
	defer stop()
	ctx = context.WithoutCancel(ctx) // ask must not return while the loop may still call next
	for {
		items, err := ask(ctx, s.loop, func(l *loop) ([]*apiv1.SlotItem, error) {
			if a := l.apps[app]; a == nil || a.slots[slot].Ownership.State != job.Leaving || a.slots[slot].Ownership.Move != move {
				return nil, &MovedError{app, slot}
			}
			items, _ := next()
			return items, nil
		})
		if err != nil || len(items) == 0 {
			return err
		}
		if err := fn(items); err != nil {
			return err
		}
	}
}

// Take creates a slot from the content that another partition has exported for a move. It
// returns when the slot is durable; if the slot has arrived before, it does nothing.
func (s *Server) Take(ctx context.Context, app string, slot uint8, move uint64, items []*apiv1.SlotItem) error {
	if naming.Check("app", app) != nil || slot >= job.Slots || slot == job.ModuleSlot || move == 0 {
		return status.Errorf(codes.InvalidArgument, "slot %d of app %q does not move", slot, app)
	}
	if err := job.CheckItems(app, slot, items); err != nil {
		return invalid(err)
	}
	var chunks [][]*apiv1.SlotItem
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && size < exportBytes {
			size += len(items[n].Value) + len(items[n].Name)
			n++
		}
		chunks, items = append(chunks, items[:n]), items[n:]
	}
	if len(chunks) == 0 {
		chunks = [][]*apiv1.SlotItem{nil}
	}
	mine := new(byte) // its address identifies this call
	for i, chunk := range chunks {
		done, err := ask(ctx, s.loop, func(l *loop) (bool, error) {
			a := l.app(app)
			p := a.slots[slot].Ownership
			switch {
			case p.Move > move, p.Move == move && p.State != job.Coming:
				return true, nil // it has arrived, and may have left again
			case p.State == job.Leaving:
				return false, status.Errorf(codes.Aborted, "slot %d of app %s is leaving here itself", slot, app)
			case a.home() == "" && p.Move == 0:
				return false, status.Errorf(codes.FailedPrecondition, "app %s began in this partition: its slot %d was never elsewhere", app, slot)
			case i > 0 && l.taking[a.slots[slot]] != mine:
				return false, status.Errorf(codes.Aborted, "another server brings slot %d of app %s", slot, app)
			}
			if err := l.refuse(); err != nil {
				return false, err
			}
			if l.taking == nil {
				l.taking = map[*job.Slot]*byte{}
			}
			l.taking[a.slots[slot]] = mine
			last := i == len(chunks)-1
			l.record(a.slots[slot], &apiv1.Record{Kind: &apiv1.Record_SlotComing{SlotComing: &apiv1.SlotComing{
				Move: move, First: i == 0, Last: last, Items: chunk,
			}}})
			p = a.slots[slot].Ownership
			if p.Broken() || last && p.State != job.Here {
				return false, status.Errorf(codes.Internal, "slot %d of app %s could not be made of what came", slot, app)
			}
			if last {
				delete(l.taking, a.slots[slot])
			}
			return false, nil
		})
		if err != nil || done {
			return err
		}
	}
	return nil
}

// Forget drops a slot that was frozen for a move, after it has arrived in the other
// partition. It does nothing if the slot is not frozen for that move.
func (s *Server) Forget(ctx context.Context, app string, slot uint8, move uint64) error {
	_, err := ask(ctx, s.loop, func(l *loop) (struct{}, error) {
		a := l.apps[app]
		if a == nil || a.slots[slot].Ownership.State != job.Leaving || a.slots[slot].Ownership.Move != move {
			return struct{}{}, nil
		}
		if err := l.refuseChange(); err != nil {
			return struct{}{}, err
		}
		l.record(a.slots[slot], &apiv1.Record{Kind: &apiv1.Record_SlotLeft{SlotLeft: &apiv1.SlotLeft{Move: move}}})
		return struct{}{}, nil
	})
	return err
}

// resumeRun queues a run that has arrived with its slot, or sets its timer.
func (l *loop) resumeRun(r *job.Run) {
	if boundedByOverlap(r) && (r.Attempt > 0 || r.Delegates()) {
		l.overlapQueue(r).in[r.ID] = r
	}
	switch {
	case l.due(r):
		l.admit(r)
	case r.State == job.Armed:
		l.wheel.Add(r.PlannedMs, r)
	case r.State == job.Waiting:
		l.wheel.Add(r.RetryMs, r)
	}
}

// Share describes the sub-app that one partition has.
type Share struct {
	Home  string                       // the primary partition; "": this one
	Slots [job.Slots]job.SlotOwnership // as this partition knows them
	Here  [job.Slots]bool              // the slots whose jobs are in this partition
	Rates [job.Slots]float64           // armed and triggered runs a second, with a half-life of 30 s
}

// shares returns the shares of the apps that are active or split.
func (l *loop) shares() map[string]Share {
	all := map[string]Share{}
	for name, a := range l.apps {
		if sh, busy := l.shareOf(a); busy || sh.Home != "" {
			all[name] = sh
		}
	}
	return all
}

func (l *loop) shareOf(a *app) (sh Share, busy bool) {
	sh.Home = a.home()
	for i, s := range a.slots {
		sh.Slots[i], sh.Here[i] = s.Ownership, here(s)
		if a.rates != nil {
			sh.Rates[i] = a.rates[i].value(l.now)
		}
		busy = busy || sh.Rates[i] > 0.01 || s.Ownership != (job.SlotOwnership{})
	}
	return sh, busy
}

// Share returns the share of an app that this partition has; nil: it has none.
func (s *Server) Share(ctx context.Context, app string) (*Share, error) {
	return ask(ctx, s.loop, func(l *loop) (*Share, error) {
		a := l.apps[app]
		if a == nil {
			return nil, nil
		}
		sh, _ := l.shareOf(a)
		return &sh, nil
	})
}

// slotRate is the rate of accepted runs of one slot.
type slotRate struct {
	decayingRate
	pending int // runs that were counted in this turn
}

// countSlot counts one activation of a slot. Only a cluster needs the rates, for its placement.
func (l *loop) countSlot(a *app, slot uint8) {
	if l.cfg.Remote == nil {
		return
	}
	if a.rates == nil {
		a.rates = new([job.Slots]slotRate)
	}
	if a.rates[slot].pending == 0 {
		l.countedRates = append(l.countedRates, &a.rates[slot])
	}
	a.rates[slot].pending++
}

// publishRates adds the counts of this turn to the rates of the slots.
func (l *loop) publishRates() {
	for _, r := range l.countedRates {
		r.add(l.now, r.pending)
		r.pending = 0
	}
	l.countedRates = l.countedRates[:0]
}

// State returns the state that only the primary partition of an app changes; nil: this is
// not the primary partition, or it does not have the app.
func (s *Server) State(ctx context.Context, app string) (*apiv1.AppState, error) {
	return ask(ctx, s.loop, func(l *loop) (*apiv1.AppState, error) {
		a := l.apps[app]
		if a == nil || a.home() != "" {
			return nil, nil
		}
		m := a.slots[job.ModuleSlot]
		st := &apiv1.AppState{App: app, Settings: m.Settings}
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
		return st, nil
	})
}

// Copy replaces this partition's copy of the state that the primary partition of an app
// has. The caller has put the code of its modules on this server's disk. Copy fails if
// this is the primary partition, or if a later state was copied before.
func (s *Server) Copy(ctx context.Context, st *apiv1.AppState) error {
	if naming.Check("app", st.GetApp()) != nil || st.Home == "" {
		return status.Errorf(codes.InvalidArgument, "a copy of the app %q of the partition %q: neither may be empty", st.GetApp(), st.GetHome())
	}
	_, err := ask(ctx, s.loop, func(l *loop) (struct{}, error) { return struct{}{}, l.copyApp(st) })
	return err
}

// stamp orders the states of an app that the primary partition sends: by the epoch of its
// owner, and by the revisions of that owner. A former owner of the primary partition may
// have been suspended and then send an old state; the stamp lets this partition refuse
// it. Stamps are not durable: the primary partition sends its state again to each new
// owner of this partition.
type stamp struct{ epoch, revision uint64 }

// before reports whether s is older than other. It is false for a zero stamp, which
// servers of older versions send.
func (s stamp) before(other stamp) bool {
	return s.epoch > 0 && (s.epoch < other.epoch || s.epoch == other.epoch && s.revision < other.revision)
}

func (l *loop) copyApp(st *apiv1.AppState) error {
	a := l.app(st.App)
	m := a.slots[job.ModuleSlot]
	if a.home() == "" && (m.Settings != nil || slices.ContainsFunc(a.slots[:], func(s *job.Slot) bool { return s.Jobs.Len() > 0 || s.Ownership.Move > 0 })) {
		return status.Errorf(codes.FailedPrecondition, "app %s began in this partition: it is not a copy of what is in %s", st.App, st.Home)
	}
	is := stamp{epoch: st.Epoch, revision: st.Revision}
	if is.before(a.copied) {
		return status.Errorf(codes.FailedPrecondition, "a later state of app %s has come to this partition", st.App)
	}
	if err := l.refuse(); err != nil {
		return err
	}
	a.copied = is
	if a.home() != st.Home {
		l.record(m, &apiv1.Record{Kind: &apiv1.Record_AppHomed{AppHomed: &apiv1.AppHomed{Unit: st.Home}}})
	}
	if st.Settings != nil && !proto.Equal(m.Settings, st.Settings) {
		l.record(m, &apiv1.Record{Kind: &apiv1.Record_AppPut{AppPut: &apiv1.AppPut{App: st.Settings}}})
	}
	for _, x := range st.Modules {
		if !proto.Equal(m.Modules[x.Name+"@"+x.Version], x) {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: x}}})
		}
	}
	l.copyAliases(m, st.Aliases)
	if err := l.copyCalendars(m, st.Calendars); err != nil {
		return err
	}
	l.copySecrets(m, st.Secrets)
	l.copyGrants(m, st.Grants)
	return nil
}

func (l *loop) copyAliases(m *job.Slot, to []*apiv1.Alias) {
	stay := map[string]bool{}
	for _, x := range to {
		ref := x.Module + "@" + x.Name
		if stay[ref] = true; !proto.Equal(m.Aliases[ref], x) {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_AliasPut{AliasPut: &apiv1.AliasPut{Alias: x}}})
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(m.Aliases)) {
		if x := m.Aliases[ref]; !stay[ref] {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_AliasDelete{AliasDelete: &apiv1.AliasDelete{Module: x.Module, Name: x.Name}}})
		}
	}
}

// copyCalendars also updates the planned times of the jobs that name a changed calendar.
// It does not delete a calendar that a job names.
func (l *loop) copyCalendars(m *job.Slot, to []*apiv1.Calendar) error {
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
			return invalid(err)
		}
		if _, err := l.putCalendar(c, compiled); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Calendars)) {
		if !stay[name] && len(l.naming(m.App, name)) == 0 {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_CalendarDelete{CalendarDelete: &apiv1.CalendarDelete{Name: name}}})
		}
	}
	return nil
}

func (l *loop) copySecrets(m *job.Slot, to []*apiv1.SecretRow) {
	stay := map[string]bool{}
	for _, row := range to {
		if stay[row.Name] = true; !proto.Equal(m.Secret(row.Name), row) {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_SecretPut{SecretPut: &apiv1.SecretPut{Secret: row}}})
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
		l.record(m, &apiv1.Record{Kind: &apiv1.Record_SecretDelete{SecretDelete: &apiv1.SecretDelete{Name: name}}})
	}
}

func (l *loop) copyGrants(m *job.Slot, to []*apiv1.ModuleGrants) {
	stay := map[string]bool{}
	for _, g := range to {
		if stay[g.Module] = true; !proto.Equal(m.Grants(g.Module), g) {
			l.record(m, &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: g}}})
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
		l.record(m, &apiv1.Record{Kind: &apiv1.Record_GrantsPut{GrantsPut: &apiv1.GrantsPut{Grants: &apiv1.ModuleGrants{App: m.App, Module: name}}}})
	}
}

// elsewhere returns a run that another partition has; nil: no partition has it.
func (s *Server) elsewhere(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	if s.cfg.Remote == nil {
		return nil, nil
	}
	return s.cfg.Remote.Run(ctx, app, id)
}

// ended reports whether a run is in the history of this or another partition.
func (s *Server) ended(ctx context.Context, app string, id job.RunID) (bool, error) {
	_, ended, err := s.cfg.Store.Run(app, id)
	if err != nil || ended {
		return ended, err
	}
	m, err := s.elsewhere(ctx, app, id)
	return m != nil && job.State(m.State).Terminal(), err
}

// Find returns a run that this partition has, live or in its history; nil: it has none.
func (s *Server) Find(ctx context.Context, app string, id job.RunID) (*apiv1.Run, error) {
	return s.find(ctx, app, id)
}

// atHome is the error of a handler's call that only the primary partition can answer. The
// server then makes the call there.
type atHome struct{}

func (atHome) Error() string { return "the app's home is to be asked" }

// toHome returns atHome if the primary partition of the app is another one.
func (l *loop) toHome(app string) error {
	if l.apps[app].home() != "" {
		return atHome{}
	}
	return nil
}

// Entry returns a value for a run of another partition. The caller has checked that the
// run may read it.
func (s *Server) Entry(ctx context.Context, app string, req *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	return ask(ctx, s.loop, func(l *loop) (*apiv1.GuestGetEntryResponse, error) {
		row := l.value(app, req.Bucket, req.Key)
		if row == nil {
			return nil, noEntry(req.Bucket, req.Key)
		}
		return &apiv1.GuestGetEntryResponse{Value: row.Value, Version: row.Version}, nil
	})
}

// PutEntry sets a value for a run of another partition. The caller has checked that the
// run may write it.
func (s *Server) PutEntry(ctx context.Context, app string, req *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	return askDurable(ctx, s.loop, func(l *loop, answer func(*apiv1.GuestPutEntryResponse, error)) {
		row, err := l.putEntry(app, req)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.GuestPutEntryResponse{Version: row.Version}, err) })
	})
}

// DeleteEntry deletes a value for a run of another partition. The caller has checked that
// the run may write it.
func (s *Server) DeleteEntry(ctx context.Context, app string, req *apiv1.GuestDeleteEntryRequest) error {
	_, err := askDurable(ctx, s.loop, func(l *loop, answer func(struct{}, error)) {
		if err := l.deleteEntry(app, req); err != nil {
			answer(struct{}{}, err)
			return
		}
		l.onDurable(func(err error) { answer(struct{}{}, err) })
	})
	return err
}

// Enqueue accepts a run of a job of this partition, for a run of the app from in another
// partition. The caller has checked that the module of that run may enqueue the job. A
// repeated call returns the same run.
func (s *Server) Enqueue(ctx context.Context, from string, req *apiv1.GuestEnqueueRequest, traceParent string) (*apiv1.GuestEnqueueResponse, error) {
	e, err := newEnqueued(from, req)
	if err != nil {
		return nil, err
	}
	if _, err := ask(ctx, s.loop, func(l *loop) (struct{}, error) { return struct{}{}, l.takesFrom(from, e) }); err != nil {
		return nil, err
	}
	if e.key == "" {
		if ended, err := s.ended(ctx, e.app, e.id); err != nil || ended {
			return &apiv1.GuestEnqueueResponse{Run: e.id[:]}, err
		}
	}
	return askDurable(ctx, s.loop, func(l *loop, answer func(*apiv1.GuestEnqueueResponse, error)) {
		err := cmp.Or(l.takesFrom(from, e), l.errIfJobMoving(e.app, e.name))
		if err != nil {
			answer(nil, err)
			return
		}
		id, _, err := l.enqueueFor(job.RunID(req.Caller.Run), traceParent, e)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.GuestEnqueueResponse{Run: id[:]}, err) })
	})
}

// Ready returns the reason why no slot of an app can move to this partition now; nil: a
// slot can.
func (s *Server) Ready(ctx context.Context, app string) error {
	_, err := ask(ctx, s.loop, func(l *loop) (struct{}, error) {
		a := l.apps[app]
		if a == nil || a.home() == "" && !a.split() {
			return struct{}{}, status.Errorf(codes.FailedPrecondition, "this partition has no copy yet of what app %s has but once", app)
		}
		return struct{}{}, l.refuse()
	})
	return err
}
