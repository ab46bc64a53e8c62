// Package audit has the form of audit events: their codes, and the chain of hashes that shows whether
// one was changed or removed.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The outcomes of events.
const (
	OK     = "ok"
	Denied = "denied"
	Failed = "failed"
)

// Chain is the end of the chain of a partition. The zero value is that of an empty one.
type Chain struct {
	Next uint64            // the sequence of the next event
	Head [sha256.Size]byte // the hash over all events before
}

// First returns the sequence of the next event. The first event has the sequence 1.
func (c *Chain) First() uint64 { return max(c.Next, 1) }

// head returns the hash after an entry.
func (c *Chain) head(first uint64, atMs int64, events []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(c.Head[:])
	h.Write(binary.BigEndian.AppendUint64(nil, first))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(atMs)))
	h.Write(events)
	h.Sum(sum[:0])
	return sum
}

// Add adds n encoded events to the chain, and returns the entry with them.
func (c *Chain) Add(atMs int64, events []byte, n int) *apiv1.Audited {
	first := c.First()
	c.Head = c.head(first, atMs, events)
	c.Next = first + uint64(n)
	return &apiv1.Audited{First: first, Events: events, Head: bytes.Clone(c.Head[:])}
}

// ErrBroken means that an entry does not continue the chain.
var ErrBroken = errors.New("the chain is broken")

// Follow checks that an entry continues the chain, and moves to its end. An entry at the beginning of
// a log whose older events were removed begins the chain anew: from is then true, and only its own
// events are checked by those that follow. After an error the chain continues behind the entry.
func (c *Chain) Follow(e *apiv1.Audited, atMs int64, from bool) error {
	events, err := Events(e)
	want := c.head(e.First, atMs, e.Events)
	gap := c.Next != 0 && e.First != c.Next || c.Next == 0 && !from && e.First != 1
	var problem error
	switch {
	case err != nil:
		problem = fmt.Errorf("%w: the events cannot be read", ErrBroken)
	case gap:
		problem = fmt.Errorf("%w: the events %d to %d are missing", ErrBroken, c.First(), e.First-1)
	case !from && !bytes.Equal(want[:], e.Head):
		problem = fmt.Errorf("%w: the hash of the events is another one", ErrBroken)
	}
	c.Next = e.First + max(Count(events), 1)
	if len(e.Head) == sha256.Size {
		c.Head = [sha256.Size]byte(e.Head)
	}
	return problem
}

// Events decodes the events of an entry.
func Events(e *apiv1.Audited) (*apiv1.AuditEvents, error) {
	m := &apiv1.AuditEvents{}
	if err := proto.Unmarshal(e.Events, m); err != nil {
		return nil, fmt.Errorf("decode audit events: %w", err)
	}
	return m, nil
}

// Count returns the number of events.
func Count(m *apiv1.AuditEvents) (n uint64) {
	for _, g := range m.GetGroups() {
		n += uint64(len(g.Events))
	}
	return n
}

// Names returns the names by which the entry with events is found, see [AppName], [ActorName] and
// [CodeName].
func Names(m *apiv1.AuditEvents) []string {
	var all []string
	for _, g := range m.GetGroups() {
		all = append(all, ActorName(g.Actor), AppName(g.App), CodeName(g.Code))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// AppName is the name of the entries with an event about an app.
func AppName(app string) string { return "app/" + app }

// ActorName is the name of the entries with an event of an actor.
func ActorName(actor string) string { return "actor/" + actor }

// CodeName is the name of the entries with an event with a code.
func CodeName(code string) string { return "code/" + code }

// Messages returns the events of an entry at a position as the API shows them, oldest first.
func Messages(first uint64, pos, atMs int64, partition string, m *apiv1.AuditEvents) []*apiv1.AuditEvent {
	var all []*apiv1.AuditEvent
	for _, g := range m.GetGroups() {
		for _, e := range g.Events {
			x := &apiv1.AuditEvent{
				Time: timestamppb.New(timeOf(atMs)), Code: g.Code, Actor: g.Actor, Kind: g.Kind, Token: g.Token, Address: g.Address, App: g.App, Object: e.Object,
				Outcome: e.Outcome, Before: e.Before, After: e.After, Message: e.Message, Count: max(e.Count, 1), Partition: partition, Sequence: first + uint64(len(all)), Position: pos,
			}
			if e.Revision > 0 {
				x.Before = revision(e.Revision - 1)
				if x.After = revision(e.Revision); strings.HasSuffix(g.Code, deleted) {
					x.After = ""
				}
			}
			if x.Outcome == "" {
				x.Outcome = OK
			}
			if x.Message == "" {
				x.Message = g.Note
			}
			all = append(all, x)
		}
	}
	return all
}
