package job

import (
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fill sets every field of a message, each to a different value.
func fill(m protoreflect.Message, n *int64) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
		case fd.Message() == m.Descriptor(): // would recurse without end
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(fd).List().AppendMutable().Message(), n)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd, n))
		case fd.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(fd).Message(), n)
		default:
			m.Set(fd, scalar(fd, n))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor, n *int64) protoreflect.Value {
	*n++
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text " + string(rune('a'+*n%26)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(*n)})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(*n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(*n)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number())
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(*n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(*n))
	}
	panic("a kind of field that no definition had: " + fd.Kind().String())
}

// TestSpecKeepsEveryField also checks new fields of a job without a change of this test.
func TestSpecKeepsEveryField(t *testing.T) {
	d := &apiv1.Job{}
	n := int64(0)
	fill(d.ProtoReflect(), &n)
	d.App, d.Name, d.NextAt, d.Stats, d.Etag = "a", "j", nil, nil, "0123456789abcdef"
	before := proto.CloneOf(d)
	s := NewSlot("a", 0)
	s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d}}}, nil)
	if !proto.Equal(d, before) {
		t.Errorf("applying a record changed it: %v, want %v", d, before)
	}
	if got := s.Jobs.Get("j").Definition(); !proto.Equal(got, before) {
		t.Errorf("the definition is\n%v, want\n%v", got, before)
	}
	again := NewSlot("a", 0)
	if _, err := again.LoadJob("j", s.Jobs.Get("j").Row()); err != nil {
		t.Fatal(err)
	}
	if got := again.Jobs.Get("j").Definition(); !proto.Equal(got, before) {
		t.Errorf("after a restart it is\n%v, want\n%v", got, before)
	}
	if *again.Jobs.Get("j").Policy() != *s.Jobs.Get("j").Policy() && again.Jobs.Get("j").Policy().Routing != s.Jobs.Get("j").Policy().Routing {
		t.Errorf("after a restart the policy is %+v, want %+v", again.Jobs.Get("j").Policy(), s.Jobs.Get("j").Policy())
	}
}

func TestSpecsShareShapes(t *testing.T) {
	s := NewSlot("a", 0)
	put := func(d *apiv1.Job) *Job {
		d.Handler = &apiv1.Handler{Module: "m@1"}
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d}}}, nil)
		return s.Jobs.Get(d.Name)
	}
	a := put(&apiv1.Job{Name: "a", Input: "one", Schedule: &apiv1.Schedule{Every: "1m"}})
	b := put(&apiv1.Job{Name: "b", InputBytes: []byte{0xff}, Schedule: &apiv1.Schedule{Delay: "1m"}, Description: "text"})
	c := put(&apiv1.Job{Name: "c", Timeout: "1s"})
	if a.kind.shape != b.kind.shape || a.kind.shape == c.kind.shape {
		t.Errorf("shapes %p %p %p: want one for a and b", a.kind.shape, b.kind.shape, c.kind.shape)
	}
	if a.Policy() == b.Policy() || b.Policy().DelayAfter.String() != "1m0s" || a.Policy().DelayAfter != 0 {
		t.Errorf("policies %+v and %+v: the delay is the job's own", a.Policy(), b.Policy())
	}
	if string(a.spec().input()) != "one" || string(b.spec().input()) != "\xff" || len(c.spec().input()) != 0 {
		t.Errorf("inputs %q %q %q", a.spec().input(), b.spec().input(), c.spec().input())
	}
	s2 := NewSlot("a", 0) // an old store has the definition in one piece
	old, err := proto.Marshal(&apiv1.Job{Name: "a", Etag: "0123456789abcdef", Revision: 7, Input: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s2.LoadJob("a", &apiv1.JobRow{Definition: old}); err != nil {
		t.Fatal(err)
	}
	if j := s2.Jobs.Get("a"); j.Revision() != 7 || j.Etag() != "0123456789abcdef" || string(j.spec().input()) != "old" {
		t.Errorf("from an old store: %+v", j)
	}
}

// TestRecount drops the runs counted since the statistics were written, and recounts them
// from the rows of the runs.
func TestRecount(t *testing.T) {
	s := NewSlot("a", 0)
	put := func(s *Slot, created time.Time) {
		s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: "j", CreatedAt: timestamppb.New(created)}}}}, nil)
	}
	put(s, time.UnixMilli(50))
	var ended []Ending
	end := func(i int, state State) {
		id := RunID{15: byte(i + 1)}
		s.Apply(&apiv1.Record{AtMs: 100, Accepts: []*apiv1.Accepted{{Run: id[:], Job: "j"}}}, nil)
		for _, e := range s.Apply(&apiv1.Record{AtMs: int64(100 + i), Kind: &apiv1.Record_Ended{Ended: &apiv1.Ended{Runs: []*apiv1.Ended_Run{{Run: id[:], State: string(state)}}}}}, nil) {
			if e.Change == RunEnded {
				row, err := e.Run.AppendRow(nil)
				if err != nil {
					t.Fatal(err)
				}
				ending, err := ReadEnding(row)
				if err != nil {
					t.Fatal(err)
				}
				ended = append(ended, ending)
			}
		}
	}
	states := []State{Succeeded, Failed, Skipped, Succeeded, TimedOut, Succeeded}
	for i, state := range states {
		end(i, state)
	}
	want := s.Jobs.Get("j").StatsRow()
	for written := range states { // number of runs counted when the statistics were last written
		again := NewSlot("a", 0)
		put(again, time.UnixMilli(50))
		j := again.Jobs.Get("j")
		for _, row := range ended[:written] {
			j.Recount(row)
		}
		restarted := NewSlot("a", 0)
		put(restarted, time.UnixMilli(50))
		k := restarted.Jobs.Get("j")
		k.LoadStats(j.StatsRow())
		for i, row := range ended { // the history has all ended runs, and may repeat some that are counted
			if counted := k.Recount(row); counted != (i >= written) {
				t.Errorf("stats with %d runs: run %d counted %v", written, i, counted)
			}
		}
		if got := k.StatsRow(); !proto.Equal(got, want) {
			t.Errorf("stats with %d runs come to %v, want %v", written, got, want)
		}
	}
	later := NewSlot("a", 0)
	put(later, time.UnixMilli(200)) // the job was deleted and created again meanwhile
	if later.Jobs.Get("j").Recount(ended[5]) {
		t.Error("a run of an earlier job of that name was counted")
	}
}

