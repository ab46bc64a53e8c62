package job

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// This file moves a slot of a split app from one partition to another. A record freezes
// the slot in the source partition, and only then is it copied. The target owns the slot
// with the last record of the copy, and the source drops it when it learns that. Each move
// has a number, one higher than the last move of the slot, and a partition ignores a
// record of an earlier move. So the owner of either partition may repeat each step.
//
// Invariant: among the partitions that ever had a slot, at most one has it in the state
// Here with the highest number, and the content of a slot in another state is constant.

// OwnershipState is the stage of a slot in a move, as one partition knows it.
type OwnershipState int32

// The states of an ownership. Rows hold the numbers.
const (
	Here    OwnershipState = iota
	Leaving                // frozen while it is copied to another partition
	Left                   // another partition has it
	Coming                 // a part of it has been copied to this partition
)

func (p OwnershipState) String() string {
	return [...]string{"here", "leaving", "left", "coming"}[p&3]
}

// SlotOwnership says which partition has the jobs and live runs of a slot, as one
// partition knows it. Values of handlers do not move: the primary partition has them.
type SlotOwnership struct {
	State OwnershipState
	Move  uint64 // number of the last move to or from this partition; 0: none
	Unit  string // the target of the move, while Leaving and when Left
}

// allowedWhileFrozen reports whether a record may change a slot that is not Here: a record
// of its move, or of the state that only the primary partition has.
func allowedWhileFrozen(rec *apiv1.Record) bool {
	switch rec.Kind.(type) {
	case *apiv1.Record_SlotLeft, *apiv1.Record_SlotComing, *apiv1.Record_ValuePut, *apiv1.Record_ValueDelete, *apiv1.Record_AppDelete:
		return true
	}
	return false
}

func (s *Slot) setOwnership(p SlotOwnership, fx []Effect) []Effect {
	s.Ownership = p
	return s.changed(fx, rowOwnership, strconv.Itoa(int(s.Index)), &apiv1.PlaceRow{State: int32(p.State), Move: p.Move, Unit: p.Unit, Set: s.lastSet})
}

func (s *Slot) loadOwnership(value []byte) error {
	m := &apiv1.PlaceRow{}
	if err := proto.Unmarshal(value, m); err != nil {
		return err
	}
	if m.State < int32(Here) || m.State > int32(Coming) {
		return fmt.Errorf("a slot is in the state %d: %w", m.State, errRow)
	}
	s.Ownership, s.lastSet = SlotOwnership{OwnershipState(m.State), m.Move, m.Unit}, m.Set
	return nil
}

// Busy returns the reason why the slot cannot move now: a run is dispatched to a host, or
// waits for its parts or nodes. "": the slot can move.
func (s *Slot) Busy() string {
	if s.Live(Running) == 0 {
		return ""
	}
	for r := range s.Runs.All() {
		if r.State == Running {
			return "run " + r.ID.String() + " of job " + r.Job + " is running"
		}
	}
	return ""
}

func (s *Slot) leave(l *apiv1.SlotLeaving, fx []Effect) []Effect {
	if l.Move <= s.Ownership.Move || s.Index == ModuleSlot || s.Live(Running) > 0 {
		return fx
	}
	return s.setOwnership(SlotOwnership{Leaving, l.Move, l.Unit}, fx)
}

func (s *Slot) left(l *apiv1.SlotLeft, fx []Effect) []Effect {
	if s.Ownership.State != Leaving || l.Move != s.Ownership.Move {
		return fx
	}
	return s.setOwnership(SlotOwnership{Left, l.Move, s.Ownership.Unit}, s.empty(fx))
}

// empty removes the jobs and live runs, because another partition has them.
func (s *Slot) empty(fx []Effect) []Effect {
	for _, r := range s.sorted() {
		fx = s.dropCheckpoint(r, fx)
		s.remove(r)
		r.State = Cancelled // for callers that still hold the run
		fx = append(fx, Effect{Change: RunRevoked, Run: r, Job: r.owner})
	}
	for j := range s.Jobs.All() {
		s.recount(j.kind.shape, nil)
		j.drop()
		fx = append(fx, Effect{Change: JobDeleted, Job: j})
	}
	s.Usage.Bytes -= s.texts.live
	s.Usage.Jobs -= int64(s.Jobs.Len())
	s.Jobs, s.keys, s.texts = Jobs{}, keys{}, texts{}
	clear(s.decoded)
	return fx
}

