package etcd

import (
	"context"
	"errors"

	"github.com/wheelworkhq/wheelwork/journal"
)

// View is a journal that somebody else owns, as a standby reads it. It takes no
// records.
type View struct {
	c    *Cluster
	ctx  context.Context
	name string
	next uint64
}

var _ journal.Journal = (*View)(nil)

// View returns the journal of that name, to be read until ctx ends. It is for
// one goroutine.
func (c *Cluster) View(ctx context.Context, name string) *View {
	return &View{c: c, ctx: ctx, name: name, next: 1}
}

var errView = errors.New("journal: this server does not own it")

// Append implements [journal.Journal]: it takes nothing.
func (v *View) Append([]journal.Record, func(error)) (uint64, error) { return 0, errView }

// AppendLazy implements [journal.Journal]: it takes nothing.
func (v *View) AppendLazy([]journal.Record) (uint64, error) { return 0, errView }

// Read implements [journal.Journal].
func (v *View) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	next, err := v.c.read(v.ctx, v.name, from, fn)
	if err == nil {
		v.next = next
	}
	return err
}

// Next returns the sequence behind the last record that Read told: the journal
// itself goes on.
func (v *View) Next() uint64 { return v.next }

// Trim implements [journal.Journal]: that is the owner's.
func (v *View) Trim(uint64) error { return errView }

// Room implements [journal.Journal].
func (v *View) Room() int64 { return 0 }

// Bytes implements [journal.Journal].
func (v *View) Bytes() int64 { return 0 }

// Close implements [journal.Journal].
func (v *View) Close() error { return nil }
