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

// history draws records as a server would write them, and some that do not fit: late
// ends, second ends, cancels of runs that have ended.
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
	switch rapid.IntRange(0, 14).Draw(h.t, "kind") {
	case 0:
		d := &apiv1.Job{App: "app", Name: name, Handler: &apiv1.Handler{Module: "m@1", Name: "main"}, Retry: &apiv1.Retry{Max: 2}, Revision: 1}
		if j := h.s.Jobs.Get(name); j != nil {
			d.Revision, d.CreatedAt = j.Revision()+1, j.Definition().CreatedAt
		} else {
			h.n++
			d.CreatedAt = timestamppb.New(time.Unix(int64(h.n), 0))
		}
		d.Dependency = &apiv1.Dependency{Jobs: []string{"x", "y", "z"}[:rapid.IntRange(1, 3).Draw(h.t, "upstream")]}
		d.Routing = &apiv1.Routing{Strategy: rapid.SampledFrom([]string{"", "round_robin", "lfu", "lru"}).Draw(h.t, "strategy")}
		put := &apiv1.JobPut{Job: d, NextMs: h.nowM + 1000, Rescheduled: rapid.Bool().Draw(h.t, "rescheduled")}
		put.Renewed = put.Rescheduled && rapid.Bool().Draw(h.t, "renewed")
		rec.Kind = &apiv1.Record_JobPut{JobPut: put}
	case 1:
		rec.Kind = &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: name}}
	case 2:
		planned := h.nowM + rapid.Int64Range(0, 2000).Draw(h.t, "ahead")
		h.ids = append(h.ids, OccurrenceID("app", name, time.UnixMilli(planned), ""))
		rec.Kind = &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{
			Job: name, PlannedMs: planned, NextMs: planned + 1000, Covers: rapid.Int64Range(0, 3).Draw(h.t, "covers"),
		}}}}
	case 3:
		h.n++
		id := OccurrenceID("app", name, time.UnixMilli(h.nowM), fmt.Sprint(h.n))
		h.ids = append(h.ids, id)
		hash := [16]byte{byte(h.n), byte(h.n >> 8)}
		rec.Kind = &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: name, KeyHash: hash[:]}}
	case 4, 5:
		id := h.anyRun()
		attempt := int32(1)
		if r := h.s.Runs.Get(id); r != nil {
			attempt = r.Attempt + rapid.Int32Range(0, 1).Draw(h.t, "attempt")
		}
		if r := h.s.Runs.Get(id); r == nil || !r.HasParts() {
			rec.Kind = &apiv1.Record_Started{Started: &apiv1.Started{Host: "h1", Session: "s", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: attempt}}}}
		}
	case 6, 7:
		id := h.anyRun()
		e := &apiv1.Finished_End{Run: id[:], Attempt: 1, Host: "h1", State: string(Succeeded)}
		e.Outcome = apiv1.Outcome(rapid.IntRange(1, 7).Draw(h.t, "outcome"))
		if r := h.s.Runs.Get(id); r != nil {
			e.Attempt = r.Attempt - rapid.Int32Range(0, 1).Draw(h.t, "late")
			v := Settle(r, e.Outcome, 0)
			e.State, e.RetryMs = string(v.State), h.nowM+v.RetryIn.Milliseconds()
		}
		rec.Kind = &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{e}}}
	case 8:
		id := h.anyRun()
		rec.Kind = &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: id[:], JobNextMs: h.nextMs(), Why: "why"}}
	case 9:
		rec.Kind = &apiv1.Record_Passed{Passed: &apiv1.Passed{
			Job: name, FirstMs: h.nowM - 3000, LastMs: h.nowM, Count: rapid.Int64Range(1, 4).Draw(h.t, "count"), NextMs: h.nextMs(),
			State: string(rapid.SampledFrom([]State{Missed, Skipped, Queued}).Draw(h.t, "state")), Error: "why", Code: "misfire",
		}}
	case 10:
		id := h.anyRun()
		to := rapid.SampledFrom([]State{Missed, Skipped, Failed, Waiting}).Draw(h.t, "state")
		rec.Kind = &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{
			Run: id[:], State: string(to), Error: "why", Code: "overlap", JobNextMs: h.nextMs(),
		}}}}
		if r := h.s.Runs.Get(id); r != nil && r.State == Running {
			rec.Kind = nil // a server ends only runs that no host has in this way
		}
	case 11, 12:
		id := h.anyRun()
		f := &apiv1.Fanned{Run: id[:], Parts: rapid.Int32Range(0, 4).Draw(h.t, "parts"), Hosts: []string{"h1", "h2"}}
		for n := range f.Parts {
			if rapid.Bool().Draw(h.t, "only") {
				f.Only = append(f.Only, n)
			}
		}
		if r := h.s.Runs.Get(id); r == nil || !r.IsPart() && r.Attempt == 0 { // a run that fans out is never dispatched
			rec.Kind = &apiv1.Record_Fanned{Fanned: f}
		}
	case 13:
		up := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(h.t, "upstream")
		rec.Kind = &apiv1.Record_Met{Met: &apiv1.Met{Job: name, Upstream: up}}
	case 14:
		h.n++
		id := OccurrenceID("app", name, time.UnixMilli(h.nowM), fmt.Sprint(h.n))
		h.ids = append(h.ids, id)
		rec.Kind = &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{
			Run: id[:], Job: name, Trigger: string(ByDependency), Completes: true, Cause: make([]byte, 16), HasInput: true, Input: []byte("in"),
		}}
	}
	return rec
}

