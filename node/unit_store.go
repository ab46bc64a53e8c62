package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wheelworkhq/wheelwork/store"
)

// This file opens the store of a unit. The journal of a unit is in etcd, and other
// servers have the same state. So the view of a store is made again only when snapshots
// and journal prove to hold all of it; a store without that proof goes to its
// quarantine, and this server takes the state from the server that works.

// aside is a store that went to the quarantine without a request of a person.
type aside struct {
	place string // its directory; "": there is none
	next  uint64 // what was in it came before this record
}

func (u *unit) openStore(ctx context.Context) error {
	u.store = nil
	if err := u.rebuildAsked(ctx); err != nil {
		return fmt.Errorf("make the store of the unit %s again: %w", u.name, err)
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
		return fmt.Errorf("open the store of the unit %s: %w. If another server of the cluster has the unit (`wheelwork cluster status`), move the directory %s away instead: this server then takes the state from there", u.name, err, cfg.Dir)
	}
	u.store, u.conf.Store = st, st
	return nil
}

// span returns what the journal of the unit has. It waits until etcd answers.
func (u *unit) span(ctx context.Context) (store.Journal, error) {
	for {
		first, next, err := u.roster.cluster.Span(ctx, u.name)
		if err == nil {
			return store.Journal{First: first, Next: next}, nil
		}
		u.log.Warn("the store of a unit has to be made again, and etcd does not say what its journal has; the server tries again", "unit", u.name, "error", err)
		if !pause(ctx, standbyAgain) {
			return store.Journal{}, err
		}
	}
}

// setAside keeps a store that cannot be made again from what is on this disk and in the
// journal, and has the unit begin with an empty one.
func (u *unit) setAside(short *store.ShortJournalError) error {
	dir := u.dir("store")
	place, err := store.SetAside(dir, fmt.Sprintf("the view could not be used, and cannot be made again without a loss: %v", short))
	if err != nil || place == "" { // a new server
		return err
	}
	u.aside = aside{place: filepath.Join(dir, place), next: max(short.Next, short.View+1)}
	u.log.Warn("the store of a unit is damaged, and snapshots and journal do not hold all of it: this server takes the state from the server that works. "+
		"If no server has it, make a new cluster of the last backup with `wheelwork restore`",
		"unit", u.name, "kept_in", u.aside.place, "because", short)
	return nil
}

// forgetAside removes the store that was set aside once this server has all that can
// have been in it: the records up to one.
func (u *unit) forgetAside(applied uint64) {
	a := u.aside
	if a.place == "" || applied+1 < a.next {
		return
	}
	u.aside = aside{}
	if err := os.RemoveAll(a.place); err != nil {
		u.log.Warn("a store in quarantine is not needed and could not be removed: remove it by hand", "unit", u.name, "directory", a.place, "error", err)
	}
}

// rebuildRequest is the file in the directory of a unit's store that asks the next start
// to make the view again: whether that loses something only the journal can say, which
// is in etcd.
const rebuildRequest = "rebuild"

// acceptsLoss is what that file says when the person accepts that records are lost.
const acceptsLoss = "accept-loss"

// askRebuild has the server of a cluster that owns a data directory make the views of all
// stores there again when it starts. It returns the names of the stores.
func askRebuild(data string, acceptLoss bool) (asked []string, err error) {
	text := ""
	if acceptLoss {
		text = acceptsLoss
	}
	stores := Stores(data)
	for _, name := range stores.Names() { // all of them are closed and can be read, or none is asked
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

// rebuildAsked makes the view of the unit's store again when a person has asked for it
// and nothing is lost, and forgets the request.
func (u *unit) rebuildAsked(ctx context.Context) error {
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
		u.log.Error("the database of a unit is not made again as `wheelwork store rebuild` asked for, because something would be lost; nothing was changed", "unit", u.name, "because", short)
	case err != nil:
		return err
	default:
		u.log.Info("the database of a unit was made again as `wheelwork store rebuild` asked for", "unit", u.name,
			"from_snapshot_at", r.Snapshot, "old_database_kept_in", r.Quarantine, "first_lost", r.First, "last_lost", r.Last)
	}
	return os.Remove(request)
}