func FuzzCut(f *testing.F) {
	d := &apiv1.Job{}
	n := int64(0)
	fill(d.ProtoReflect(), &n)
	f.Add(string(encode(d)))
	f.Add("\x0a\xff")
	f.Add("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, s string) {
		for b := s; b != ""; { // cut terminates, and agrees with protowire
			number, kind, size := protowire.ConsumeTag([]byte(b))
			n, v, rest := cut(b)
			if len(rest) >= len(b) {
				t.Fatalf("%q does not get shorter: %q", b, rest)
			}
			if size < 0 {
				return
			}
			if kind == protowire.BytesType {
				if want, m := protowire.ConsumeBytes([]byte(b)[size:]); m >= 0 && (n != uint64(number) || v != string(want) || len(rest) != len(b)-size-m) {
					t.Fatalf("%q: field %d with %q, want %d with %q", b, n, v, number, want)
				}
			}
			b = rest
		}
	})
}

// TestPolicyKnowsOfAnInput checks that a run does not read the input if its policy says
// that the definition has none.
func TestPolicyKnowsOfAnInput(t *testing.T) {
	s := NewSlot("app", 0)
	for i, c := range []struct {
		d    *apiv1.Job
		want string
	}{
		{&apiv1.Job{Name: "none"}, ""},
		{&apiv1.Job{Name: "text", Input: "in"}, "in"},
		{&apiv1.Job{Name: "bytes", InputBytes: []byte{0xff}}, "\xff"},
		{&apiv1.Job{Name: "delay", Schedule: &apiv1.Schedule{Delay: "1s"}}, ""},
		{&apiv1.Job{Name: "delay and text", Schedule: &apiv1.Schedule{Delay: "1s"}, Input: "in"}, "in"},
		{&apiv1.Job{Name: "text", Input: ""}, ""}, // the definition was changed
	} {
		s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: c.d}}}, nil)
		j := s.Jobs.Get(c.d.Name)
		loaded := NewSlot("app", 0)
		if _, err := loaded.LoadJob(c.d.Name, j.Row()); err != nil {
			t.Fatal(err)
		}
		for what, j := range map[string]*Job{"put": j, "loaded": loaded.Jobs.Get(c.d.Name)} {
			r := &Run{Policy: j.Policy(), spec: j.spec()}
			if got := string(r.Given()); got != c.want {
				t.Errorf("%d, %s: a run of %v is given %q, want %q", i, what, c.d, got, c.want)
			}
		}
	}
}
