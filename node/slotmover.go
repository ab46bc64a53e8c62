package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// slotMover is the slot mover of a partition that this server owns. It moves slots to
// their desired placement, one after the other, so that little is frozen at a time. For
// the apps whose primary partition this is, it also copies the shared state (modules,
// aliases, calendars, secrets, settings) to the app's other partitions. It always works
// from the current state, so a server that takes the partition over continues what the
// owner before it began.
type slotMover struct {
	u     *partition
	s     *sched.Server
	epoch uint64 // of this server's ownership of the partition

	copying  chan struct{} // held by the goroutine that copies, so that the newest state is copied last
	revision uint64        // of the state that was copied last; guarded by copying

	mu     sync.Mutex
	why    map[string]string // by app: why a slot cannot move
	copies map[string]copied // by app: what other partitions have

	later map[string]time.Time // by slot: when to try again; only run uses it
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

func newSlotMover(u *partition, s *sched.Server, epoch uint64) *slotMover {
	return &slotMover{u: u, s: s, epoch: epoch, copying: make(chan struct{}, 1), why: map[string]string{}, copies: map[string]copied{}, later: map[string]time.Time{}, tries: map[string]int{}}
}

// stuck returns, by app, why a slot of it cannot move.
func (h *slotMover) stuck() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.why)
}

func (h *slotMover) note(app, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == "" {
		delete(h.why, app)
		return
	}
	h.why[app] = why
}

