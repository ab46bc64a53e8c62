package slotmover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Scheduler is the scheduler of a partition, as the mover needs it.
type Scheduler interface {
	// Load returns what the scheduler reports, with the shares of apps that are split.
	Load(ctx context.Context) (sched.Load, error)
	// Share returns what the partition has of an app; nil: nothing.
	Share(ctx context.Context, app string) (*sched.Share, error)
	// State returns the shared state of an app; nil: this is not its primary partition.
	State(ctx context.Context, app string) (*apiv1.AppState, error)
	// Leave freezes a slot, once the runs of it have ended, for patience at most.
	Leave(ctx context.Context, app string, slot uint8, partition string, patience time.Duration) (move uint64, err error)
	// Export calls fn with the items of a frozen slot.
	Export(ctx context.Context, app string, slot uint8, move uint64, fn func([]*apiv1.SlotItem) error) error
	// Forget removes a slot that has arrived.
	Forget(ctx context.Context, app string, slot uint8, move uint64) error
}

// Mover moves slots of a partition that this server owns to their desired placement, one
// after the other, so that little is frozen at a time. For the apps whose primary
// partition this is, it also copies the shared state (modules, aliases, calendars,
// secrets, settings) to the app's other partitions. It always works from the current
// state, so the next owner of the partition continues what this one began.
type Mover struct {
	partition string
	epoch     uint64 // of this server's ownership of the partition
	scheduler Scheduler
	router    *router.Router
	log       *slog.Logger

	copying  chan struct{} // held by the goroutine that copies, so that the newest state is copied last
	revision uint64        // of the state that was copied last; guarded by copying

	mu     sync.Mutex
	stuck  map[string]string // by app: why a slot cannot move
	copies map[string]copied // by app: what other partitions have

	later map[string]time.Time // by slot: when to try again; only Run uses it
	tries map[string]int
}

// copied is the last state that was copied to other partitions.
type copied struct {
	state []byte
	to    map[string]uint64 // by partition: the epoch of its owner then
}

const (
	moveSlotsEvery = time.Second
	// laterBy and laterMax are the first and the longest pause before a busy slot is
	// tried again. waitBy and waitMax are the first and the longest time for which its
	// runs are waited for.
	laterBy  = time.Second
	laterMax = 15 * time.Second
	waitBy   = 300 * time.Millisecond
	waitMax  = 5 * time.Second
	// handOver is how long one attempt to transfer a slot may take.
	handOver  = 10 * time.Second
	handAgain = 100 * time.Millisecond
)

// New returns the mover of a partition, for the ownership with an epoch.
func New(partition string, epoch uint64, scheduler Scheduler, r *router.Router, log *slog.Logger) *Mover {
	return &Mover{
		partition: partition, epoch: epoch, scheduler: scheduler, router: r, log: log, copying: make(chan struct{}, 1),
		stuck: map[string]string{}, copies: map[string]copied{}, later: map[string]time.Time{}, tries: map[string]int{},
	}
}

// Stuck returns, by app, why a slot of it cannot move.
func (m *Mover) Stuck() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.stuck)
}

// setStuck records why a slot of an app cannot move; "": all can.
func (m *Mover) setStuck(app, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why == "" {
		delete(m.stuck, app)
		return
	}
	m.stuck[app] = why
}