// nextMs draws the next planned time in a record, for a delay schedule.
func (h *history) nextMs() int64 {
	return rapid.SampledFrom([]int64{0, h.nowM + 1000}).Draw(h.t, "next")
}

// anyRun draws a run that is live or has ended.
func (h *history) anyRun() RunID {
	ids := slices.Clone(h.ids)
	for r := range h.s.Runs.All() {
		id := r.ID
		if r.IsPart() {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return RunID{}
	}
	slices.SortFunc(ids[len(h.ids):], func(a, b RunID) int { return slices.Compare(a[:], b[:]) })
	return rapid.SampledFrom(ids).Draw(h.t, "run")
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
		// A replay of the records gives the same state, wherever a snapshot is taken.
		whole := NewSlot("app", 0)
		for i := range records {
			cut := reload(t, whole)
			fold(t, cut, records[i:])
			same(t, fmt.Sprintf("loaded after %d records", i), h.s, cut)
			fold(t, whole, records[i:i+1])
		}
		same(t, "replayed", h.s, whole)
		same(t, "loaded from its rows", h.s, reload(t, h.s))
	})
}

func fold(t *rapid.T, s *Slot, records [][]byte) {
	for _, b := range records {
		rec := &apiv1.Record{}
		if err := proto.Unmarshal(b, rec); err != nil {
			t.Fatal(err)
		}
		s.Apply(rec, nil)
	}
}

func check(t *rapid.T, s *Slot) {
	counts, live, scheduled := map[State]int{}, map[*Job]int64{}, map[*Job]int64{}
	for r := range s.Runs.All() {
		id := r.ID
		if id != r.ID || r.State.Terminal() {
			t.Fatalf("run %s of state %s is kept as %s", r.ID, r.State, id)
		}
		counts[r.State]++
		live[r.owner]++
		if armed := slices.Contains(r.owner.armed(), r); armed != (r.State == Armed) {
			t.Fatalf("run %s is %s; among the armed of its job: %v", id, r.State, armed)
		}
		if r.Trigger == BySchedule {
			scheduled[r.owner]++
		}
		if r.HasParts() {
			if f := r.Fan; r.State != Running || len(f.parts) == 0 || int(f.Succeeded+f.Failed)+len(f.parts) != int(f.Parts) {
				t.Fatalf("parent %s is %s: %+v", id, r.State, *f)
			}
			continue
		}
		if r.IsPart() && (s.Runs.Get(r.Fan.Parent) == nil || !slices.Contains(s.Runs.Get(r.Fan.Parent).Fan.parts, r)) {
			t.Fatalf("part %s has no parent", id)
		}
		if r.State == Running && (r.Host == "" || r.Attempt == 0 || len(r.Attempts) == 0) {
			t.Fatalf("run %s runs nowhere", id)
		}
	}
	for _, state := range States() {
		if n := s.Live(state); counts[state] != n {
			t.Fatalf("%d runs are %s, %d are counted", counts[state], state, n)
		}
	}
	for j := range s.Jobs.All() {
		if j.Live() != live[j] {
			t.Fatalf("job %s has %d live runs, %d are counted", j.Name(), live[j], j.Live())
		}
		if j.scheduled() != scheduled[j] || j.Planned < 0 {
			t.Fatalf("job %s has %d live runs of its schedule, %d are counted; %d are planned", j.Name(), scheduled[j], j.scheduled(), j.Planned)
		}
	}
}

