package codec

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	usual "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
)

// fresh makes the messages that are written by hand.
var fresh = []func() proto.Message{
	func() proto.Message { return &apiv1.ProduceRequest{} },
	func() proto.Message { return &apiv1.ProduceResponse{} },
	func() proto.Message { return &apiv1.WorkUp{} },
	func() proto.Message { return &apiv1.WorkDown{} },
}

// value returns a nonzero value for a field. For a message field it returns the zero
// Value.
func value(f protoreflect.FieldDescriptor, n int64) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("ä", int(n)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(bytes.Repeat([]byte{0xff}, int(n)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(-n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(-n)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(1<<32 - n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1<<63 + uint64(n))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	}
	return protoreflect.Value{}
}

// each calls do with messages that have one field set, recursively for each field of a
// field's message, and finally with a message that has all fields set except message
// fields.
func each(make func() protoreflect.Message, depth int, do func(m protoreflect.Message, path string)) {
	all := make()
	fields := all.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		set := func(m protoreflect.Message, v protoreflect.Value) {
			switch {
			case f.IsMap():
				m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), value(f.MapValue(), 3))
			case f.IsList():
				m.Mutable(f).List().Append(v)
				m.Mutable(f).List().Append(v)
			default:
				m.Set(f, v)
			}
		}
		if f.IsMap() || f.Message() == nil {
			m := make()
			set(m, value(f, int64(100+i)))
			set(all, value(f, int64(200+i)))
			do(m, string(f.Name()))
			continue
		}
		if depth == 0 {
			continue
		}
		each(func() protoreflect.Message {
			m := make()
			if f.IsList() {
				return m.NewField(f).List().NewElement().Message()
			}
			return m.NewField(f).Message()
		}, depth-1, func(sub protoreflect.Message, path string) {
			m := make()
			set(m, protoreflect.ValueOfMessage(sub))
			do(m, string(f.Name())+"."+path)
		})
	}
	do(all, "all")
}

// TestEveryField writes and reads messages with each field. The code by hand must produce
// the same as the usual codec, or refuse the message.
func TestEveryField(t *testing.T) {
	byHand := map[protoreflect.FullName]int{}
	for _, make := range fresh {
		each(func() protoreflect.Message { return make().ProtoReflect() }, 2, func(m protoreflect.Message, path string) {
			in := m.Interface()
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := Append(nil, in); ok {
				byHand[m.Descriptor().FullName()]++
				if !bytes.Equal(got, want) {
					t.Errorf("%T %s: by hand\n%x\n%x", in, path, got, want)
				}
			}
			through(t, in)
		})
	}
	for _, name := range []protoreflect.FullName{"wheelwork.v1.ProduceRequest", "wheelwork.v1.ProduceResponse", "wheelwork.v1.WorkUp", "wheelwork.v1.WorkDown"} {
		if byHand[name] < 3 {
			t.Errorf("%s: %d of the messages were written by hand", name, byHand[name])
		}
	}
}

// through sends a message through the codec and back.
func through(t *testing.T, in proto.Message) {
	t.Helper()
	c := New()
	data, err := c.Marshal(in)
	if err != nil {
		t.Fatalf("%v: %v", in, err)
	}
	defer data.Free()
	out := in.ProtoReflect().New().Interface()
	if err := c.Unmarshal(data, out); err != nil {
		t.Fatalf("%v: %v", in, err)
	}
	if !proto.Equal(in, out) {
		t.Errorf("%v came back as %v", in, out)
	}
}

