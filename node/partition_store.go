package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

func (u *partition) openStore(ctx context.Context) error {
	u.store = nil
	if err := u.rebuildAsked(ctx); err != nil {
		return fmt.Errorf("make the store of the partition %s again: %w", u.name, err)
	}
	cfg := store.Config{Dir: u.dir("store"), Logger: u.log, Journal: func() (store.Journal, error) { return u.span(ctx) }}
	st, err := store.Open(cfg)
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		if err := u.setAside(short); err != nil {
			return err
		}
		cfg.Journal = nil // the store is empty now: there is nothing to lose
		st, err = store.Open(cfg)
	}
	if err != nil {
		return fmt.Errorf("open the store of the partition %s: %w. If another server of the cluster has the partition (`wheelwork cluster status`), move the directory %s away instead: this server then takes the state from there", u.name, err, cfg.Dir)
	}
	u.store, u.conf.Store = st, st
	return nil
}

// span returns the range of records in the partition's journal. It waits until etcd
// answers.
func (u *partition) span(ctx context.Context) (store.Journal, error) {
	for {
		first, next, err := u.view.Etcd.Span(ctx, u.name)
		if err == nil {
			return store.Journal{First: first, Next: next}, nil
		}
		u.log.Warn("the store of a partition has to be made again, and etcd does not say what its journal has; the server tries again", "partition", u.name, "error", err)
		if !wait.For(ctx, standbyAgain) {
			return store.Journal{}, err
		}
	}
}

// setAside puts a store that cannot be rebuilt from this disk and the journal into
// quarantine, and lets the partition begin with an empty one.
func (u *partition) setAside(short *store.ShortJournalError) error {
	dir := u.dir("store")
	place, err := store.SetAside(dir, fmt.Sprintf("the view could not be used, and cannot be made again without a loss: %v", short))
	if err != nil || place == "" { // there was no store: the server is new
		return err
	}
	u.aside = aside{place: filepath.Join(dir, place), next: max(short.Next, short.View+1)}
	u.log.Warn("the store of a partition is damaged, and snapshots and journal do not hold all of it: this server takes the state from the server that works. "+
		"If no server has it, make a new cluster of the last backup with `wheelwork restore`",
		"partition", u.name, "kept_in", u.aside.place, "because", short)
	return nil
}

// forgetAside removes the store in quarantine once this server has all records that it
// can have held. applied is the last one that this server has.
func (u *partition) forgetAside(applied uint64) {
	a := u.aside
	if a.place == "" || applied+1 < a.next {
		return
	}
	u.aside = aside{}
	if err := os.RemoveAll(a.place); err != nil {
		u.log.Warn("a store in quarantine is not needed and could not be removed: remove it by hand", "partition", u.name, "directory", a.place, "error", err)
	}
}

// rebuildRequest is the file in the directory of a partition's store that asks the next
// start to rebuild the projection. Whether that loses something shows only the journal,
// which is in etcd.
const rebuildRequest = "rebuild"

// acceptsLoss is the content of that file if the operator accepts that records are lost.
const acceptsLoss = "accept-loss"

// askRebuild asks the cluster's server of a data directory to rebuild the projections of
// all stores there when it starts. It returns the names of the stores.
func askRebuild(data string, acceptLoss bool) (asked []string, err error) {
	text := ""
	if acceptLoss {
		text = acceptsLoss
	}
	stores := Stores(data)
	for _, name := range stores.Names() { // all of them are closed and can be read, or no request is written
		if _, err := store.Look(stores.Dir(name)); err != nil {
			return nil, err
		}
	}
	for _, name := range stores.Names() {
		if err := writeFile(filepath.Join(stores.Dir(name), rebuildRequest), []byte(text+"\n"), 0o600); err != nil {
			return asked, err
		}
		asked = append(asked, name)
	}
	return asked, nil
}

// rebuildAsked rebuilds the projection of the partition's store if an operator has asked
// for it, unless that loses records and the loss was not accepted. Then it removes the
// request.
func (u *partition) rebuildAsked(ctx context.Context) error {
	request := filepath.Join(u.dir("store"), rebuildRequest)
	text, err := os.ReadFile(request)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	span, err := u.span(ctx)
	if err != nil {
		return err
	}
	opt := store.RebuildOptions{Journal: span, AcceptLoss: strings.TrimSpace(string(text)) == acceptsLoss}
	r, err := store.Rebuild(u.dir("store"), opt)
	switch short := (*store.ShortJournalError)(nil); {
	case errors.As(err, &short):
		u.log.Error("the database of a partition is not made again as `wheelwork store rebuild` asked for, because something would be lost; nothing was changed", "partition", u.name, "because", short)
	case err != nil:
		return err
	default:
		u.log.Info("the database of a partition was made again as `wheelwork store rebuild` asked for", "partition", u.name,
			"from_snapshot_at", r.Snapshot, "old_database_kept_in", r.Quarantine, "first_lost", r.First, "last_lost", r.Last)
	}
	return os.Remove(request)
}
