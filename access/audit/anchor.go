package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Anchor is the end of a chain at a time, noted in another place. The zero value is that of an empty
// chain.
type Anchor struct {
	Sequence uint64 // of the last event
	Head     []byte
}

// Anchor returns the present end of the chain.
func (c *Chain) Anchor() Anchor {
	if c.First() == 1 {
		return Anchor{}
	}
	return Anchor{c.First() - 1, bytes.Clone(c.Head[:])}
}

// ParseAnchor reads an anchor; nil is the zero value.
func ParseAnchor(m *apiv1.AuditAnchor) (Anchor, error) {
	if m.GetSequence() == 0 && m.GetHead() == "" {
		return Anchor{}, nil
	}
	head, err := hex.DecodeString(m.GetHead())
	if err != nil || len(head) != sha256.Size || m.GetSequence() == 0 {
		return Anchor{}, fmt.Errorf("event %d with the hash %.80q is not the end of a log: want the sequence of an event and its SHA-256 in hexadecimal", m.GetSequence(), m.GetHead())
	}
	return Anchor{m.GetSequence(), head}, nil
}

// Message returns the anchor of a partition as the API has it.
func (a *Anchor) Message(partition string) *apiv1.AuditAnchor {
	return &apiv1.AuditAnchor{Partition: partition, Sequence: a.Sequence, Head: hex.EncodeToString(a.Head)}
}

// Check checks whether a chain contains an anchor, with the entries of the chain in their order.
type Check struct {
	Anchor Anchor
	begun  bool
	met    bool // the chain has the anchor, or begins behind it
	failed error
}

// Follow looks at an entry that the chain has followed: c is at its end.
func (k *Check) Follow(c *Chain, first uint64) {
	a := &k.Anchor
	begins := !k.begun
	k.begun = true
	switch {
	case k.met || k.failed != nil:
	case begins && first > a.Sequence:
		k.met = true // the limit of the log has removed the event
	case c.First()-1 < a.Sequence:
	case c.First()-1 == a.Sequence && bytes.Equal(c.Head[:], a.Head):
		k.met = true
	default:
		k.failed = fmt.Errorf("%w: the hash of event %d is another one than the anchored one: an event up to it was changed, removed or added", ErrBroken, a.Sequence)
	}
}

// Err returns the problem when c is at the end of the chain; nil: the chain contains the anchor.
func (k *Check) Err(c *Chain) error {
	if k.met || k.failed != nil || k.Anchor.Sequence == 0 {
		return k.failed
	}
	return fmt.Errorf("%w: the log ends at event %d, and was anchored at event %d: events at its end were removed, or the partition was restored from an older backup (then `wheelwork audit accept PARTITION` accepts its log)", ErrBroken, c.First()-1, k.Anchor.Sequence)
}