func reload(t *rapid.T, s *Slot) *Slot {
	out := NewSlot(s.App, s.Index)
	for j := range s.Jobs.All() {
		if _, err := out.LoadJob(j.Name(), j.Row()); err != nil {
			t.Fatal(err)
		}
		out.Jobs.Get(j.Name()).LoadStats(j.StatsRow())
	}
	for r := range s.Runs.All() {
		if err := out.LoadRun(r.Row()); err != nil {
			t.Fatal(err)
		}
	}
	out.Loaded()
	for k := range s.keys.all() {
		out.LoadKey(k.hash, k.run, k.atMs, k.input)
	}
	return out
}

func same(t *rapid.T, what string, want, got *Slot) {
	if want.Jobs.Len() != got.Jobs.Len() || want.Runs.Len() != got.Runs.Len() {
		t.Fatalf("%s: %d jobs and %d runs, want %d and %d", what, got.Jobs.Len(), got.Runs.Len(), want.Jobs.Len(), want.Runs.Len())
	}
	if want, got := slices.Collect(want.keys.all()), slices.Collect(got.keys.all()); !slices.Equal(want, got) {
		t.Fatalf("%s: the keys are %v, want %v", what, got, want)
	}
	for j := range want.Jobs.All() {
		name := j.Name()
		if !proto.Equal(j.StatsRow(), got.Jobs.Get(name).StatsRow()) {
			t.Fatalf("%s: the stats of job %s are\n%v, want\n%v", what, name, got.Jobs.Get(name).StatsRow(), j.StatsRow())
		}
		if !proto.Equal(j.Row(), got.Jobs.Get(name).Row()) {
			t.Fatalf("%s: job %s is\n%v, want\n%v", what, name, got.Jobs.Get(name).Row(), j.Row())
		}
	}
	for r := range want.Runs.All() {
		id := r.ID
		if !proto.Equal(r.Row(), got.Runs.Get(id).Row()) {
			t.Fatalf("%s: run %s is\n%v, want\n%v", what, id, got.Runs.Get(id).Row(), r.Row())
		}
	}
}

func TestKeysAreForgottenAfterTheirWindow(t *testing.T) {
	s := NewSlot("app", 0)
	s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a"}}}}, nil)
	accept := func(at int64, hash byte) {
		id := OccurrenceID("app", "a", time.UnixMilli(at), "")
		h := [16]byte{hash}
		s.Apply(&apiv1.Record{AtMs: at, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "a", KeyHash: h[:]}}}, nil)
	}
	accept(1000, 1)
	accept(2000, 2)
	sum := InputSum(false, nil)
	if _, same, ok := s.RunOfKey([16]byte{1}, sum); !ok || !same {
		t.Fatal("a fresh key is not known")
	}
	accept(1001+KeyWindow.Milliseconds(), 3)
	if _, _, ok := s.RunOfKey([16]byte{1}, sum); ok {
		t.Fatal("a key is known after its window")
	}
	if _, _, ok := s.RunOfKey([16]byte{2}, sum); !ok {
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
	id := OccurrenceID("app", "a", time.UnixMilli(1000), "")
	put("new", 10, 2000, false)
	if r := s.Runs.Get(id); r == nil || r.Definition().Input != "new" {
		t.Fatalf("the armed run was not given the new input: %+v", r)
	}
	put("newer", 20, 5000, true)
	if r := s.Runs.Get(id); r != nil {
		t.Fatal("a run of the old schedule is still armed")
	}
}

