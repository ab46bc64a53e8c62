package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// history draws records as a server would write them, with some that fit
// nothing: late ends, second ends, cancels of runs that are gone.
type history struct {
	t    *rapid.T
	s    *Slot
	nowM int64
	ids  []RunID
	n    int
}

func (h *history) next() *apiv1.Record {
	h.nowM += rapid.Int64Range(0, 5000).Draw(h.t, "pause")
	rec := &apiv1.Record{AtMs: h.nowM}
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(h.t, "job")
	switch rapid.IntRange(0, 8).Draw(h.t, "kind") {
	case 0:
		d := &apiv1.Job{App: "app", Name: name, Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Retry: &apiv1.Retry{Max: 2}, Revision: 1}
		if j := h.s.Jobs[name]; j != nil {
			d.Revision, d.CreatedAt = j.Revision+1, j.Definition().CreatedAt
		} else {
			h.n++
			d.CreatedAt = timestamppb.New(time.Unix(int64(h.n), 0))
		}
		rec.Kind = &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d, NextMs: h.nowM + 1000, Rescheduled: rapid.Bool().Draw(h.t, "rescheduled")}}
	case 1:
		rec.Kind = &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: name}}
	case 2:
		planned := h.nowM + rapid.Int64Range(0, 2000).Draw(h.t, "ahead")
		h.ids = append(h.ids, NewRunID("app", name, time.UnixMilli(planned), ""))
		rec.Kind = &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: name, PlannedMs: planned, NextMs: planned + 1000}}}}
	case 3:
		h.n++
		id := NewRunID("app", name, time.UnixMilli(h.nowM), fmt.Sprint(h.n))
		h.ids = append(h.ids, id)
		hash := [16]byte{byte(h.n), byte(h.n >> 8)}
		rec.Kind = &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: name, KeyHash: hash[:]}}
	case 4, 5:
		id := h.anyRun()
		attempt := int32(1)
		if r := h.s.Runs[id]; r != nil {
			attempt = r.Attempt + rapid.Int32Range(0, 1).Draw(h.t, "attempt")
		}
		rec.Kind = &apiv1.Record_Started{Started: &apiv1.Started{Host: "h1", Session: "s", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: attempt}}}}
	case 6, 7:
		id := h.anyRun()
		e := &apiv1.Finished_End{Run: id[:], Attempt: 1, Host: "h1", State: string(Succeeded)}
		e.Outcome = apiv1.Outcome(rapid.IntRange(1, 7).Draw(h.t, "outcome"))
		if r := h.s.Runs[id]; r != nil {
			e.Attempt = r.Attempt - rapid.Int32Range(0, 1).Draw(h.t, "late")
			v := Settle(r, e.Outcome, 0)
			e.State, e.RetryMs = string(v.State), h.nowM+v.RetryIn.Milliseconds()
		}
		rec.Kind = &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{e}}}
	case 8:
		id := h.anyRun()
		rec.Kind = &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: id[:]}}
	}
	return rec
}

func (h *history) anyRun() RunID {
	if len(h.ids) == 0 {
		return RunID{}
	}
	return rapid.SampledFrom(h.ids).Draw(h.t, "run")
}

func TestFoldKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, s: NewSlot("app", 0), nowM: 1_700_000_000_000}
		var records [][]byte
		ended := map[RunID]State{}
		for range rapid.IntRange(1, 80).Draw(t, "records") {
			rec := h.next()
			b, err := proto.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, b)
			for _, e := range h.s.Apply(rec, nil) {
				if e.AtMs != rec.AtMs {
					t.Fatalf("an effect is of %d, its record of %d", e.AtMs, rec.AtMs)
				}
				if e.Change != RunEnded {
					continue
				}
				if !e.Run.State.Terminal() {
					t.Fatalf("run %s ended as %s", e.Run.ID, e.Run.State)
				}
				if before, ok := ended[e.Run.ID]; ok {
					t.Fatalf("run %s ended twice: %s, then %s", e.Run.ID, before, e.Run.State)
				}
				ended[e.Run.ID] = e.Run.State
			}
			check(t, h.s)
		}
		// The same records, read back, give the same state: rows are equal.
		again := NewSlot("app", 0)
		for _, b := range records {
			rec := &apiv1.Record{}
			if err := proto.Unmarshal(b, rec); err != nil {
				t.Fatal(err)
			}
			again.Apply(rec, nil)
		}
		same(t, "replayed", h.s, again)
		same(t, "loaded from its rows", h.s, reload(t, h.s))
	})
}