// sorted returns the live runs: first those with an attempt, then the others, each by id.
func (s *Slot) sorted() []*Run {
	runs := make([]*Run, 0, s.Runs.Len())
	for r := range s.Runs.All() {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *Run) int {
		return cmp.Or(-cmp.Compare(min(a.Attempt, 1), min(b.Attempt, 1)), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return runs
}

// come applies one part of a slot that arrives. An item that cannot be read marks the
// slot as broken, and the sender checks the answer (see [SlotOwnership.Broken]).
func (s *Slot) come(c *apiv1.SlotComing, atMs int64, fx []Effect) []Effect {
	again := s.Ownership.State == Coming && c.Move == s.Ownership.Move
	switch {
	case s.Index == ModuleSlot, c.Move < s.Ownership.Move, !again && c.Move == s.Ownership.Move, !again && !c.First:
		return fx
	case s.Ownership.State == Leaving: // the target of its last move has not confirmed it yet
		return fx
	}
	if c.First {
		s.lastSet = nil
		fx = s.setOwnership(SlotOwnership{State: Coming, Move: c.Move}, s.empty(fx))
	}
	for _, item := range c.Items {
		from := len(fx)
		var err error
		if fx, err = s.load(item, fx); err != nil { // CheckItems accepted the items before the record was written
			fx = s.setOwnership(SlotOwnership{State: Coming, Move: c.Move, Unit: broken}, fx[:from])
			return fx
		}
	}
	if !c.Last || s.Ownership.Unit == broken {
		return fx
	}
	s.Loaded()
	fx = s.setOwnership(SlotOwnership{State: Here, Move: c.Move}, fx)
	for j := range s.Jobs.All() {
		if j.NextMs > 0 || j.ResumesMs() > 0 {
			fx = append(fx, Effect{Change: JobPlanned, Job: j})
		}
	}
	for _, r := range s.sorted() {
		fx = append(fx, Effect{Change: RunResumed, Run: r, Job: r.owner})
	}
	return fx
}

// broken marks an arriving slot with an item that cannot be read.
const broken = "broken"

// Broken reports whether an arriving slot has an item that cannot be read.
func (p SlotOwnership) Broken() bool { return p.State == Coming && p.Unit == broken }

// CheckItems returns an error if a slot cannot be made of items.
func CheckItems(app string, index uint8, items []*apiv1.SlotItem) error {
	s := NewSlot(app, index)
	for i, item := range items {
		if _, err := s.load(item, nil); err != nil {
			return fmt.Errorf("item %d of slot %d of app %s, %s %q: %w", i, index, app, item.GetKind(), item.GetName(), err)
		}
	}
	return nil
}

// load applies one row of an arriving slot. Each row has an effect of its own, so that a
// store that is written between two records has the rows that have arrived so far.
func (s *Slot) load(item *apiv1.SlotItem, fx []Effect) ([]Effect, error) {
	switch item.GetKind() {
	case apiv1.SlotItem_KIND_JOB:
		row := &apiv1.JobRow{}
		if err := proto.Unmarshal(item.Value, row); err != nil {
			return fx, err
		}
		if err := proto.Unmarshal(row.Own, &apiv1.Job{}); err != nil {
			return fx, err
		}
		if naming.Check("name", item.Name) != nil || SlotOf(item.Name) != s.Index || s.Jobs.Get(item.Name) != nil {
			return fx, errRow
		}
		j, err := s.LoadJob(item.Name, row)
		if err != nil {
			return fx, err
		}
		return append(fx, Effect{Change: JobChanged, Job: j}, Effect{Change: JobMoved, Job: j}, Effect{Change: JobDepends, Job: j}), nil
	case apiv1.SlotItem_KIND_STATS:
		row := &apiv1.JobStatsRow{}
		if err := proto.Unmarshal(item.Value, row); err != nil {
			return fx, err
		}
		j := s.Jobs.Get(item.Name)
		if j == nil {
			return fx, errRow
		}
		j.LoadStats(row)
		return append(fx, Effect{Change: JobMoved, Job: j}), nil
	case apiv1.SlotItem_KIND_RUN:
		row := &apiv1.RunRow{}
		if err := proto.Unmarshal(item.Value, row); err != nil {
			return fx, err
		}
		id := runID(row.Id)
		if row.App != s.App || id == (RunID{}) || id.Slot() != s.Index || s.Runs.Get(id) != nil || SlotOf(row.Job) != s.Index || !idle(State(row.State)) {
			return fx, errRow
		}
		if err := s.LoadRun(row); err != nil {
			return fx, err
		}
		r := s.Runs.Get(id)
		return append(fx, Effect{Change: RunCame, Run: r, Job: r.owner}), nil
	case apiv1.SlotItem_KIND_KEYS:
		row := &apiv1.KeyRow{}
		if err := proto.Unmarshal(item.Value, row); err != nil {
			return fx, err
		}
		for _, k := range row.Keys {
			if len(k.Hash) != 16 || len(k.Run) != len(RunID{}) || RunID(k.Run).Slot() != s.Index {
				return fx, errRow
			}
			id := RunID(k.Run)
			s.LoadKey([16]byte(k.Hash), id, k.AtMs, k.Input)
			fx = append(fx, Effect{Change: KeyAdded, Run: &Run{ID: id, slot: s}, Key: [16]byte(k.Hash), Input: k.Input}) // the run may have ended
		}
		return fx, nil
	case apiv1.SlotItem_KIND_SET:
		m := &apiv1.ChangeSetShared{}
		if err := proto.Unmarshal(item.Value, m); err != nil {
			return fx, err
		}
		s.lastSet = m
		return s.setOwnership(s.Ownership, fx), nil
	case apiv1.SlotItem_KIND_ROW:
		if id, err := ParseRunID(item.Name); err != nil || s.Runs.Get(id) == nil {
			return fx, errRow
		}
		if _, err := s.LoadRow(rowCheckpoint, item.Name, item.Value); err != nil {
			return fx, err
		}
		id, _ := ParseRunID(item.Name)
		return s.changed(fx, rowCheckpoint, id.String(), s.guests.checkpoints[id]), nil
	}
	return fx, errRow
}

// idle reports whether a run in this state is live and not dispatched to a host.
func idle(st State) bool { return st == Armed || st == Queued || st == Waiting }

// keysOfItem bounds the idempotency keys of one item.
const keysOfItem = 1000

// Export yields the content of a frozen slot, jobs before the rows that belong to them.
// It stops when fn returns false.
func (s *Slot) Export(fn func(*apiv1.SlotItem) bool) {
	var names []string
	for j := range s.Jobs.All() {
		names = append(names, j.Name())
	}
	slices.Sort(names)
	for _, name := range names {
		j := s.Jobs.Get(name)
		if !fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_JOB, Name: name, Value: marshal(j.Row())}) ||
			!fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_STATS, Name: name, Value: marshal(j.StatsRow())}) {
			return
		}
	}
	for _, r := range s.sorted() {
		if !fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_RUN, Value: marshal(r.Row())}) {
			return
		}
		if row := s.guests.checkpoints[r.ID]; row != nil && !fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_ROW, Name: r.ID.String(), Value: marshal(row)}) {
			return
		}
	}
	if s.lastSet != nil && !fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_SET, Value: marshal(s.lastSet)}) {
		return
	}
	row := &apiv1.KeyRow{}
	for k := range s.keys.all() {
		row.Keys = append(row.Keys, &apiv1.KeyRow_Key{Hash: slices.Clone(k.hash[:]), Run: slices.Clone(k.run[:]), AtMs: k.atMs, Input: k.input})
		if len(row.Keys) == keysOfItem {
			if !fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_KEYS, Value: marshal(row)}) {
				return
			}
			row = &apiv1.KeyRow{}
		}
	}
	if len(row.Keys) > 0 {
		fn(&apiv1.SlotItem{Kind: apiv1.SlotItem_KIND_KEYS, Value: marshal(row)})
	}
}

func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("job: a row does not encode: " + err.Error())
	}
	return b
}