// FuzzApply checks that no record makes Apply panic.
func FuzzApply(f *testing.F) {
	id := OccurrenceID("app", "a", time.UnixMilli(1000), "")
	for _, rec := range []*apiv1.Record{
		{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a"}, NextMs: 5}}},
		{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: "a"}}},
		{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: id[:], Attempt: 1}}}}},
		{Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{{Run: id[:], Attempt: 1, Host: "h", State: "waiting"}}}}},
		{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: id[:]}}},
		{Kind: &apiv1.Record_JobPut{}},
		{Kind: &apiv1.Record_ModulePut{}},
		{Kind: &apiv1.Record_Armed{}},
		{Kind: &apiv1.Record_AliasPut{}},
		{Kind: &apiv1.Record_AliasDelete{}},
		{Kind: &apiv1.Record_AliasPut{AliasPut: &apiv1.AliasPut{Alias: &apiv1.Alias{Module: "m", Name: "prod"}}}},
		{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: make([]byte, 16), Job: "a", Pin: &apiv1.Pin{Module: "m@1", Digest: "d"}}}},
		{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "a", Handler: &apiv1.Handler{Module: "m@prod"}}, Pin: &apiv1.Pin{Alias: "m@prod", Module: "m@1"}}}},
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

// put adds a job to a slot, with times that fit the rest of the test.
func put(s *Slot, d *apiv1.Job, p *apiv1.JobPut) *Job {
	d.App, p.Job = s.App, d
	s.Apply(&apiv1.Record{AtMs: 0, Kind: &apiv1.Record_JobPut{JobPut: p}}, nil)
	return s.Jobs.Get(d.Name)
}

// changes lists the effects on runs.
func changes(fx []Effect) (list []Change) {
	for _, e := range fx {
		if e.Run != nil {
			list = append(list, e.Change)
		}
	}
	return list
}

func accepted(s *Slot, name string, n byte, parts ...int32) *Run {
	id := RunID{15: n}
	s.Apply(&apiv1.Record{AtMs: 10, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: name, Parts: parts}}}, nil)
	return s.Runs.Get(id)
}

func armed(s *Slot, name string, planned, covers int64) *Run {
	s.Apply(&apiv1.Record{AtMs: 0, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: name, PlannedMs: planned, Covers: covers}}}}}, nil)
	return s.Runs.Get(OccurrenceID(s.App, name, time.UnixMilli(planned), ""))
}

func TestPassed(t *testing.T) {
	for _, c := range []struct {
		name            string
		passed          *apiv1.Passed
		planned, failed int64
		next            int64
		effects         []Change
	}{
		{"missed", &apiv1.Passed{Job: "a", FirstMs: 100, LastMs: 300, Count: 3, NextMs: 400, State: "missed", Code: "misfire"}, 3, 1, 400, []Change{RunPassed}},
		{"skipped, the last one", &apiv1.Passed{Job: "a", FirstMs: 100, LastMs: 100, Count: 1, State: "skipped", Code: "skip_next"}, 1, 0, 0, []Change{RunPassed}},
		{"of no job", &apiv1.Passed{Job: "b", FirstMs: 100, Count: 1, State: "missed"}, 0, 0, 50, nil},
		{"not an end", &apiv1.Passed{Job: "a", FirstMs: 100, Count: 1, State: "queued"}, 0, 0, 50, nil},
	} {
		s := NewSlot("app", 0)
		j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{NextMs: 50})
		fx := s.Apply(&apiv1.Record{AtMs: 350, Kind: &apiv1.Record_Passed{Passed: c.passed}}, nil)
		if j.Planned != c.planned || j.failed != c.failed || j.NextMs != c.next || j.Live() != 0 || s.Runs.Len() != 0 {
			t.Errorf("%s: the job is %+v", c.name, j)
		}
		if !slices.Equal(changes(fx), c.effects) {
			t.Errorf("%s: effects %v, want %v", c.name, changes(fx), c.effects)
			continue
		}
		if tells := slices.ContainsFunc(fx, func(e Effect) bool { return e.Change == JobPlanned }); tells != (c.effects != nil && c.next > 0) {
			t.Errorf("%s: says that the job was planned: %v", c.name, tells)
		}
		if c.effects == nil {
			continue
		}
		r := fx[len(fx)-1].Run
		if r.PlannedMs != 100 || r.Covers != c.passed.Count-1 || string(r.State) != c.passed.State || r.Code != c.passed.Code || r.FinishedMs != 350 || j.lastRun != r.ID {
			t.Errorf("%s: the run is %+v", c.name, r)
		}
		if r.ID == OccurrenceID("app", "a", time.UnixMilli(100), "") {
			t.Errorf("%s: the run has the id of the one that a backfill makes", c.name)
		}
	}
}

