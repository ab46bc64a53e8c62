package job

import (
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fill sets every field of a message, each to something else.
func fill(m protoreflect.Message, n *int64) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(fd).List().AppendMutable().Message(), n)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd, n))
		case fd.Kind() == protoreflect.MessageKind:
			if fd.Message() != m.Descriptor() {
				fill(m.Mutable(fd).Message(), n)
			}
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
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(*n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(*n))
	}
	panic("a kind of field that no definition had: " + fd.Kind().String())
}

// TestSpecKeepsEveryField is what a new field of a job has to pass, without
// anybody thinking of it.
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
	if got := s.Jobs["j"].Definition(); !proto.Equal(got, before) {
		t.Errorf("the definition is\n%v, want\n%v", got, before)
	}
	again := NewSlot("a", 0)
	if err := again.LoadJob("j", s.Jobs["j"].Row()); err != nil {
		t.Fatal(err)
	}
	if got := again.Jobs["j"].Definition(); !proto.Equal(got, before) {
		t.Errorf("after a restart it is\n%v, want\n%v", got, before)
	}
	if *again.Jobs["j"].Policy != *s.Jobs["j"].Policy && again.Jobs["j"].Policy.Routing != s.Jobs["j"].Policy.Routing {
		t.Errorf("after a restart the policy is %+v, want %+v", again.Jobs["j"].Policy, s.Jobs["j"].Policy)
	}
}

func TestSpecsShareShapes(t *testing.T) {
	s := NewSlot("a", 0)
	put := func(d *apiv1.Job) *Job {
		d.Handler = &apiv1.Handler{Module: "m@1"}
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d}}}, nil)
		return s.Jobs[d.Name]
	}
	a := put(&apiv1.Job{Name: "a", Input: "one", Schedule: &apiv1.Schedule{Every: "1m"}})
	b := put(&apiv1.Job{Name: "b", InputBytes: []byte{0xff}, Schedule: &apiv1.Schedule{Delay: "1m"}, Description: "text"})
	c := put(&apiv1.Job{Name: "c", Timeout: "1s"})
	if a.shape != b.shape || a.shape == c.shape {
		t.Errorf("shapes %p %p %p: want one for a and b", a.shape, b.shape, c.shape)
	}
	if a.Policy == b.Policy || b.Policy.DelayAfter.String() != "1m0s" || a.Policy.DelayAfter != 0 {
		t.Errorf("policies %+v and %+v: the delay is the job's own", a.Policy, b.Policy)
	}
	if string(a.input()) != "one" || string(b.input()) != "\xff" || len(c.input()) != 0 {
		t.Errorf("inputs %q %q %q", a.input(), b.input(), c.input())
	}
	s2 := NewSlot("a", 0) // an old store has the definition in one piece
	old, err := proto.Marshal(&apiv1.Job{Name: "a", Etag: "0123456789abcdef", Revision: 7, Input: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s2.LoadJob("a", &apiv1.JobRow{Definition: old}); err != nil {
		t.Fatal(err)
	}
	if j := s2.Jobs["a"]; j.Revision != 7 || j.Etag() != "0123456789abcdef" || string(j.input()) != "old" {
		t.Errorf("from an old store: %+v", j)
	}
}
