package access_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// end returns the end of the log of a partition, with a hash of one repeated character.
func end(partition string, sequence uint64, hash string) *apiv1.AuditAnchor {
	return &apiv1.AuditAnchor{Partition: partition, Sequence: sequence, Head: strings.Repeat(hash, 64)}
}

// TestAnchors moves the anchor of a partition, and checks which calls cannot.
func TestAnchors(t *testing.T) {
	s := access.NewState()
	now := time.Unix(1_800_000_000, 0)
	for i, step := range []struct {
		next, former *apiv1.AuditAnchor
		stored       *apiv1.AuditAnchor // after it; nil: the call is refused
		want         codes.Code
	}{
		{end("u1", 3, "a"), nil, end("u1", 3, "a"), codes.OK},
		{end("u1", 5, "b"), nil, end("u1", 3, "a"), codes.OK}, // it does not know the stored one
		{end("u1", 5, "b"), end("u1", 3, "c"), end("u1", 3, "a"), codes.OK},
		{end("u1", 5, "b"), end("u1", 3, "a"), end("u1", 5, "b"), codes.OK},
		{end("u1", 5, "b"), end("u1", 3, "a"), end("u1", 5, "b"), codes.OK}, // repeated
		{end("u1", 5, "b"), end("u1", 5, "b"), end("u1", 5, "b"), codes.OK},
		{end("u1", 4, "a"), end("u1", 5, "b"), nil, codes.FailedPrecondition}, // not back
		{end("u1", 5, "a"), end("u1", 5, "b"), nil, codes.FailedPrecondition}, // not another log
		{end("u2", 1, "e"), nil, end("u2", 1, "e"), codes.OK},
		{end("u1", 0, "e"), nil, nil, codes.InvalidArgument},
		{&apiv1.AuditAnchor{Partition: "u1"}, nil, nil, codes.InvalidArgument},
		{nil, nil, nil, codes.InvalidArgument},
		{end("u1", 9, "xy"), nil, nil, codes.InvalidArgument},
		{end("u1", 9, "a"), end("u1", 5, "not a hash"), nil, codes.InvalidArgument},
		{end("a b", 9, "a"), nil, nil, codes.InvalidArgument},
	} {
		changes, stored, err := s.Anchors.Move(&apiv1.AnchorAuditRequest{Anchor: step.next, Former: step.former}, now)
		for _, c := range changes {
			s.Apply(c)
		}
		if stored != nil {
			stored.Time = nil
		}
		if status.Code(err) != step.want || !proto.Equal(stored, step.stored) {
			t.Errorf("step %d: %v, %v; want %v, %v", i, stored, err, step.stored, step.want)
		}
	}
	all := s.Anchors.List()
	if len(all) != 2 || all[0].Sequence != 5 || !all[0].Time.AsTime().Equal(now) || all[1].Partition != "u2" {
		t.Errorf("%v", all)
	}

	// Stored rows are loaded again.
	changes, err := s.Anchors.Remove("u1")
	if err != nil {
		t.Fatal(err)
	}
	again := access.NewState()
	for _, a := range all {
		c, _, err := again.Anchors.Move(&apiv1.AnchorAuditRequest{Anchor: a}, now)
		if err != nil {
			t.Fatal(err)
		}
		kind, id, row := c[0].Row()
		b, err := proto.Marshal(row)
		if err == nil {
			err = again.Load(kind, id, b)
		}
		if err != nil || c[0].OfCredentials() {
			t.Errorf("%v of %s %s: %v", c, kind, id, err)
		}
	}
	if len(again.Anchors.List()) != 2 {
		t.Errorf("%v", again.Anchors.List())
	}

	s.Apply(changes[0])
	if _, err := s.Anchors.Remove("u1"); status.Code(err) != codes.NotFound {
		t.Errorf("an anchor is removed twice: %v", err)
	}
	if _, stored, err := s.Anchors.Move(&apiv1.AnchorAuditRequest{Anchor: end("u1", 2, "c"), Former: end("u1", 5, "b")}, now); err != nil || stored.Sequence != 2 {
		t.Errorf("a shorter log after its acceptance: %v, %v", stored, err)
	}
}