func TestEndedWithoutAnAttempt(t *testing.T) {
	for _, c := range []struct {
		state  State
		failed int64
		ends   bool
	}{{Skipped, 0, true}, {Missed, 1, true}, {Failed, 1, true}, {Waiting, 0, false}, {Queued, 0, false}} {
		s := NewSlot("app", 0)
		j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
		r := accepted(s, "a", 1)
		rec := &apiv1.Record{AtMs: 20, Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{
			{Run: r.ID[:], State: string(c.state), Error: "why", Code: "code", JobNextMs: 70},
		}}}}
		fx := s.Apply(rec, nil)
		if again := s.Apply(rec, nil); len(again) > 0 {
			t.Errorf("%s: a second end has the effects %v", c.state, again)
		}
		if !c.ends {
			if len(fx) > 0 || s.Runs.Get(r.ID) != r || j.NextMs != 0 {
				t.Errorf("%s: it is no end, effects %v", c.state, fx)
			}
			continue
		}
		if s.Runs.Get(r.ID) != nil || r.State != c.state || r.Error != "why" || r.Code != "code" || j.failed != c.failed || j.succeeded != 0 || j.Live() != 0 || j.NextMs != 70 {
			t.Errorf("%s: run %+v of job %+v", c.state, r, j)
		}
	}
}

// TestDelayGoesOnOnce checks that a delay schedule continues from the end of its last
// run, and not while another run is live.
func TestDelayGoesOnOnce(t *testing.T) {
	s := NewSlot("app", 0)
	j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
	a, b := armed(s, "a", 100, 0), armed(s, "a", 200, 0)
	byHand := accepted(s, "a", 1)
	end := func(r *Run, next int64) {
		s.Apply(&apiv1.Record{AtMs: 300, Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{Run: r.ID[:], State: "skipped", JobNextMs: next}}}}}, nil)
	}
	if n, ahead := j.Scheduled(300), j.Scheduled(150); n != 2 || ahead != 1 {
		t.Errorf("%d runs of the schedule, %d are due", n, ahead)
	}
	if end(b, 400); j.NextMs != 0 {
		t.Errorf("planned for %d while a run of the schedule is live", j.NextMs)
	}
	if end(a, 500); j.NextMs != 500 {
		t.Errorf("planned for %d after the last end", j.NextMs)
	}
	end(byHand, 0)
	if j.NextMs != 500 || j.Scheduled(300) != 0 {
		t.Errorf("planned for %d, %d live", j.NextMs, j.Scheduled(300))
	}
}

