package job

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ChangeSet is the change set that is being applied, or was applied last. The module slot stores
// it before the first change is applied, so that a crash does not divide it.
type ChangeSet struct {
	Row   *apiv1.ChangeSetRow // immutable; nil: the last part has not come yet
	parts [][]byte            // each an encoded ApplyChangeSetRequest; none after the last change
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

// setRow is a row of a change set after a record has changed it.
type setRow struct {
	key   string
	value proto.Message // nil: the row is deleted
}

// rowOfSet is the key of the row with the state of a set.
const rowOfSet = "state"

// rowOfPart returns the key of the row of a part. It is before that of the state.
func rowOfPart(number int) string { return fmt.Sprintf("part-%06d", number) }

// add adds a part. The last one completes the set.
func (c *ChangeSet) add(p *apiv1.ChangeSetPart) []setRow {
	rows := []setRow{{rowOfPart(len(c.parts)), &apiv1.ChangeSetPartRow{Changes: p.Changes}}}
	c.parts = append(c.parts, p.Changes)
	if c.Row = p.Set; p.Set != nil {
		rows = append(rows, setRow{rowOfSet, p.Set})
	}
	return rows
}

// advance counts the changes that were applied. The parts go with the last one; the row stays,
// because the next set has the next number.
func (c *ChangeSet) advance(applied int64) (rows []setRow) {
	c.Row = proto.CloneOf(c.Row)
	if c.Row.Applied = applied; applied >= c.Row.Changes {
		for i := range c.parts {
			rows = append(rows, setRow{rowOfPart(i), nil})
		}
		c.parts = nil
	}
	return append(rows, setRow{rowOfSet, c.Row})
}

// load restores a row. The rows come in the order of their keys. ok is false for a row that
// does not follow.
func (c *ChangeSet) load(key string, value []byte) (ok bool, err error) {
	if key == rowOfSet {
		c.Row = &apiv1.ChangeSetRow{}
		return true, proto.Unmarshal(value, c.Row)
	}
	m := &apiv1.ChangeSetPartRow{}
	if err := proto.Unmarshal(value, m); err != nil {
		return true, err
	}
	ok = key == rowOfPart(len(c.parts))
	c.parts = append(c.parts, m.Changes)
	return ok, nil
}
