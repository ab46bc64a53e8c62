package job

import (
	"bytes"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// sameBytes checks that bytes written by this package decode to want.
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

// TestRowByHand loads rows with every field set. It compares the bytes that the resulting
// run appends with its message.
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
			want := Ending{ID: r.ID, App: r.App, Job: r.Job, State: state, FinishedMs: r.FinishedMs, Nth: r.Nth}
			if e, err := ReadEnding(b); err != nil || e != want {
				t.Errorf("read as %+v, %v; want %+v", e, err, want)
			}
			if row.HasInput && !proto.Equal(r.Row().Attempts[0], row.Attempts[0]) || r.Row().Attempts[0].Code == "" {
				t.Errorf("attempts %v, want %v", r.Row().Attempts, row.Attempts)
			}
		}
	}
}

// TestEndingOfDamaged checks that bytes that are not a row give no ending.
func TestEndingOfDamaged(t *testing.T) {
	for _, bad := range []string{"\x0a\xff", "\x08\x01", "\x12\x01\xff", "\x32\x05abcd", "\x28", "\xff"} {
		if e, err := ReadEnding([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, e)
		}
	}
}

// TestRunsShare checks that two runs share a part of their rows exactly if the bytes of
// that part are equal.
func TestRunsShare(t *testing.T) {
	n := int64(0)
	row, d := &apiv1.RunRow{}, &apiv1.Job{}
	fill(row.ProtoReflect(), &n)
	fill(d.ProtoReflect(), &n)
	d.Workflow = nil
	row.Parent, row.Cause, row.State, row.Definition = make([]byte, 16), make([]byte, 16), string(Succeeded), encode(d)
	var runs []*Run
	load := func(row *apiv1.RunRow) {
		row.Id = append(make([]byte, 14), byte(len(runs)>>8), byte(len(runs)))
		s := NewSlot("a", 0)
		if err := s.LoadRun(row); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s.Runs.Get(runID(row.Id)))
	}
	load(proto.CloneOf(row))
	fields := row.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		changed, fd := proto.CloneOf(row), fields.Get(i)
		if fd.IsList() || fd.Message() != nil || fd.Name() == "definition" || fd.Name() == "id" {
			continue
		}
		m := changed.ProtoReflect()
		switch v := m.Get(fd); fd.Kind() {
		case protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString("x"+v.String()))
		case protoreflect.BytesKind:
			m.Set(fd, protoreflect.ValueOfBytes(append([]byte{1}, v.Bytes()[1:]...)))
		case protoreflect.Int32Kind:
			m.Set(fd, protoreflect.ValueOfInt32(int32(v.Int())+1))
		case protoreflect.Int64Kind:
			m.Set(fd, protoreflect.ValueOfInt64(v.Int()+1))
		default:
			continue
		}
		load(changed)
	}
	for _, change := range []func(*apiv1.Job){
		func(d *apiv1.Job) { d.Handler.Module += "x" },
		func(d *apiv1.Job) { d.Handler.Name += "x" },
		func(d *apiv1.Job) { d.Retry = &apiv1.Retry{Max: 7} },
		func(d *apiv1.Job) { d.Priority++ },
		func(d *apiv1.Job) { d.Labels["another"] = "label" },
	} {
		changed, d := proto.CloneOf(row), proto.CloneOf(d)
		change(d)
		changed.Definition = encode(d)
		load(changed)
	}
	share, differ := 0, 0
	for _, a := range runs {
		for _, b := range runs {
			same := bytes.Equal(a.AppendShared(nil), b.AppendShared(nil))
			if a.Shares(b) != same {
				t.Errorf("runs share %v, and their bytes are the same: %v\n%v\n%v", a.Shares(b), same, a.Row(), b.Row())
			}
			if same {
				share++
			} else {
				differ++
			}
		}
	}
	if share <= len(runs) || differ <= len(runs) {
		t.Errorf("of %d runs %d pairs share and %d do not: the test tests nothing", len(runs), share, differ)
	}
}

// TestStatsByHand does the same for the statistics of a job.
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