// TestRevokedIsNotPlanned checks that revoked times do not count as planned: a bounded
// schedule may plan them again.
func TestRevokedIsNotPlanned(t *testing.T) {
	s := NewSlot("app", 0)
	j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
	due, ahead := armed(s, "a", 100, 2), armed(s, "a", 900, 1)
	if j.Planned != 5 || j.PlannedBy(500) != 3 || j.PlannedBy(1000) != 5 {
		t.Fatalf("planned %d, %d of them by then", j.Planned, j.PlannedBy(500))
	}
	p := &apiv1.JobPut{Job: &apiv1.Job{App: "app", Name: "a"}, Rescheduled: true}
	fx := s.Apply(&apiv1.Record{AtMs: 500, Kind: &apiv1.Record_JobPut{JobPut: p}}, nil)
	if j.Planned != 3 || s.Runs.Get(due.ID) != due || s.Runs.Get(ahead.ID) != nil || !ahead.State.Terminal() || !slices.Equal(changes(fx), []Change{RunRevoked}) {
		t.Errorf("planned %d, effects %v, the revoked run is %s", j.Planned, fx, ahead.State)
	}
	armed(s, "a", 900, 0)
	p.Renewed = true
	if s.Apply(&apiv1.Record{AtMs: 500, Kind: &apiv1.Record_JobPut{JobPut: p}}, nil); j.Planned != 0 {
		t.Errorf("another schedule begins with %d planned", j.Planned)
	}
}

func fanned(s *Slot, r *Run, f *apiv1.Fanned) []Effect {
	f.Run = r.ID[:]
	return s.Apply(&apiv1.Record{AtMs: 20, Kind: &apiv1.Record_Fanned{Fanned: f}}, nil)
}

func TestFanned(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     *apiv1.Fanned
		want  []int32
		hosts []string
	}{
		{"shards", &apiv1.Fanned{Parts: 3}, []int32{0, 1, 2}, []string{"", "", ""}},
		{"broadcast", &apiv1.Fanned{Parts: 2, Hosts: []string{"h1", "h2"}}, []int32{0, 1}, []string{"h1", "h2"}},
		{"some", &apiv1.Fanned{Parts: 5, Only: []int32{1, 4}}, []int32{1, 4}, []string{"", ""}},
		{"some of a broadcast that has shrunk", &apiv1.Fanned{Parts: 2, Only: []int32{1, 2}, Hosts: []string{"h1", "h2"}}, []int32{1, 2}, []string{"h2", ""}},
		{"none", &apiv1.Fanned{}, nil, nil},
	} {
		s := NewSlot("app", 0)
		j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
		r := accepted(s, "a", 1)
		fx := fanned(s, r, c.f)
		if c.want == nil {
			if len(fx) > 0 || r.State != Queued {
				t.Errorf("%s: effects %v", c.name, fx)
			}
			continue
		}
		if fx[0].Change != RunStarted || fx[0].Run != r || r.State != Running || r.StartedMs != 20 || !r.HasParts() || r.Fan.Succeeded != c.f.Parts-int32(len(c.want)) {
			t.Errorf("%s: the parent is %+v %+v", c.name, r, r.Fan)
		}
		var got []int32
		var hosts []string
		for _, e := range fx[1:] {
			p := e.Run
			got, hosts = append(got, p.Fan.Part), append(hosts, p.Fan.Pinned)
			if e.Change != RunAccepted || !p.IsPart() || p.Fan.Parent != r.ID || p.Fan.Parts != c.f.Parts || p.State != Queued || p.Trigger != ByFanout || s.Runs.Get(p.ID) != p ||
				p.ID != PartID("app", "a", time.UnixMilli(r.PlannedMs), r.ID, p.Fan.Part) {
				t.Errorf("%s: part %+v %+v", c.name, p, p.Fan)
			}
		}
		if !slices.Equal(got, c.want) || !slices.Equal(hosts, c.hosts) || j.Live() != 1+int64(len(c.want)) {
			t.Errorf("%s: parts %d on %q, %d live", c.name, got, hosts, j.Live())
		}
		if again := fanned(s, r, c.f); len(again) > 0 {
			t.Errorf("%s: made a second time: %v", c.name, again)
		}
	}
	s := NewSlot("app", 0)
	put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
	r := accepted(s, "a", 1)
	s.Apply(&apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: r.ID[:], Attempt: 1}}}}}, nil)
	if fx := fanned(s, r, &apiv1.Fanned{Parts: 2}); len(fx) > 0 {
		t.Errorf("a run that a host has was made into parts: %v", fx)
	}
}

