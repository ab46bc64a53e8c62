package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

// This file is the part of the cluster view about apps that are split. It is in further
// rows of the cluster's table, see [View]:
//
//	slot/APP/N      UNIT MOVE: the partition that has the slot since that move. Without a row: the primary partition
//	had/APP/UNIT    a further partition has had a slot of the app: runs that ended there are in its history
//	split/APP       a [DesiredPlacement]: the desired placement of the slots
//
// The owner of the partition that has a slot writes its row. If two partitions
// contradict each other, the one with the higher number of the move is right, and
// writes the row again. A call that reaches a partition without the slot is refused
// there: its journal says that the slot has left.

const (
	RowSlot  = "slot/"
	rowHad   = "had/"
	RowSplit = "split/"
)

// slotPlacement is the placement of one slot.
type slotPlacement struct {
	partition string
	move      uint64
}

// DesiredPlacement is the desired placement of the slots of an app.
type DesiredPlacement struct {
	Units  []string `json:"units"` // by slot
	ByHand bool     `json:"by_hand,omitempty"`
}

// placements is the placement of the apps that are split.
type placements struct {
	slots   map[string]*[job.Slots]slotPlacement // by app
	had     map[string]map[string]bool           // by app and partition
	desired map[string]DesiredPlacement          // by app
}

func newPlacements() placements {
	return placements{slots: map[string]*[job.Slots]slotPlacement{}, had: map[string]map[string]bool{}, desired: map[string]DesiredPlacement{}}
}

// Receive takes in a row of the table. It returns false for a row of another kind.
func (p *placements) Receive(kind, rest, value string, deleted bool) bool {
	escaped, last, _ := strings.Cut(rest, "/")
	app, err := url.PathUnescape(escaped)
	switch kind {
	case RowSlot:
		n, nerr := strconv.ParseUint(last, 10, 8)
		partition, number, _ := strings.Cut(value, " ")
		move, merr := strconv.ParseUint(number, 10, 64)
		if err != nil || nerr != nil || n >= job.Slots || merr != nil && !deleted {
			return true
		}
		if p.slots[app] == nil {
			p.slots[app] = &[job.Slots]slotPlacement{}
		}
		if p.slots[app][n] = (slotPlacement{partition, move}); deleted {
			p.slots[app][n] = slotPlacement{}
		}
	case rowHad:
		if err != nil || last == "" {
			return true
		}
		if p.had[app] == nil {
			p.had[app] = map[string]bool{}
		}
		set(p.had[app], last, true, deleted)
	case RowSplit:
		w := DesiredPlacement{}
		if err == nil && (deleted || json.Unmarshal([]byte(value), &w) == nil && len(w.Units) == job.Slots) {
			set(p.desired, app, w, deleted)
		}
	default:
		return false
	}
	return true
}

// IsSplit reports whether a partition other than the primary one has had a slot of the
// app.
func (r *View) IsSplit(app string) bool {
	if !r.anySplit.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.placements.had[app]) > 0
}

// PartitionOfSlot returns the partition that has a slot of an app; ok is false when the app
// has no partition yet.
func (r *View) PartitionOfSlot(app string, slot uint8) (partition string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.placements.slots[app]; s != nil && s[slot].partition != "" {
		return s[slot].partition, true
	}
	partition, ok = r.apps[app]
	return partition, ok
}

// PartitionsOfApp returns the partitions that have had a slot of an app, the primary one
// first; none when the app has no partition.
func (r *View) PartitionsOfApp(app string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	home, ok := r.apps[app]
	if !ok {
		return nil
	}
	partitions := []string{home}
	for _, partition := range slices.Sorted(maps.Keys(r.placements.had[app])) {
		if partition != home {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// placementOf returns the placement of a slot that is in the table; zero: there is none.
func (r *View) placementOf(app string, slot uint8) slotPlacement {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.placements.slots[app]; s != nil {
		return s[slot]
	}
	return slotPlacement{}
}

// DesiredOf returns the desired placement of an app.
func (r *View) DesiredOf(app string) (DesiredPlacement, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.placements.desired[app]
	return w, ok
}

// PlacedApps returns the apps that have a desired placement.
func (r *View) PlacedApps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.placements.desired))
}

// InvolvedPartitions returns the partitions that should have slots of an app, and those that have
// had some.
func (r *View) InvolvedPartitions(app string) []string {
	partitions := r.PartitionsOfApp(app)
	w, _ := r.DesiredOf(app)
	for _, partition := range w.Units {
		if !slices.Contains(partitions, partition) {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// RecordSlot writes the placement of a slot that a partition has, unless the table has it,
// or a later one.
func (r *View) RecordSlot(ctx context.Context, app string, slot uint8, partition string, move uint64) error {
	if at := r.placementOf(app, slot); at.partition == partition && at.move == move || at.move > move {
		return nil
	}
	if err := r.Etcd.Raise(ctx, etcd.FormSplit); err != nil { // not raised yet if the directory was restored
		return err
	}
	escaped := url.PathEscape(app)
	if home, ok := r.PartitionOf(app); !ok || home != partition {
		if _, err := r.Etcd.First(ctx, r.Group, rowHad+escaped+"/"+partition, "1"); err != nil {
			return err
		}
	}
	return r.Etcd.Note(ctx, r.Group, fmt.Sprintf("%s%s/%d", RowSlot, escaped, slot), fmt.Sprintf("%s %d", partition, move), false)
}

// RecordSlots is RecordSlot for all slots that have moved to a partition.
func (r *View) RecordSlots(ctx context.Context, partition string, shares map[string]sched.Share) error {
	for app, sh := range shares {
		for slot, p := range sh.Slots {
			if p.State == job.Here && p.Move > 0 {
				if err := r.RecordSlot(ctx, app, uint8(slot), partition, p.Move); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// SetDesired writes the desired placement of an app. Before the first app is spread over
// several partitions, it locks out servers that would misread that.
func (r *View) SetDesired(ctx context.Context, app string, w DesiredPlacement) error {
	if len(distinct(w.Units)) > 1 {
		if err := r.AllowSplits(ctx); err != nil {
			return err
		}
	}
	row, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return r.Etcd.Note(ctx, r.Group, RowSplit+url.PathEscape(app), string(row), false)
}

// AllowSplits raises the format version of the cluster to one in which apps can be split. A
// server that does not understand that cannot start from then on; if one has started just
// before, it returns an error.
func (r *View) AllowSplits(ctx context.Context) error {
	if err := r.Etcd.Raise(ctx, etcd.FormSplit); err != nil {
		return err
	}
	v := r.Snapshot()
	return v.MaySplit()
}

// PartitionsOf returns, by slot, the partitions that have the slots of an app.
func (v *Snapshot) PartitionsOf(app string) (partitions []string) {
	home := v.homes[app]
	for slot := range job.Slots {
		partition := home
		if s, ok := v.placements.slots[app]; ok && s[slot].partition != "" {
			partition = s[slot].partition
		}
		partitions = append(partitions, partition)
	}
	return partitions
}

// Clone returns a copy that does not change.
func (p *placements) clone() placements {
	c := newPlacements()
	for app, s := range p.slots {
		copied := *s
		c.slots[app] = &copied
	}
	for app, h := range p.had {
		c.had[app] = maps.Clone(h)
	}
	maps.Copy(c.desired, p.desired)
	return c
}
