package cluster

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// BackupBoard is what the servers of a cluster share about the backups that they make by themselves.
// It elects one of those that ask [BackupBoard.Leads], for as long as its lease lasts. The state is in
// a table of its own, because the rows of the cluster's table are part of a backup.
type BackupBoard struct{ View *View }

// work is the name of the election and of the table. No group has such a name by default.
func (b BackupBoard) work() string { return b.View.Group + "~backups" }

const stateRow = "state"

// Leads reports whether this server makes the backups of the cluster.
func (b BackupBoard) Leads(ctx context.Context) (bool, error) {
	leads, _, err := b.View.Etcd.Elect(ctx, b.work())
	return leads, err
}

// Load returns what Save has kept; nil: nothing.
func (b BackupBoard) Load(ctx context.Context) ([]byte, error) {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var state []byte
	read := false
	err := b.View.Etcd.Facts(ctx, b.work(), func(facts []etcd.Fact, whole bool) {
		if read || !whole {
			return
		}
		read = true
		for _, f := range facts {
			if f.Key == stateRow {
				state = []byte(f.Value)
			}
		}
		enough()
	})
	if read {
		return state, nil
	}
	return nil, err
}

// Save keeps the state for the server that makes the next backup.
func (b BackupBoard) Save(ctx context.Context, state []byte) error {
	return b.View.Etcd.Note(ctx, b.work(), stateRow, string(state), false)
}

// Elsewhere returns the other server that makes the backups; nil: there is none.
func (b BackupBoard) Elsewhere(ctx context.Context) (*apiv1.Assignment, error) {
	o, ok, err := b.View.Etcd.Elected(ctx, b.work())
	if err != nil || !ok || o.Server == b.View.Self {
		return nil, err
	}
	return &apiv1.Assignment{Server: o.Server, Address: o.Address, Unit: b.View.Fallback(), Units: b.View.Partitions}, nil
}
