package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/store"
)

// RebuiltStore is the result of [RebuildStore].
type RebuiltStore struct {
	store.Rebuilt
	// Asked are the stores, as [StoreSet] names them, that their server rebuilds at
	// its next start. The journals of a cluster's server are in etcd, and only they show
	// whether something is lost.
	Asked []string
}

// RebuildStore rebuilds the projection in the data directory of a stopped server. If that
// would lose records, it changes nothing unless the caller accepts the loss.
func RebuildStore(data string, acceptLoss bool, progress func(done, total int64)) (r RebuiltStore, err error) {
	journal, err := closedJournal(filepath.Join(data, "journal"))
	if err != nil {
		return r, err
	}
	if datadir.IsClustered(data, journal) {
		r.Asked, err = askRebuild(data, acceptLoss)
		return r, err
	}
	r.Rebuilt, err = store.Rebuild(filepath.Join(data, "store"), store.RebuildOptions{Journal: journal, AcceptLoss: acceptLoss, Progress: progress})
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		err = fmt.Errorf("nothing was changed: %w", datadir.Explain(data, short))
		if first, last := short.Lost(); short.Startable() && first > 0 {
			err = fmt.Errorf("%w; or give records %d to %d up with --accept-loss", err, first, last)
		}
	}
	return r, err
}

// closedJournal reads all of the closed journal in dir and returns its range of records.
func closedJournal(dir string) (store.Journal, error) {
	report, err := mq.Verify(dir, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return store.Journal{First: 1, Next: 1}, nil
	}
	if err != nil {
		return store.Journal{}, err
	}
	if !report.Sound() {
		return store.Journal{}, fmt.Errorf("nothing was changed: the journal that the server reads afterwards is damaged: `wheelwork mq verify %s` says where, and `wheelwork mq repair` what can be done", dir)
	}
	// When the server starts, a journal without a segment begins with record 1.
	return store.Journal{First: max(report.First, 1), Next: max(report.Next, 1)}, nil
}

// askRebuild asks the cluster's server of a data directory to rebuild the projections of
// all stores there when it starts. It returns the names of the stores.
func askRebuild(data string, acceptLoss bool) (asked []string, err error) {
	stores := Stores(data)
	for _, name := range stores.Names() { // all of them are closed and can be read, or no request is written
		if _, err := store.Look(stores.Dir(name)); err != nil {
			return nil, err
		}
	}
	for _, name := range stores.Names() {
		if err := datadir.RequestRebuild(stores.Dir(name), acceptLoss); err != nil {
			return asked, err
		}
		asked = append(asked, name)
	}
	return asked, nil
}