// TestPartsEndInAnyOrder ends three parts in every order and in every way. The parent
// must end with the last part.
func TestPartsEndInAnyOrder(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	for _, order := range orders {
		for failing := range 8 { // one bit per part
			s := NewSlot("app", 0)
			j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
			r := accepted(s, "a", 1)
			fx := fanned(s, r, &apiv1.Fanned{Parts: 3})
			parts := []*Run{fx[1].Run, fx[2].Run, fx[3].Run}
			first := -1 // the first part that failed
			for i, n := range order {
				to := Succeeded
				if failing>>n&1 == 1 {
					if to = Failed; first < 0 {
						first = n
					}
				}
				fx := s.end(parts[n], to, 99, 30, nil)
				want := []Change{RunEnded, RunChanged}
				if i == 2 {
					want = []Change{RunEnded, JobCounted, JobPlanned, RunEnded}
				}
				var got []Change
				for _, e := range fx {
					got = append(got, e.Change)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("order %v, failing %b: end %d has the effects %v", order, failing, i, changes(fx))
				}
				if (s.Runs.Get(r.ID) == nil) != (i == 2) {
					t.Fatalf("order %v: the parent is %s after %d ends", order, r.State, i+1)
				}
			}
			failed := int32(failing&1 + failing>>1&1 + failing>>2&1)
			state, succeeded := Succeeded, int64(1)
			if failed > 0 {
				state, succeeded = Failed, 0
			}
			if r.State != state || r.Fan.Failed != failed || r.Fan.Succeeded != 3-failed || j.succeeded != succeeded || j.failed != 1-succeeded || j.Live() != 0 || j.NextMs != 99 {
				t.Errorf("order %v, failing %b: parent %s %+v, job %+v", order, failing, r.State, r.Fan, j)
			}
			if want := fmt.Sprintf("part %d is failed: ", first); first >= 0 && r.Error != want {
				t.Errorf("order %v, failing %b: the parent's error is %q, want %q", order, failing, r.Error, want)
			}
		}
	}
}

// TestCancelByState checks that a cancel ends a run at once if no host has it, as stopped
// if the run was tried before.
func TestCancelByState(t *testing.T) {
	for _, c := range []struct {
		name    string
		records func(r *Run) []*apiv1.Record
		want    State
	}{
		{"queued", func(*Run) []*apiv1.Record { return nil }, Cancelled},
		{"waiting", func(r *Run) []*apiv1.Record { return []*apiv1.Record{started(r, 1), finished(r, 1, Waiting)} }, Stopped},
		{"queued again", func(r *Run) []*apiv1.Record { return []*apiv1.Record{started(r, 1), finished(r, 1, Queued)} }, Stopped},
		{"running", func(r *Run) []*apiv1.Record { return []*apiv1.Record{started(r, 1)} }, Running},
	} {
		s := NewSlot("app", 0)
		j := put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
		r := accepted(s, "a", 1)
		for _, rec := range c.records(r) {
			s.Apply(rec, nil)
		}
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: r.ID[:], JobNextMs: 80}}}, nil)
		if next := int64(80); r.State != c.want || (j.NextMs == next) == (c.want == Running) {
			t.Errorf("%s: %s, the job's next time is %d", c.name, r.State, j.NextMs)
		}
	}
}

func started(r *Run, attempt int32) *apiv1.Record {
	return &apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: r.ID[:], Attempt: attempt}}}}}
}

func finished(r *Run, attempt int32, to State) *apiv1.Record {
	return &apiv1.Record{Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{
		{Run: r.ID[:], Attempt: attempt, Host: "h", Outcome: apiv1.Outcome_OUTCOME_RETRYABLE, State: string(to), RetryMs: 60},
	}}}}
}