func check(t *rapid.T, s *Slot) {
	counts, live := map[State]int{}, map[*Job]int64{}
	for id, r := range s.Runs {
		if id != r.ID || r.State.Terminal() {
			t.Fatalf("run %s of state %s is kept as %s", r.ID, r.State, id)
		}
		counts[r.State]++
		live[r.owner]++
		if armed := slices.Contains(r.owner.armed, r); armed != (r.State == Armed) {
			t.Fatalf("run %s is %s; among the armed of its job: %v", id, r.State, armed)
		}
		if r.State == Running && (r.Host == "" || r.Attempt == 0 || len(r.Attempts) == 0) {
			t.Fatalf("run %s runs nowhere", id)
		}
	}
	for state, n := range s.Live {
		if counts[state] != n {
			t.Fatalf("%d runs are %s, %d are counted", counts[state], state, n)
		}
	}
	for _, j := range s.Jobs {
		if j.Live != live[j] {
			t.Fatalf("job %s has %d live runs, %d are counted", j.Name, live[j], j.Live)
		}
	}
}

func reload(t *rapid.T, s *Slot) *Slot {
	out := NewSlot(s.App, s.Index)
	for _, j := range s.Jobs {
		if err := out.LoadJob(j.Row()); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.Runs {
		if err := out.LoadRun(r.Row()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func same(t *rapid.T, what string, want, got *Slot) {
	if len(want.Jobs) != len(got.Jobs) || len(want.Runs) != len(got.Runs) {
		t.Fatalf("%s: %d jobs and %d runs, want %d and %d", what, len(got.Jobs), len(got.Runs), len(want.Jobs), len(want.Runs))
	}
	for name, j := range want.Jobs {
		if !proto.Equal(j.Row(), got.Jobs[name].Row()) {
			t.Fatalf("%s: job %s is\n%v, want\n%v", what, name, got.Jobs[name].Row(), j.Row())
		}
	}
	for id, r := range want.Runs {
		if !proto.Equal(r.Row(), got.Runs[id].Row()) {
			t.Fatalf("%s: run %s is\n%v, want\n%v", what, id, got.Runs[id].Row(), r.Row())
		}
	}
}

func TestKeysAreForgottenAfterTheirWindow(t *testing.T) {
	s := NewSlot("app", 0)
	s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a"}}}}, nil)
	accept := func(at int64, hash byte) {
		id := NewRunID("app", "a", time.UnixMilli(at), "")
		h := [16]byte{hash}
		s.Apply(&apiv1.Record{AtMs: at, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "a", KeyHash: h[:]}}}, nil)
	}
	accept(1000, 1)
	accept(2000, 2)
	if _, ok := s.RunOfKey([16]byte{1}); !ok {
		t.Fatal("a fresh key is not known")
	}
	accept(1001+KeyWindow.Milliseconds(), 3)
	if _, ok := s.RunOfKey([16]byte{1}); ok {
		t.Fatal("a key is known after its window")
	}
	if _, ok := s.RunOfKey([16]byte{2}); !ok {
		t.Fatal("a key is forgotten within its window")
	}
}

func TestChangedParametersReachWhatIsArmed(t *testing.T) {
	s := NewSlot("app", 0)
	put := func(input string, at, next int64, rescheduled bool) {
		d := &apiv1.Job{App: "app", Name: "a", Handler: &apiv1.Handler{Module: "m@1"}, Input: input}
		s.Apply(&apiv1.Record{AtMs: at, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d, NextMs: next, Rescheduled: rescheduled}}}, nil)
	}
	put("old", 0, 1000, true)
	s.Apply(&apiv1.Record{AtMs: 0, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: "a", PlannedMs: 1000, NextMs: 2000}}}}}, nil)
	id := NewRunID("app", "a", time.UnixMilli(1000), "")
	put("new", 10, 2000, false)
	if r := s.Runs[id]; r == nil || r.Definition().Input != "new" {
		t.Fatalf("the armed run was not given the new input: %+v", r)
	}
	put("newer", 20, 5000, true)
	if r := s.Runs[id]; r != nil {
		t.Fatal("a run of the old schedule is still armed")
	}
}

// Whatever a journal holds, folding it in does not panic.
func FuzzApply(f *testing.F) {
	id := NewRunID("app", "a", time.UnixMilli(1000), "")
	for _, rec := range []*apiv1.Record{
		{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a"}, NextMs: 5}}},
		{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "a"}}},
		{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: 1}}}}},
		{Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{{Run: id[:], Attempt: 1, Host: "h", State: "waiting"}}}}},
		{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: id[:]}}},
		{Kind: &apiv1.Record_JobPut{}},
		{Kind: &apiv1.Record_ModulePut{}},
		{Kind: &apiv1.Record_Armed{}},
	} {
		b, err := proto.Marshal(rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rec := &apiv1.Record{}
		if proto.Unmarshal(b, rec) != nil {
			return
		}
		s := NewSlot("app", 0)
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a"}}}}, nil)
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "a"}}}, nil)
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: 1}}}}}, nil)
		for range 2 {
			for _, e := range s.Apply(rec, nil) {
				if e.Run != nil {
					e.Run.Row()
				}
				if e.Job != nil {
					e.Job.Row()
				}
			}
		}
	})
}
