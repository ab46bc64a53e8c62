package slotmove

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// Slots moves the slots of one partition. It is safe for concurrent use.
type Slots struct{ loop *core.Loop }

// New returns the slots of a loop.
func New(l *core.Loop) *Slots { return &Slots{l} }

// departPoll is the interval at which Leave checks whether the runs of a slot have ended.
const departPoll = 5 * time.Millisecond

// Leave freezes a slot before it moves to another partition, and returns the number of
// the move. A frozen slot remains frozen. Up to patience, Leave dispatches no run of the
// slot and waits for the runs that hosts have. After a [BusyError] the slot has not
// moved, and the caller may try again later.
func (s *Slots) Leave(ctx context.Context, app string, slot uint8, partition string, patience time.Duration) (move uint64, err error) {
	over := time.Now().Add(patience)
	defer s.loop.Mail.Do(func(l *core.Loop) { l.Moves.ReopenSlot(app, slot) })
	for {
		move, err = core.Change(ctx, s.loop, func(l *core.Loop) (uint64, error) { return l.Moves.LeaveTo(app, slot, partition) })
		var busy *core.BusyError
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

// exportBytes is about the size, in bytes, of the items that one message of a move has.
const exportBytes = 256 << 10

// Export calls fn with the content of a slot that Leave has frozen, about exportBytes at
// a time. It fails with a [MovedError] if the slot is not frozen for that move. An error
// of fn ends it and is returned.
func (s *Slots) Export(ctx context.Context, app string, slot uint8, move uint64, fn func([]*apiv1.SlotItem) error) error {
	var frozen *job.Slot // set on the loop, before the first call of next
	next, stop := iter.Pull(func(yield func([]*apiv1.SlotItem) bool) {
		var items []*apiv1.SlotItem
		size := 0
		frozen.Export(func(item *apiv1.SlotItem) bool { // runs on the loop, in next
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
		items, err := core.Ask(ctx, s.loop, func(l *core.Loop) ([]*apiv1.SlotItem, error) {
			if frozen = l.Moves.Frozen(app, slot, move); frozen == nil {
				return nil, &core.MovedError{App: app, Slot: slot}
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
func (s *Slots) Take(ctx context.Context, app string, slot uint8, move uint64, items []*apiv1.SlotItem) error {
	if naming.Check("app", app) != nil || slot >= job.Slots || slot == job.ModuleSlot || move == 0 {
		return status.Errorf(codes.InvalidArgument, "slot %d of app %q does not move", slot, app)
	}
	if err := job.CheckItems(app, slot, items); err != nil {
		return core.Invalid(err)
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
		done, err := core.Ask(ctx, s.loop, func(l *core.Loop) (bool, error) {
			return l.Moves.Take(app, slot, chunkOf(move, i, len(chunks), chunk), mine)
		})
		if err != nil || done {
			return err
		}
	}
	return nil
}

func chunkOf(move uint64, i, n int, items []*apiv1.SlotItem) *apiv1.SlotComing {
	return &apiv1.SlotComing{Move: move, First: i == 0, Last: i == n-1, Items: items}
}

// Forget drops a slot that was frozen for a move, after it has arrived in the other
// partition. It does nothing if the slot is not frozen for that move.
func (s *Slots) Forget(ctx context.Context, app string, slot uint8, move uint64) error {
	_, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.Moves.Forget(app, slot, move) })
	return err
}

// Share returns the share of an app that this partition has; nil: it has none.
func (s *Slots) Share(ctx context.Context, app string) (*core.Share, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (*core.Share, error) {
		return l.Moves.ShareOfApp(app), nil
	})
}

// State returns the state that only the primary partition of an app changes; nil: this is
// not the primary partition, or it does not have the app.
func (s *Slots) State(ctx context.Context, app string) (*apiv1.AppState, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (*apiv1.AppState, error) { return l.Moves.AppState(app), nil })
}

// Copy replaces this partition's copy of the state that the primary partition of an app
// has. The caller has put the code of its modules on this server's disk. Copy fails if
// this is the primary partition, or if a later state was copied before.
func (s *Slots) Copy(ctx context.Context, st *apiv1.AppState) error {
	if naming.Check("app", st.GetApp()) != nil || st.Home == "" {
		return status.Errorf(codes.InvalidArgument, "a copy of the app %q of the partition %q: neither may be empty", st.GetApp(), st.GetHome())
	}
	_, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.Moves.CopyApp(st) })
	return err
}

// Ready returns the reason why no slot of an app can move to this partition now; nil: a
// slot can.
func (s *Slots) Ready(ctx context.Context, app string) error {
	_, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, l.Moves.Ready(app) })
	return err
}
