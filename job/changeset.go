package job

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ChangeSet is a change set that is being applied. The module slot stores it before the first
// change is applied, so that a crash does not divide it.
type ChangeSet struct {
	Row   *apiv1.ChangeSetRow // immutable
	parts [][]byte            // each an encoded ApplyChangeSetRequest
}

// ChangeSet returns the change set that is being applied; nil: none, or the slot is not the
// module slot.
func (s *Slot) ChangeSet() *ChangeSet {
	if s.changeSet == nil || s.changeSet.Row == nil {
		return nil
	}
	return s.changeSet
}

// Changes decodes the changes of the set, those that were applied included.
func (c *ChangeSet) Changes() ([]*apiv1.Change, error) {
	var all []*apiv1.Change
	for _, part := range c.parts {
		m := &apiv1.ApplyChangeSetRequest{}
		if err := proto.Unmarshal(part, m); err != nil {
			return nil, fmt.Errorf("decode a change set: %w", err)
		}
		all = append(all, m.Changes...)
	}
	return all, nil
}

// The keys of the rows of a change set.
const rowOfSet = "state"

func rowOfPart(number int) string { return fmt.Sprintf("part-%06d", number) }

// addChangeSetPart stores a part. The last one completes the set.
func (s *Slot) addChangeSetPart(p *apiv1.ChangeSetPart, fx []Effect) []Effect {
	if s.changeSet == nil {
		s.changeSet = &ChangeSet{}
	}
	c := s.changeSet
	c.parts = append(c.parts, p.Changes)
	fx = s.changed(fx, rowChangeSet, rowOfPart(len(c.parts)-1), &apiv1.ChangeSetPartRow{Changes: p.Changes})
	if p.Set == nil {
		return fx
	}
	c.Row = p.Set
	return s.changed(fx, rowChangeSet, rowOfSet, c.Row)
}

// stepChangeSet counts the changes that were applied, and removes the set behind the last one.
func (s *Slot) stepChangeSet(step *apiv1.ChangeSetStep, fx []Effect) []Effect {
	c := s.ChangeSet()
	if c == nil {
		return fx
	}
	if step.Applied < c.Row.Changes {
		row := proto.CloneOf(c.Row)
		row.Applied = step.Applied
		c.Row = row
		return s.changed(fx, rowChangeSet, rowOfSet, row)
	}
	for i := range c.parts {
		fx = s.changed(fx, rowChangeSet, rowOfPart(i), nil)
	}
	s.changeSet = nil
	return s.changed(fx, rowChangeSet, rowOfSet, nil)
}

// loadChangeSetRow restores a row of a change set. The rows of parts come before the row of
// the state, in the order of their keys.
func (s *Slot) loadChangeSetRow(rest string, value []byte) error {
	if s.changeSet == nil {
		s.changeSet = &ChangeSet{}
	}
	if rest == rowOfSet {
		s.changeSet.Row = &apiv1.ChangeSetRow{}
		return proto.Unmarshal(value, s.changeSet.Row)
	}
	m := &apiv1.ChangeSetPartRow{}
	if rest != rowOfPart(len(s.changeSet.parts)) {
		return errRow
	}
	if err := proto.Unmarshal(value, m); err != nil {
		return err
	}
	s.changeSet.parts = append(s.changeSet.parts, m.Changes)
	return nil
}
