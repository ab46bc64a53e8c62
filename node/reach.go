package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/store"
)

// spanOf returns the range of records in an open journal.
func spanOf(l *mq.Log) store.Journal { return store.Journal{First: l.First(), Next: l.Next()} }

// mismatchError reports that a journal and the store beside it do not belong together.
type mismatchError struct {
	data string
	why  error
	// readable reports that the store can be read, so that a backup of it can be made.
	readable bool
}

func (e *mismatchError) Unwrap() error { return e.why }

func (e *mismatchError) Error() string {
	if !e.readable {
		return fmt.Sprintf("%v. Bring back %s from a copy, or make a new data directory of the last backup with `wheelwork restore`", e.why, e.data)
	}
	return fmt.Sprintf("%[1]v. Bring back the journal's directory from a copy; or save what the store has with `wheelwork backup --data %[2]s FILE` and make a new data directory of it with `wheelwork restore FILE --data NEW`", e.why, e.data)
}

// refused adds instructions to the error of a store that does not fit its journal.
func refused(data string, err error) error {
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		return &mismatchError{data: data, why: err, readable: short.Unread == nil}
	}
	return err
}

// checkSpan refuses a journal that cannot continue an open store: it must reach to the
// store's last record, and begin no later than behind it.
func checkSpan(data string, j store.Journal, applied uint64) error {
	var why error
	switch {
	case j.Next <= applied:
		why = fmt.Errorf("the store in %s includes the journal up to record %d, and the journal ends before record %d: it is not the journal that belongs to this store", data, applied, j.Next)
	case j.First > applied+1:
		why = fmt.Errorf("the store in %s includes the journal up to record %d, and the journal begins with record %d: records %d to %d are missing", data, applied, j.First, applied+1, j.First-1)
	default:
		return nil
	}
	return &mismatchError{data: data, why: why, readable: true}
}

// RebuiltStore is the result of [RebuildStore].
type RebuiltStore struct {
	store.Rebuilt
	// Asked are the stores, as [ClosedStores] names them, that their server rebuilds at
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
	if ofCluster(data, journal) {
		r.Asked, err = askRebuild(data, acceptLoss)
		return r, err
	}
	r.Rebuilt, err = store.Rebuild(filepath.Join(data, "store"), store.RebuildOptions{Journal: journal, AcceptLoss: acceptLoss, Progress: progress})
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		err = fmt.Errorf("nothing was changed: %w", refused(data, short))
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

// ofCluster reports whether a data directory is that of a cluster's server, whose
// journals are in etcd. own is the range of the journal in the directory.
func ofCluster(data string, own store.Journal) bool {
	if own.Next > 1 { // also true of a restored backup of a cluster, before `wheelwork cluster init`
		return false
	}
	if _, err := os.Stat(filepath.Join(data, wasMember)); err == nil {
		return true
	}
	names, err := partitionsIn(data)
	return err == nil && len(names) > 0
}

// journalElsewhere is for the store of a stopped server whose journal is in etcd: it
// always fails.
func journalElsewhere() (store.Journal, error) {
	return store.Journal{}, errors.New("its journal is in the etcd of the cluster: start the server there, which makes it again or takes the state from another server")
}

// openStore opens the store of a data directory, whose journal is open.
func openStore(d *dataDir, l *mq.Log, log *slog.Logger) (*store.Store, error) {
	return openStoreBeside(d, func() (store.Journal, error) { return spanOf(l), nil }, log)
}

func openStoreBeside(d *dataDir, journal func() (store.Journal, error), log *slog.Logger) (*store.Store, error) {
	st, err := store.Open(store.Config{Dir: d.join("store"), Journal: journal, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", refused(d.path, err))
	}
	return st, nil
}