func hot() []proto.Message {
	task := &apiv1.Task{Run: bytes.Repeat([]byte{7}, 16), App: "default", Job: "j", Attempt: 1, Module: "m@1", Handler: "main", Input: []byte("in"), Args: []string{"", "a"}}
	return []proto.Message{
		&apiv1.ProduceRequest{Number: 7, Commands: []*apiv1.Command{
			{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: "j", Input: proto.String(""), IdempotencyKey: "k"}}},
			{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: strings.Repeat("long", 100), InputBytes: []byte{}}}},
		}},
		&apiv1.ProduceResponse{Number: 7, Sync: "always", Results: []*apiv1.CommandResult{{Result: "accepted", RunId: "X"}, {Code: 5, Error: "no"}}},
		&apiv1.WorkUp{Credits: 3, Batch: 9, Results: []*apiv1.TaskResult{{Run: task.Run, App: "default", Attempt: 1, Output: []byte("out"), Outcome: apiv1.Outcome_OUTCOME_SUCCEEDED}}},
		&apiv1.WorkDown{Tasks: []*apiv1.Task{task, task}, Acked: 1},
	}
}

func TestHotMessagesGoByHand(t *testing.T) {
	for _, m := range hot() {
		b, ok := Append(nil, m)
		if !ok {
			t.Errorf("%v was not written by hand", m)
		}
		out := m.ProtoReflect().New().Interface()
		if r := wire.NewReader(b); !readerOf(out)(&r) || !proto.Equal(m, out) {
			t.Errorf("%v was read by hand as %v", m, out)
		}
		through(t, m)
	}
}

func TestWhatIsRareGoesTheUsualWay(t *testing.T) {
	unknown := &apiv1.WorkUp{Results: []*apiv1.TaskResult{{}}}
	unknown.Results[0].ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1})
	for _, m := range []proto.Message{
		unknown,
		&apiv1.ProduceRequest{Commands: []*apiv1.Command{{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{Name: "j"}}}}},
		&apiv1.WorkDown{Tasks: []*apiv1.Task{{Env: map[string]string{"A": "b"}}}},
	} {
		if _, ok := Append(nil, m); ok {
			t.Errorf("%v was written by hand", m)
		}
		through(t, m)
	}
	if _, err := New().Marshal(&apiv1.ProduceRequest{Commands: []*apiv1.Command{
		{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{Name: "\xff"}}},
	}}); err == nil {
		t.Error("a name that is not UTF-8 was sent")
	}
	c := New()
	data := mem.BufferSlice{mem.SliceBuffer([]byte{0x12, 0x05, 0x1a, 0x03, 0x12, 0x01, 0xff})} // the same name, from another client
	if err := c.Unmarshal(data, &apiv1.ProduceRequest{}); err == nil {
		t.Error("a name that is not UTF-8 was taken")
	}
}

// FuzzCodec compares reading by hand with proto.Unmarshal.
func FuzzCodec(f *testing.F) {
	for i, m := range hot() {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		got, want := fresh[int(kind)%len(fresh)](), fresh[int(kind)%len(fresh)]()
		c := New()
		err, wantErr := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got), proto.Unmarshal(b, want)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("by hand: %v, the usual way: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !proto.Equal(got, want) {
			t.Fatalf("by hand\n%v, the usual way\n%v", got, want)
		}
		through(t, got)
	})
}

// BenchmarkCodec encodes and decodes one message of 256 tasks.
func BenchmarkCodec(b *testing.B) {
	m := &apiv1.WorkDown{}
	for range 256 {
		m.Tasks = append(m.Tasks, &apiv1.Task{
			Run: bytes.Repeat([]byte{7}, 16), App: "default", Job: "job-123456", Attempt: 1, MaxAttempts: 1, Epoch: 1, PlannedMs: 1795000000000,
			Module: "trivial@1", Digest: "sha256:" + strings.Repeat("a", 64), Handler: "main", TimeoutMs: 60_000,
		})
	}
	usually := encoding.GetCodecV2(usual.Name)
	for name, c := range map[string]encoding.CodecV2{"hand": New(), "usual": usually} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data, err := c.Marshal(m)
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Unmarshal(data, &apiv1.WorkDown{}); err != nil {
					b.Fatal(err)
				}
				data.Free()
			}
		})
	}
}