func (h *slotMover) run(ctx context.Context) {
	tick := time.NewTicker(moveSlotsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := h.u.view.Change()
		load, err := h.s.Load(ctx)
		if err == nil {
			err = h.look(ctx, load.Shares)
		}
		if err != nil && ctx.Err() == nil {
			h.u.log.Warn("the slots of apps that are split do not come to where they are to be", "partition", h.u.name, "error", err)
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

func (h *slotMover) look(ctx context.Context, shares map[string]sched.Share) error {
	r := h.u.view
	if err := r.SettleAll(ctx, h.u.name, shares); err != nil {
		return err
	}
	for _, app := range r.Wished() { // an idle app may be split as well
		if _, ok := shares[app]; ok {
			continue
		}
		sh, err := h.s.Share(ctx, app)
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
			if err := h.CopyOut(ctx, app); err != nil && ctx.Err() == nil {
				h.u.log.Warn("what an app has but once could not be brought to its other partitions", "app", app, "error", err)
			}
		}
		if err := h.lookAt(ctx, app, sh); err != nil {
			return err
		}
	}
	return nil
}

func (h *slotMover) lookAt(ctx context.Context, app string, sh sched.Share) error {
	wish, _ := h.u.view.WishOf(app)
	stays := true
	for slot := range uint8(job.Slots) {
		to := ""
		switch p := sh.Slots[slot]; {
		case p.State == job.Leaving: // begun earlier, by this server or another one
			to = p.Unit
		case sh.Here[slot] && slot != job.ModuleSlot && len(wish.Units) == job.Slots && wish.Units[slot] != h.u.name:
			to = wish.Units[slot]
		}
		if to == "" || h.u.router.Partitions[to] == nil {
			continue
		}
		stays = false
		key := fmt.Sprintf("%s/%d", app, slot)
		if sh.Slots[slot].State != job.Leaving {
			if time.Now().Before(h.later[key]) {
				continue
			}
			v := h.u.view.Snapshot()
			if err := v.MaySplit(); err != nil {
				h.note(app, status.Convert(err).Message())
				return nil
			}
		}
		if err := h.move(ctx, app, slot, to, min(waitBy<<min(h.tries[key], 10), waitMax)); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			h.tries[key]++
			h.later[key] = time.Now().Add(min(laterBy<<min(h.tries[key]-1, 10), laterMax))
			h.note(app, fmt.Sprintf("slot %d: %s", slot, status.Convert(err).Message()))
			h.u.log.Info("a slot stays for now", "app", app, "slot", slot, "partition", h.u.name, "to", to, "because", err)
			continue
		}
		delete(h.later, key)
		delete(h.tries, key)
	}
	if stays {
		h.note(app, "")
	}
	return nil
}

// move moves a slot to another partition. Once the slot is frozen, move tries until it
// has arrived, or until this server does not own the partition any longer.
func (h *slotMover) move(ctx context.Context, app string, slot uint8, to string, patience time.Duration) error {
	start := time.Now()
	head := &apiv1.TakeSlotRequest_Head{App: app, Slot: int32(slot), Unit: to}
	err := h.hand(ctx, head) // nothing is frozen for a partition that does not answer
	if status.Code(err) == codes.FailedPrecondition && router.AddressIn(err) == "" {
		// A partition has a copy of an app before a slot is frozen for it. It may have
		// none if the partitions were restored, each from a moment of its own.
		if err = h.CopyOut(ctx, app, to); err == nil {
			err = h.hand(ctx, head)
		}
	}
	if err != nil {
		return err
	}
	move, err := h.s.Leave(ctx, app, slot, to, patience)
	if err != nil {
		return err
	}
	frozen := time.Now()
	head.Move = move
	for {
		err := h.hand(ctx, head)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.u.log.Warn("a slot that is frozen does not come to the other partition; it is tried again", "app", app, "slot", slot, "to", to, "error", err)
		if !wait.For(ctx, handAgain) {
			return ctx.Err()
		}
	}
	h.u.log.Info("a slot is in another partition now", "app", app, "slot", slot, "from", h.u.name, "to", to, "move", move,
		"frozen_for", time.Since(frozen).Round(time.Millisecond), "in", time.Since(start).Round(time.Millisecond))
	return h.s.Forget(ctx, app, slot, move)
}

// hand transfers a frozen slot to the owner of a partition. Without the number of a move
// it only asks whether that owner would take it.
func (h *slotMover) hand(ctx context.Context, head *apiv1.TakeSlotRequest_Head) error {
	ctx, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	export := func(fn func([]*apiv1.SlotItem) error) error {
		if head.Move == 0 {
			return nil
		}
		return h.s.Export(ctx, head.App, uint8(head.Slot), head.Move, fn)
	}
	services, err := h.u.router.Enter(ctx, head.Unit, head.App)
	address := router.AddressIn(err)
	switch {
	case err == nil:
		defer services.Leave()
		var items []*apiv1.SlotItem
		if err := export(func(more []*apiv1.SlotItem) error { items = append(items, more...); return nil }); err != nil {
			return err
		}
		return takeSlot(ctx, h.u.view, services, head, items)
	case address == "":
		return err
	}
	conn, err := h.u.peers.Conn(address)
	if err != nil {
		return err
	}
	stream, err := apiv1.NewMembershipClient(conn).TakeSlot(ctx)
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
}

// takeSlot adds a slot to a partition of this server from what another partition sent.
func takeSlot(ctx context.Context, r *cluster.View, services *router.Services, head *apiv1.TakeSlotRequest_Head, items []*apiv1.SlotItem) error {
	if head.Slot < 0 || head.Slot >= job.Slots {
		return status.Errorf(codes.InvalidArgument, "there is no slot %d", head.Slot)
	}
	if head.Move == 0 {
		return services.Sched.Ready(ctx, head.App)
	}
	if err := services.Sched.Take(ctx, head.App, uint8(head.Slot), head.Move, items); err != nil {
		return err
	}
	return r.SettleIn(ctx, head.App, uint8(head.Slot), head.Unit, head.Move)
}

// CopyOut copies the shared state of an app from its primary partition to the partitions
// that have slots of it, or should have some, and to the others that are named.
func (h *slotMover) CopyOut(ctx context.Context, app string, others ...string) error {
	r := h.u.view
	partitions := r.Wishing(app)
	for _, partition := range others {
		if !slices.Contains(partitions, partition) {
			partitions = append(partitions, partition)
		}
	}
	if len(partitions) < 2 {
		return nil
	}
	select {
	case h.copying <- struct{}{}:
		defer func() { <-h.copying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	st, err := h.s.State(ctx, app)
	if err != nil || st == nil {
		return err
	}
	st.Home = h.u.name
	st.ModulesAt = []string{r.Assignment(h.u.name).GetAddress()}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return err
	}
	h.revision++
	st.Epoch, st.Revision = h.epoch, h.revision // after body was made: they are not part of the app's state
	h.mu.Lock()
	had := h.copies[app]
	h.mu.Unlock()
	is := copied{state: body, to: map[string]uint64{}}
	for _, partition := range partitions {
		epoch := r.Assignment(partition).GetEpoch()
		if partition == h.u.name {
			continue
		}
		if slices.Equal(had.state, body) && had.to[partition] == epoch && epoch != 0 {
			is.to[partition] = epoch
			continue
		}
		if e := h.copyTo(ctx, partition, st); e != nil {
			err = cmp.Or(err, e)
			continue
		}
		is.to[partition] = epoch
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.copies[app] = is
	return err
}

func (h *slotMover) copyTo(ctx context.Context, partition string, st *apiv1.AppState) error {
	services, err := h.u.router.Enter(ctx, partition, st.App)
	address := router.AddressIn(err)
	switch {
	case err == nil:
		defer services.Leave()
		return router.CopyApp(ctx, h.u.router, partition, services, st)
	case address == "":
		return err
	}
	conn, err := h.u.peers.Conn(address)
	if err != nil {
		return err
	}
	_, err = apiv1.NewMembershipClient(conn).CopyApp(ctx, &apiv1.CopyAppRequest{Unit: partition, State: st})
	return err
}

// maxRated is the number of apps of which a partition reports the rates.
const maxRated = 20

// ratesOf returns the rates of the slots of the apps with the highest rates.
func ratesOf(shares map[string]sched.Share) map[string][]float64 {
	type rated struct {
		app string
		sum float64
	}
	var all []rated
	for app, sh := range shares {
		sum := 0.0
		for _, rate := range sh.Rates {
			sum += rate
		}
		if sum > 0.01 {
			all = append(all, rated{app, sum})
		}
	}
	slices.SortFunc(all, func(a, b rated) int { return cmp.Or(-cmp.Compare(a.sum, b.sum), cmp.Compare(a.app, b.app)) })
	rates := map[string][]float64{}
	for _, x := range all[:min(len(all), maxRated)] {
		sh := shares[x.app]
		for _, rate := range sh.Rates {
			rates[x.app] = append(rates[x.app], float64(int64(rate*100))/100)
		}
	}
	return rates
}
