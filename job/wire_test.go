package job

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/proto"
)

// sameBytes checks that what is written by hand says what want says.
func sameBytes(t *testing.T, what string, b []byte, want proto.Message) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s: the bytes say\n%v, want\n%v", what, got, want)
	}
	if n := len(got.ProtoReflect().GetUnknown()); n > 0 {
		t.Errorf("%s: %d bytes that no field explains", what, n)
	}
}

func TestRecordsByHand(t *testing.T) {
	n := int64(0)
	full := func(set func(*apiv1.Record)) *apiv1.Record {
		rec := &apiv1.Record{AtMs: 1_700_000_000_000}
		set(rec)
		return rec
	}
	for what, rec := range map[string]*apiv1.Record{
		"started": full(func(rec *apiv1.Record) {
			s := &apiv1.Started{}
			fill(s.ProtoReflect(), &n)
			s.Runs = append(s.Runs, &apiv1.Started_Run{Run: make([]byte, 16), Attempt: 300})
			rec.Kind = &apiv1.Record_Started{Started: s}
		}),
		"finished": full(func(rec *apiv1.Record) {
			f := &apiv1.Finished{}
			fill(f.ProtoReflect(), &n)
			long := &apiv1.Finished_End{}
			fill(long.ProtoReflect(), &n)
			long.Output, long.Attempt = make([]byte, 20_000), -1 // a length of three bytes; a negative number
			f.Ends = append(f.Ends, long, &apiv1.Finished_End{})
			rec.Kind = &apiv1.Record_Finished{Finished: f}
		}),
		"empty": full(func(rec *apiv1.Record) {
			rec.Kind = &apiv1.Record_Finished{Finished: &apiv1.Finished{}}
		}),
		"another": full(func(rec *apiv1.Record) {
			rec.Kind = &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: "j"}}
		}),
	} {
		b, err := AppendRecord([]byte("before"), rec)
		if err != nil || string(b[:6]) != "before" {
			t.Fatalf("%s: %q, %v", what, b, err)
		}
		sameBytes(t, what, b[6:], rec)
	}

	want := &apiv1.Record{AtMs: 7}
	b := BeginAccepts(nil, 7)
	for range 2 {
		a := &apiv1.Accepted{}
		fill(a.ProtoReflect(), &n)
		a.Parts, a.Input = []int32{1, 300, -1}, make([]byte, 150)
		want.Accepts = append(want.Accepts, a)
		var err error
		if b, err = AppendAccept(b, a); err != nil {
			t.Fatal(err)
		}
	}
	sameBytes(t, "accepts", b, want)
	b, err := AppendRecord(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	sameBytes(t, "accepts in one piece", b, want)
}

// TestRowByHand loads rows with every field set and compares what the run they
// make writes with the message that says the same.
func TestRowByHand(t *testing.T) {
	n := int64(0)
	for _, state := range States() {
		row := &apiv1.RunRow{}
		fill(row.ProtoReflect(), &n)
		d := &apiv1.Job{}
		fill(d.ProtoReflect(), &n)
		d.Workflow = nil
		row.Id, row.Parent, row.Cause, row.State = make([]byte, 16), make([]byte, 16), make([]byte, 16), string(state)
		row.Id[0], row.Parent[1], row.Cause[2] = 1, 2, 3
		row.Output = make([]byte, 1000)
		for _, input := range []bool{true, false} {
			row.HasInput = input
			row.Definition = encode(d)
			s := NewSlot("a", 0)
			if err := s.LoadRun(row); err != nil {
				t.Fatal(err)
			}
			r := s.Runs.Get(runID(row.Id))
			r.Nth, r.FinishedMs = 9, 1_700_000_000_000
			b, err := r.AppendRow(nil)
			if err != nil {
				t.Fatal(err)
			}
			sameBytes(t, string(state), b, r.Row())
			if row.HasInput && !proto.Equal(r.Row().Attempts[0], row.Attempts[0]) || r.Row().Attempts[0].Code == "" {
				t.Errorf("attempts %v, want %v", r.Row().Attempts, row.Attempts)
			}
		}
	}
}

// TestStatsByHand does the same for the stats of a job.
func TestStatsByHand(t *testing.T) {
	n := int64(0)
	full := &apiv1.JobStatsRow{}
	fill(full.ProtoReflect(), &n)
	full.LastRun, full.LastState = make([]byte, 16), string(Skipped)
	for name, row := range map[string]*apiv1.JobStatsRow{
		"full": full, "nothing": {}, "a plan": {NextMs: 1_700_000_000_000, Planned: 3}, "given": {GivenMs: []int64{1_700_000_000_000, 5}},
	} {
		j := &Job{}
		j.LoadStats(row)
		b, err := j.AppendStats(nil)
		if err != nil {
			t.Fatal(err)
		}
		sameBytes(t, name, b, j.StatsRow())
		if !proto.Equal(j.StatsRow(), row) {
			t.Errorf("%s: %v was loaded, and %v comes out", name, row, j.StatsRow())
		}
	}
}

// TestJobRowByHand does the same for the definition of a job.
func TestJobRowByHand(t *testing.T) {
	n := int64(0)
	d := &apiv1.Job{}
	fill(d.ProtoReflect(), &n)
	d.Workflow, d.Name = nil, "j"
	s := NewSlot("a", 0)
	s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d, NextMs: 1_700_000_000_000}}}, nil)
	j := s.Jobs.Get("j")
	j.Planned = 7
	b, err := j.AppendRow(nil)
	if err != nil {
		t.Fatal(err)
	}
	sameBytes(t, "job", b, j.Row())
	row := &apiv1.JobRow{}
	if err := proto.Unmarshal(b, row); err != nil {
		t.Fatal(err)
	}
	for fields, i := row.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
		if f := fields.Get(i); !row.ProtoReflect().Has(f) && f.Name() != "definition" {
			t.Errorf("the field %s is not set: the test does not test it", f.Name())
		}
	}
}
