package access

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/audit"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Anchors are the ends of the audit logs of other partitions: a part of [State], with its rules.
type Anchors struct {
	rows rows[*apiv1.AuditAnchorRow] // by partition
}

// maxAnchors bounds the anchors, so that a server cannot fill the memory of the others.
const maxAnchors = 1000

// Move returns the changes that move the anchor of a partition to a later event, and the anchor after
// them. It changes nothing if the caller does not know the stored anchor, and never moves an anchor
// back.
func (s Anchors) Move(q *apiv1.AnchorAuditRequest, now time.Time) ([]Change, *apiv1.AuditAnchor, error) {
	next, err := readAnchor(q.Anchor)
	if err != nil {
		return nil, nil, err
	}
	next.TimeMs = now.UnixMilli()
	old := s.rows[next.Partition]
	former, err := audit.ParseAnchor(q.Former)
	if err != nil {
		return nil, nil, invalid("the former anchor: %v", err)
	}
	switch {
	case old != nil && !sameAnchor(old, former), old != nil && next.Sequence == old.Sequence && bytes.Equal(next.Head, old.Head):
		return nil, anchorMessage(old), nil
	case old != nil && next.Sequence <= old.Sequence:
		return nil, nil, status.Errorf(codes.FailedPrecondition, "the audit log of the partition %s ends at event %d, and is anchored at event %d", next.Partition, next.Sequence, old.Sequence)
	case old == nil && len(s.rows) >= maxAnchors:
		return nil, nil, full("anchors", maxAnchors)
	}
	return []Change{{Put: &apiv1.AccessPut{Kind: &apiv1.AccessPut_Anchor{Anchor: next}}}}, anchorMessage(next), nil
}

// readAnchor returns the row of an anchor that a request has.
func readAnchor(m *apiv1.AuditAnchor) (*apiv1.AuditAnchorRow, error) {
	a, err := audit.ParseAnchor(m)
	switch {
	case err != nil:
		return nil, invalid("the anchor: %v", err)
	case a.Sequence == 0:
		return nil, invalid("the anchor has no event")
	}
	if err := naming.Check("partition", m.Partition); err != nil {
		return nil, invalid("%v", err)
	}
	return &apiv1.AuditAnchorRow{Partition: m.Partition, Sequence: a.Sequence, Head: a.Head}, nil
}

func sameAnchor(row *apiv1.AuditAnchorRow, a audit.Anchor) bool {
	return row.Sequence == a.Sequence && bytes.Equal(row.Head, a.Head)
}

// Remove returns the change that removes the anchor of a partition.
func (s Anchors) Remove(partition string) ([]Change, error) {
	if s.rows[partition] == nil {
		return nil, status.Errorf(codes.NotFound, "the partition %.80q has no anchor", partition)
	}
	return []Change{{Delete: &apiv1.AccessDelete{Kind: anchorRow, Id: partition}}}, nil
}

// List returns the anchors by partition.
func (s Anchors) List() []*apiv1.AuditAnchor {
	var all []*apiv1.AuditAnchor
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		all = append(all, anchorMessage(s.rows[name]))
	}
	return all
}

func anchorMessage(row *apiv1.AuditAnchorRow) *apiv1.AuditAnchor {
	m := (&audit.Anchor{Sequence: row.Sequence, Head: row.Head}).Message(row.Partition)
	m.Time = stamp(row.TimeMs)
	return m
}
