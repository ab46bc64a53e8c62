package job

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const moving = 5

// namedIn returns a name in the moving slot.
func namedIn(begin string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", begin, i); SlotOf(name) == moving {
			return name
		}
	}
}

// filled returns a slot with jobs, runs in each state in which they can move, a
// checkpoint and keys.
func filled(t testing.TB) *Slot {
	t.Helper()
	s := NewSlot("app", moving)
	name := namedIn("job")
	at := time.Now().UnixMilli()
	put := func(rec *apiv1.Record) {
		at++
		rec.AtMs = at
		s.Apply(rec, nil)
	}
	def := &apiv1.Job{App: "app", Name: name, Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Retry: &apiv1.Retry{Max: 3}, Schedule: &apiv1.Schedule{Every: "1h"}}
	put(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: def, NextMs: at + 3_600_000}}})
	id := func(i int) RunID { return OccurrenceID("app", name, time.UnixMilli(at), fmt.Sprint(i)) }
	ids := []RunID{id(0), id(1), id(2)}
	for i, run := range ids {
		put(&apiv1.Record{Accepts: []*apiv1.Accepted{{Run: run[:], Job: name, HasInput: true, Input: []byte("in"), KeyHash: fmt.Appendf(nil, "%016d", i)}}})
	}
	put(&apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Session: "s", Runs: []*apiv1.Started_Run{{Run: ids[0][:], Attempt: 1}, {Run: ids[1][:], Attempt: 1}}}}})
	put(&apiv1.Record{Kind: &apiv1.Record_Checkpointed{Checkpointed: &apiv1.Checkpointed{Run: ids[0][:], Attempt: 1, Data: []byte("half")}}})
	put(&apiv1.Record{Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{
		{Run: ids[0][:], Attempt: 1, Host: "h", Outcome: apiv1.Outcome_OUTCOME_RETRYABLE, State: string(Waiting), RetryMs: at + 1000},
		{Run: ids[1][:], Attempt: 1, Host: "h", Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED, State: string(Succeeded)},
	}}}})
	put(&apiv1.Record{Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: name, PlannedMs: at + 5000, NextMs: at + 10_000}}}}})
	if s.Runs.Len() != 3 || s.Live(Waiting) != 1 || s.Live(Queued) != 1 || s.Live(Armed) != 1 {
		t.Fatalf("the slot has %d runs", s.Runs.Len())
	}
	return s
}

func itemsOf(s *Slot) (items []*apiv1.SlotItem) {
	s.Export(func(item *apiv1.SlotItem) bool { items = append(items, item); return true })
	return items
}

func leaving(move uint64) *apiv1.Record {
	return &apiv1.Record{AtMs: 1, Kind: &apiv1.Record_SlotLeaving{SlotLeaving: &apiv1.SlotLeaving{Move: move, Unit: "v"}}}
}

func left(move uint64) *apiv1.Record {
	return &apiv1.Record{AtMs: 1, Kind: &apiv1.Record_SlotLeft{SlotLeft: &apiv1.SlotLeft{Move: move}}}
}

func coming(move uint64, first, last bool, items ...*apiv1.SlotItem) *apiv1.Record {
	return &apiv1.Record{AtMs: 1, Kind: &apiv1.Record_SlotComing{SlotComing: &apiv1.SlotComing{Move: move, First: first, Last: last, Items: items}}}
}

// textsOf returns items as texts, for comparison.
func textsOf(items []*apiv1.SlotItem) (all []string) {
	for _, item := range items {
		all = append(all, item.String())
	}
	return all
}