// TestCancelOfAParent checks that a cancel of a parent reaches all parts: waiting parts
// end at once, running parts are told to stop, and the parent ends with the last part.
func TestCancelOfAParent(t *testing.T) {
	for running := range 8 { // one bit per part
		s := NewSlot("app", 0)
		put(s, &apiv1.Job{Name: "a"}, &apiv1.JobPut{})
		r := accepted(s, "a", 1)
		fx := fanned(s, r, &apiv1.Fanned{Parts: 3})
		var busy []*Run
		for n := range 3 {
			if p := fx[1+n].Run; running>>n&1 == 1 {
				busy = append(busy, p)
				s.Apply(&apiv1.Record{Kind: &apiv1.Record_Started{Started: &apiv1.Started{Host: "h", Runs: []*apiv1.Started_Run{{Run: p.ID[:], Attempt: 1}}}}}, nil)
			}
		}
		cancel := &apiv1.Record{AtMs: 40, Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: r.ID[:], Why: "why"}}}
		stopping := 0
		for _, e := range s.Apply(cancel, nil) {
			switch e.Change {
			case RunStopping:
				stopping++
			case RunEnded:
				if e.Run != r && (e.Run.State != Cancelled || e.Run.Error != "why") {
					t.Errorf("running %b: part %+v", running, e.Run)
				}
			}
		}
		if stopping != len(busy) || (s.Runs.Get(r.ID) == nil) != (len(busy) == 0) {
			t.Errorf("running %b: %d parts are told, the parent is %s", running, stopping, r.State)
		}
		if again := s.Apply(cancel, nil); len(again) > 0 {
			t.Errorf("running %b: a second cancel has the effects %v", running, again)
		}
		for _, p := range busy {
			s.Apply(&apiv1.Record{AtMs: 50, Kind: &apiv1.Record_Finished{Finished: &apiv1.Finished{Ends: []*apiv1.Finished_End{
				{Run: p.ID[:], Attempt: 1, Host: "h", Outcome: apiv1.Outcome_OUTCOME_STOPPED, State: string(Stopped)},
			}}}}, nil)
		}
		if r.State != Stopped || r.Fan.Failed != 3 || s.Runs.Len() != 0 || r.Lost != 0 {
			t.Errorf("running %b: in the end the parent is %s %+v", running, r.State, r.Fan)
		}
	}
}

func TestCalendarsOfASlot(t *testing.T) {
	s := NewSlot("app", ModuleSlot)
	set := func(date string) []Effect {
		return s.Apply(&apiv1.Record{Kind: &apiv1.Record_CalendarPut{CalendarPut: &apiv1.CalendarPut{Calendar: &apiv1.Calendar{Name: "c", Dates: []string{date}}}}}, nil)
	}
	remove := func() []Effect {
		return s.Apply(&apiv1.Record{Kind: &apiv1.Record_CalendarDelete{CalendarDelete: &apiv1.CalendarDelete{Name: "c"}}}, nil)
	}
	set("2026-01-01")
	if fx := set("2026-01-02"); len(fx) != 1 || fx[0].Change != CalendarChanged || s.Calendars["c"].Dates[0] != "2026-01-02" {
		t.Errorf("effects %v, calendars %v", fx, s.Calendars)
	}
	if fx := remove(); len(fx) != 1 || fx[0].Change != CalendarDeleted || fx[0].Calendar.Dates[0] != "2026-01-02" || len(s.Calendars) != 0 {
		t.Errorf("effects %v, calendars %v", fx, s.Calendars)
	}
	if fx := remove(); len(fx) != 0 {
		t.Errorf("deleted twice: %v", fx)
	}
	fx := s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{
		Name: "a", Schedule: &apiv1.Schedule{Include: []string{"i"}, Exclude: []string{"c"}},
	}}}}, nil)
	if fx[0].Change != JobDepends || !slices.Equal(s.Jobs.Get("a").Calendars(), []string{"i", "c"}) {
		t.Errorf("the calendars of a job: %v, effects %v", s.Jobs.Get("a").Calendars(), fx)
	}
}
