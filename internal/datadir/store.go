package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/store"
)

// SpanOf returns the range of records in an open journal.
func SpanOf(l *mq.Log) store.Journal { return store.Journal{First: l.First(), Next: l.Next()} }

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

// Explain adds instructions to the error of a store that does not fit its journal.
func Explain(data string, err error) error {
	if short := (*store.ShortJournalError)(nil); errors.As(err, &short) {
		return &mismatchError{data: data, why: err, readable: short.Unread == nil}
	}
	return err
}

// CheckSpan refuses a journal that cannot continue an open store: it must reach to the
// store's last record, and begin no later than behind it.
func CheckSpan(data string, j store.Journal, applied uint64) error {
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

// IsClustered reports whether a data directory is that of a cluster's server, whose
// journals are in etcd. own is the range of the journal in the directory.
func IsClustered(data string, own store.Journal) bool {
	if own.Next > 1 { // also true of a restored backup of a cluster, before `wheelwork cluster init`
		return false
	}
	if _, err := os.Stat(filepath.Join(data, ClusteredFile)); err == nil {
		return true
	}
	names, err := Partitions(data)
	return err == nil && len(names) > 0
}

// JournalElsewhere is for the store of a stopped server whose journal is in etcd: it
// always fails.
func JournalElsewhere() (store.Journal, error) {
	return store.Journal{}, errors.New("its journal is in the etcd of the cluster: start the server there, which makes it again or takes the state from another server")
}

// OpenStore opens the store of a data directory, whose journal is open. keep is its
// retention.
func OpenStore(d *Dir, l *mq.Log, keep store.Retention, log *slog.Logger) (*store.Store, error) {
	return openStore(d, store.Config{Journal: func() (store.Journal, error) { return SpanOf(l), nil }, Retain: keep, Logger: log})
}

// OpenStoreBeside opens the store of a data directory to look at it or to repair it.
// journal returns the range of records in its journal. Nothing is removed for its age.
func OpenStoreBeside(d *Dir, journal func() (store.Journal, error), log *slog.Logger) (*store.Store, error) {
	return openStore(d, store.Config{Journal: journal, Logger: log})
}

func openStore(d *Dir, cfg store.Config) (*store.Store, error) {
	cfg.Dir = d.Join("store")
	st, err := store.Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", Explain(d.Path, err))
	}
	return st, nil
}