// Run moves slots until ctx ends.
func (m *Mover) Run(ctx context.Context) {
	tick := time.NewTicker(moveSlotsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := m.router.View.Change()
		load, err := m.scheduler.Load(ctx)
		if err == nil {
			err = m.moveAll(ctx, load.Shares)
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn("the slots of split apps could not be moved to their desired partitions", "partition", m.partition, "error", err)
		}
		// Reports of servers change the cluster view all the time, and nothing here
		// depends on them.
		if !wait.For(ctx, moveSlotsEvery/20) {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// moveAll moves the slots of all apps that the partition holds, and copies their shared
// state.
func (m *Mover) moveAll(ctx context.Context, shares map[string]sched.Share) error {
	r := m.router.View
	if err := r.RecordSlots(ctx, m.partition, shares); err != nil {
		return err
	}
	for _, app := range r.PlacedApps() { // an idle app may be split as well
		if _, ok := shares[app]; ok {
			continue
		}
		sh, err := m.scheduler.Share(ctx, app)
		if err != nil {
			return err
		}
		if sh != nil {
			shares[app] = *sh
		}
	}
	for _, app := range slices.Sorted(maps.Keys(shares)) {
		sh := shares[app]
		if sh.Home == "" {
			if err := m.CopyOut(ctx, app); err != nil && ctx.Err() == nil {
				m.log.Warn("the shared state of an app could not be copied to its other partitions", "app", app, "error", err)
			}
		}
		if err := m.moveApp(ctx, app, sh); err != nil {
			return err
		}
	}
	return nil
}

// moveApp moves the slots of one app. A slot that cannot move is tried again later.
func (m *Mover) moveApp(ctx context.Context, app string, sh sched.Share) error {
	desired, _ := m.router.View.DesiredOf(app)
	settled := true
	for slot := range uint8(job.Slots) {
		to := ""
		switch p := sh.Slots[slot]; {
		case p.State == job.Leaving: // begun earlier, by this server or another one
			to = p.Unit
		case sh.Here[slot] && slot != job.ModuleSlot && len(desired.Units) == job.Slots && desired.Units[slot] != m.partition:
			to = desired.Units[slot]
		}
		if to == "" || m.router.Partitions[to] == nil {
			continue
		}
		settled = false
		key := fmt.Sprintf("%s/%d", app, slot)
		if sh.Slots[slot].State != job.Leaving {
			if time.Now().Before(m.later[key]) {
				continue
			}
			v := m.router.View.Snapshot()
			if err := v.MaySplit(); err != nil {
				m.setStuck(app, status.Convert(err).Message())
				return nil
			}
		}
		if err := m.move(ctx, app, slot, to, min(waitBy<<min(m.tries[key], 10), waitMax)); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.tries[key]++
			m.later[key] = time.Now().Add(min(laterBy<<min(m.tries[key]-1, 10), laterMax))
			m.setStuck(app, fmt.Sprintf("slot %d: %s", slot, status.Convert(err).Message()))
			m.log.Info("a slot cannot move yet", "app", app, "slot", slot, "partition", m.partition, "to", to, "because", err)
			continue
		}
		delete(m.later, key)
		delete(m.tries, key)
	}
	if settled {
		m.setStuck(app, "")
	}
	return nil
}

// move moves a slot to another partition. Once the slot is frozen, move tries until it
// has arrived, or until this server does not own the partition any longer.
func (m *Mover) move(ctx context.Context, app string, slot uint8, to string, patience time.Duration) error {
	start := time.Now()
	head := &apiv1.TakeSlotRequest_Head{App: app, Slot: int32(slot), Unit: to}
	err := m.hand(ctx, head) // nothing is frozen for a partition that does not answer
	if status.Code(err) == codes.FailedPrecondition && router.AddressIn(err) == "" {
		// A partition has a copy of an app before a slot is frozen for it. It may have
		// none if the partitions were restored, each from a moment of its own.
		if err = m.CopyOut(ctx, app, to); err == nil {
			err = m.hand(ctx, head)
		}
	}
	if err != nil {
		return err
	}
	move, err := m.scheduler.Leave(ctx, app, slot, to, patience)
	if err != nil {
		return err
	}
	frozen := time.Now()
	head.Move = move
	for {
		err := m.hand(ctx, head)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m.log.Warn("a frozen slot could not be transferred; it is tried again", "app", app, "slot", slot, "to", to, "error", err)
		if !wait.For(ctx, handAgain) {
			return ctx.Err()
		}
	}
	m.log.Info("a slot has moved to another partition", "app", app, "slot", slot, "from", m.partition, "to", to, "move", move,
		"frozen_for", time.Since(frozen).Round(time.Millisecond), "in", time.Since(start).Round(time.Millisecond))
	return m.scheduler.Forget(ctx, app, slot, move)
}

// hand transfers a frozen slot to the owner of a partition. Without the number of a move
// it only checks that the owner would take it.
func (m *Mover) hand(ctx context.Context, head *apiv1.TakeSlotRequest_Head) error {
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	export := func(fn func([]*apiv1.SlotItem) error) error {
		if head.Move == 0 {
			return nil
		}
		return m.scheduler.Export(ctx, head.App, uint8(head.Slot), head.Move, fn)
	}
	return m.router.Call(ctx, head.Unit, head.App, func(services *router.Services) error {
		var items []*apiv1.SlotItem
		if err := export(func(more []*apiv1.SlotItem) error { items = append(items, more...); return nil }); err != nil {
			return err
		}
		return Take(ctx, m.router.View, services, head, items)
	}, func(owner router.Owner) error {
		stream, err := owner.TakeSlot(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&apiv1.TakeSlotRequest{Head: head}); err == nil {
			err = export(func(items []*apiv1.SlotItem) error { return stream.Send(&apiv1.TakeSlotRequest{Items: items}) })
			var gone *sched.MovedError
			if errors.As(err, &gone) {
				return err
			}
		}
		_, err = stream.CloseAndRecv() // also returns why a message could not be sent
		return err
	})
}

// Take adds a slot to a partition of this server from what another partition sent.
func Take(ctx context.Context, r *cluster.View, services *router.Services, head *apiv1.TakeSlotRequest_Head, items []*apiv1.SlotItem) error {
	if head.Slot < 0 || head.Slot >= job.Slots {
		return status.Errorf(codes.InvalidArgument, "there is no slot %d", head.Slot)
	}
	if head.Move == 0 {
		return services.Sched.Ready(ctx, head.App)
	}
	if err := services.Sched.Take(ctx, head.App, uint8(head.Slot), head.Move, items); err != nil {
		return err
	}
	return r.RecordSlot(ctx, head.App, uint8(head.Slot), head.Unit, head.Move)
}

// CopyOut copies the shared state of an app from its primary partition to the partitions
// that have slots of it, or should have some, and to the others that are named.
func (m *Mover) CopyOut(ctx context.Context, app string, others ...string) error {
	r := m.router.View
	partitions := r.InvolvedPartitions(app)
	for _, partition := range others {
		if !slices.Contains(partitions, partition) {
			partitions = append(partitions, partition)
		}
	}
	if len(partitions) < 2 {
		return nil
	}
	select {
	case m.copying <- struct{}{}:
		defer func() { <-m.copying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	st, err := m.scheduler.State(ctx, app)
	if err != nil || st == nil {
		return err
	}
	st.Home = m.partition
	st.ModulesAt = []string{r.Assignment(m.partition).GetAddress()}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return err
	}
	m.revision++
	st.Epoch, st.Revision = m.epoch, m.revision // after body was made: they are not part of the app's state
	m.mu.Lock()
	had := m.copies[app]
	m.mu.Unlock()
	is := copied{state: body, to: map[string]uint64{}}
	for _, partition := range partitions {
		epoch := r.Assignment(partition).GetEpoch()
		if partition == m.partition {
			continue
		}
		if slices.Equal(had.state, body) && had.to[partition] == epoch && epoch != 0 {
			is.to[partition] = epoch
			continue
		}
		if e := m.copyTo(ctx, partition, st); e != nil {
			err = cmp.Or(err, e)
			continue
		}
		is.to[partition] = epoch
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copies[app] = is
	return err
}

func (m *Mover) copyTo(ctx context.Context, partition string, st *apiv1.AppState) error {
	return m.router.Call(ctx, partition, st.App, func(services *router.Services) error {
		return router.CopyApp(ctx, m.router, partition, services, st)
	}, func(owner router.Owner) error {
		_, err := owner.CopyApp(ctx, &apiv1.CopyAppRequest{Unit: partition, State: st})
		return err
	})
}
