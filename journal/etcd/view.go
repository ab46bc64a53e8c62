package etcd

import (
	"context"
	"errors"

	"github.com/wheelworkhq/wheelwork/journal"
)

// View is a journal that another server owns, as a standby reads it. It accepts no
// records.
type View struct {
	c    *Cluster
	ctx  context.Context
	name string
	next uint64
}

var _ journal.Journal = (*View)(nil)

// View returns the journal of that name, which can be read until ctx ends. A View is for
// one goroutine.
func (c *Cluster) View(ctx context.Context, name string) *View {
	return &View{c: c, ctx: ctx, name: name, next: 1}
}

var errView = errors.New("journal: this server is not its owner")

// Append implements [journal.Journal]: it always fails.
func (v *View) Append([]journal.Record, func(error)) (uint64, error) { return 0, errView }

// AppendLazy implements [journal.Journal]: it always fails.
func (v *View) AppendLazy([]journal.Record) (uint64, error) { return 0, errView }

// Read implements [journal.Journal].
func (v *View) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	next, err := v.c.read(v.ctx, v.name, from, fn)
	if err == nil {
		v.next = next
	}
	return err
}

// Next returns the sequence after the last record that Read passed to its function. The
// journal itself may have more records.
func (v *View) Next() uint64 { return v.next }

// Trim implements [journal.Journal]: it always fails, because only the owner trims.
func (v *View) Trim(uint64) error { return errView }

// Room implements [journal.Journal].
func (v *View) Room() int64 { return 0 }

// Bytes implements [journal.Journal].
func (v *View) Bytes() int64 { return 0 }

// Close implements [journal.Journal].
func (v *View) Close() error { return nil }
