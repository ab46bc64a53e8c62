package partition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/store"
)

// This file opens the store of a partition in a cluster. The journal of the partition is
// in etcd, and other servers have the same state. So a projection is rebuilt only if
// snapshots and journal prove to hold all of it. A store without that proof goes into
// quarantine, and this server fetches the state from the owner (ADR 40).

// aside is a store that was put into quarantine without a request of an operator.
type aside struct {
	place string // its directory; "": there is none
	next  uint64 // all records in it come before this one
}

func (r *Replica) openStore(ctx context.Context) error {
	r.store = nil
	if err := r.rebuildAsked(ctx); err != nil {
		return fmt.Errorf("rebuild the store of the partition %s: %w", r.name, err)
	}
	cfg := store.Config{Dir: r.dir("store"), Retain: r.retain, Logger: r.log, Journal: func() (store.Journal, error) { return r.span(ctx) }}
	st, err := store.Open(cfg)
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		if err := r.setAside(short); err != nil {
			return err
		}
		cfg.Journal = nil // the store is empty now: there is nothing to lose
		st, err = store.Open(cfg)
	}
	if err != nil {
		return fmt.Errorf("open the store of the partition %s: %w. If another server of the cluster has the partition (`wheelwork cluster status`), move the directory %s away instead: this server then takes the state from there", r.name, err, cfg.Dir)
	}
	r.store, r.conf.Store = st, st
	return nil
}

// span returns the range of records in the partition's journal. It waits until etcd
// answers.
func (r *Replica) span(ctx context.Context) (store.Journal, error) {
	for {
		first, next, err := r.view.Etcd.Span(ctx, r.name)
		if err == nil {
			return store.Journal{First: first, Next: next}, nil
		}
		r.log.Warn("the store of a partition must be rebuilt, and etcd does not answer with the range of its journal; the server tries again", "partition", r.name, "error", err)
		if !wait.For(ctx, standbyAgain) {
			return store.Journal{}, err
		}
	}
}

// setAside puts a store that cannot be rebuilt from this disk and the journal into
// quarantine, and lets the partition begin with an empty one.
func (r *Replica) setAside(short *store.ShortJournalError) error {
	dir := r.dir("store")
	place, err := store.SetAside(dir, fmt.Sprintf("the projection could not be used, and a rebuild would lose records: %v", short))
	if err != nil || place == "" { // there was no store: the server is new
		return err
	}
	r.aside = aside{place: filepath.Join(dir, place), next: max(short.Next, short.View+1)}
	r.log.Warn("the store of a partition is damaged, and snapshots and journal do not hold all of it: this server fetches the state from the owner. "+
		"If no server has it, make a new cluster of the last backup with `wheelwork restore`",
		"partition", r.name, "kept_in", r.aside.place, "because", short)
	return nil
}

// forgetAside removes the store in quarantine once this server has all records that it
// can have held. applied is the last one that this server has.
func (r *Replica) forgetAside(applied uint64) {
	a := r.aside
	if a.place == "" || applied+1 < a.next {
		return
	}
	r.aside = aside{}
	if err := os.RemoveAll(a.place); err != nil {
		r.log.Warn("a store in quarantine is not needed and could not be removed: remove it by hand", "partition", r.name, "directory", a.place, "error", err)
	}
}

// rebuildAsked rebuilds the projection of the partition's store if an operator has asked
// for it, unless that loses records and the loss was not accepted. Then it removes the
// request.
func (r *Replica) rebuildAsked(ctx context.Context) error {
	requested, acceptLoss, done, err := datadir.RebuildRequested(r.dir("store"))
	if err != nil || !requested {
		return err
	}
	span, err := r.span(ctx)
	if err != nil {
		return err
	}
	opt := store.RebuildOptions{Journal: span, AcceptLoss: acceptLoss}
	rebuilt, err := store.Rebuild(r.dir("store"), opt)
	switch short := (*store.ShortJournalError)(nil); {
	case errors.As(err, &short):
		r.log.Error("the projection of a partition was not rebuilt, because records would be lost; `wheelwork store rebuild` requested it, and nothing was changed", "partition", r.name, "because", short)
	case err != nil:
		return err
	default:
		r.log.Info("the projection of a partition was rebuilt as `wheelwork store rebuild` requested", "partition", r.name,
			"from_snapshot_at", rebuilt.Snapshot, "old_database_kept_in", rebuilt.Quarantine, "first_lost", rebuilt.First, "last_lost", rebuilt.Last)
	}
	return done()
}
