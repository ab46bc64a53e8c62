package transport

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
)

// TestMessagesAreBounded: messages of people must be small, except change sets; those of hosts,
// servers and producers may be as large as they need.
func TestMessagesAreBounded(t *testing.T) {
	s := newSizes(codec.New(), 1<<20, access.New().Permissions())
	text := strings.Repeat("x", 2<<20)
	many := &apiv1.Workflow{}
	for range maxParts + 1 {
		many.Nodes = append(many.Nodes, &apiv1.Node{})
	}
	set, tooMany := &apiv1.ApplyChangeSetRequest{}, &apiv1.ApplyChangeSetRequest{}
	for range maxSetParts {
		set.Changes = append(set.Changes, &apiv1.Change{})
	}
	tooMany.Changes = append(set.Changes, &apiv1.Change{})
	for _, tt := range []struct {
		name    string
		m, into proto.Message
		want    codes.Code
	}{
		{"a small job", &apiv1.ApplyJobRequest{Job: &apiv1.Job{Input: text[:100_000]}}, &apiv1.ApplyJobRequest{}, codes.OK},
		{"a large job", &apiv1.ApplyJobRequest{Job: &apiv1.Job{Input: text}}, &apiv1.ApplyJobRequest{}, codes.ResourceExhausted},
		{"a workflow with too many nodes", &apiv1.ApplyJobRequest{Job: &apiv1.Job{Workflow: many}}, &apiv1.ApplyJobRequest{}, codes.ResourceExhausted},
		{"a change set", set, &apiv1.ApplyChangeSetRequest{}, codes.OK},
		{"a change set with too many parts", tooMany, &apiv1.ApplyChangeSetRequest{}, codes.ResourceExhausted},
		{"a batch of a producer", &apiv1.ProduceRequest{Commands: []*apiv1.Command{{Kind: &apiv1.Command_Apply{Apply: &apiv1.Job{Input: text}}}}}, &apiv1.ProduceRequest{}, codes.OK},
		{"results of a host", &apiv1.WorkUp{Results: []*apiv1.TaskResult{{Output: []byte(text)}}}, &apiv1.WorkUp{}, codes.OK},
		{"what a server forwards", &apiv1.ForwardRequest{Commands: []*apiv1.Command{{Kind: &apiv1.Command_Apply{Apply: &apiv1.Job{Input: text}}}}}, &apiv1.ForwardRequest{}, codes.OK},
	} {
		b, err := proto.Marshal(tt.m)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, tt.into); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err := s.refusal(tt.into); status.Code(err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if full := proto.Size(tt.into) > 0; full != (tt.want == codes.OK) {
			t.Errorf("%s: it was decoded: %t", tt.name, full)
		}
	}
	if s.pending.Load() != 0 {
		t.Errorf("%d refusals are kept for ever", s.pending.Load())
	}
	if err := s.Unmarshal(mem.BufferSlice{mem.SliceBuffer(make([]byte, 100_000))}, &apiv1.ApplyJobRequest{}); err == nil {
		t.Error("what is no message was decoded")
	}
}

// TestPartsAreCounted nests parts deeper than any real message does.
func TestPartsAreCounted(t *testing.T) {
	d := (&apiv1.ApplyJobRequest{}).ProtoReflect().Descriptor()
	b, err := proto.Marshal(&apiv1.ApplyJobRequest{Job: &apiv1.Job{Handler: &apiv1.Handler{Name: "n"}, Schedule: &apiv1.Schedule{}}})
	if err != nil {
		t.Fatal(err)
	}
	left := 10
	if !countParts(b, d, &left, maxDepth) || left != 7 {
		t.Errorf("a job with two parts has %d", 10-left)
	}
	for _, limit := range []struct{ parts, depth int }{{2, maxDepth}, {10, 1}} {
		left = limit.parts
		if countParts(b, d, &left, limit.depth) {
			t.Errorf("three parts, two deep, are within %+v", limit)
		}
	}
}