// TestFrozen checks that only records of its move change a slot that moves, and that the
// content arrives unchanged.
func TestFrozen(t *testing.T) {
	s := filled(t)
	if fx := s.Apply(leaving(1), nil); len(fx) != 1 || s.Ownership != (SlotOwnership{Leaving, 1, "v"}) {
		t.Fatalf("%v, %+v", fx, s.Ownership)
	}
	items := itemsOf(s)
	before := fmt.Sprint(textsOf(items))
	name := namedIn("job")
	run := RunID{}
	for r := range s.Runs.All() {
		id := r.ID
		if r.State == Queued {
			run = id
		}
	}
	other := OccurrenceID("app", name, time.Now(), "late")
	for what, rec := range map[string]*apiv1.Record{
		"a definition":  {Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{App: "app", Name: name, Description: "new"}}}},
		"a delete":      {Kind: &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: name}}},
		"a run":         {Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: other[:], Job: name}}},
		"runs":          {Accepts: []*apiv1.Accepted{{Run: other[:], Job: name}}},
		"a start":       {Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: run[:], Attempt: 1}}}}},
		"an end":        {Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{Run: run[:], State: string(Skipped)}}}}},
		"a cancel":      {Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: run[:]}}},
		"a planned run": {Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: name, PlannedMs: 5}}}}},
		"another move":  leaving(2),
		"what comes":    coming(2, true, true),
		"an old end":    left(0),
	} {
		if fx := s.Apply(rec, nil); len(fx) != 0 || fmt.Sprint(textsOf(itemsOf(s))) != before || s.Ownership.State != Leaving {
			t.Errorf("%s changed a slot that is frozen: %v, %+v", what, fx, s.Ownership)
		}
	}
	if fx := s.Accept(s.Jobs.Get(name), &apiv1.Accepted{Run: other[:], Job: name}, 1, nil); len(fx) != 0 {
		t.Error("a run was accepted into a slot that is frozen")
	}
	if err := CheckItems("app", moving, items); err != nil {
		t.Fatal(err)
	}

	v := NewSlot("app", moving)
	v.Apply(coming(1, true, false, items[:2]...), nil) // an attempt that was interrupted
	v.Apply(coming(1, true, false, items[:3]...), nil)
	if v.Ownership.State != Coming || v.Jobs.Len() != 1 {
		t.Fatalf("%+v, %d jobs", v.Ownership, v.Jobs.Len())
	}
	if fx := v.Accept(v.Jobs.Get(name), &apiv1.Accepted{Run: other[:], Job: name}, 1, nil); len(fx) != 0 {
		t.Error("a run was accepted into a slot of which a part is here")
	}
	v.Apply(coming(1, false, true, items[3:]...), nil)
	if v.Ownership != (SlotOwnership{Here, 1, ""}) || fmt.Sprint(textsOf(itemsOf(v))) != before {
		t.Fatalf("what came is not what went: %+v\n%s\n%s", v.Ownership, before, textsOf(itemsOf(v)))
	}
	for _, rec := range []*apiv1.Record{coming(1, true, true), coming(1, false, true), coming(0, true, true), coming(2, false, true)} {
		if fx := v.Apply(rec, nil); len(fx) != 0 || fmt.Sprint(textsOf(itemsOf(v))) != before {
			t.Errorf("%v changed a slot that is here", rec)
		}
	}
	s.Apply(left(1), nil)
	if s.Ownership != (SlotOwnership{Left, 1, "v"}) || s.Jobs.Len()+s.Runs.Len() != 0 || len(itemsOf(s)) != 0 {
		t.Errorf("a slot that has left holds %v", itemsOf(s))
	}
	// Move the slot back, with the next number.
	v.Apply(leaving(2), nil)
	s.Apply(coming(2, true, true, itemsOf(v)...), nil)
	if s.Ownership != (SlotOwnership{Here, 2, ""}) || fmt.Sprint(textsOf(itemsOf(s))) != before {
		t.Errorf("what came back is %v", textsOf(itemsOf(s)))
	}
}

// TestBusySlotStays checks that a slot with a dispatched run does not move, and that
// ModuleSlot does not move.
func TestBusySlotStays(t *testing.T) {
	s := filled(t)
	for r := range s.Runs.All() {
		id := r.ID
		if r.State == Queued {
			s.Apply(&apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: 1}}}}}, nil)
		}
	}
	if s.Busy() == "" {
		t.Error("a slot with a run on a host is not busy")
	}
	if s.Apply(leaving(1), nil); s.Ownership.State != Here {
		t.Error("a slot left with a run on a host")
	}
	m := NewSlot("app", ModuleSlot)
	if m.Apply(leaving(1), nil); m.Ownership.State != Here {
		t.Error("the slot of the modules left")
	}
	if m.Apply(coming(1, true, true), nil); m.Ownership != (SlotOwnership{}) {
		t.Error("a slot of modules came")
	}
}

// FuzzComing applies content that no correct server sends. It is refused or applied;
// refused content leaves a broken slot.
func FuzzComing(f *testing.F) {
	s := filled(f)
	s.Apply(leaving(1), nil)
	for _, item := range itemsOf(s) {
		f.Add(int32(item.Kind), item.Name, item.Value)
	}
	f.Add(int32(99), "", []byte{0xff})
	items := itemsOf(s)
	f.Fuzz(func(t *testing.T, kind int32, name string, value []byte) {
		item := &apiv1.SlotItem{Kind: apiv1.SlotItem_Kind(kind), Name: name, Value: value}
		for _, all := range [][]*apiv1.SlotItem{{item}, append(append([]*apiv1.SlotItem{}, items[:2]...), item)} {
			err := CheckItems("app", moving, all)
			v := NewSlot("app", moving)
			v.Apply(coming(1, true, true, all...), nil)
			if (err == nil) != (v.Ownership.State == Here) || (err != nil) != v.Ownership.Broken() {
				t.Fatalf("the check says %v, and the slot is %+v", err, v.Ownership)
			}
			if err != nil {
				continue
			}
			for j := range v.Jobs.All() {
				j.Message(time.Now())
			}
			v.Apply(leaving(2), nil)
			for _, item := range itemsOf(v) {
				if _, err := proto.Marshal(item); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
