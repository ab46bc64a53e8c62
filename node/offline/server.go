package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/wheelworkhq/wheelwork/backup"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

// Server is the open data directory of a server that does not run.
type Server struct {
	closers    []io.Closer // in the order of opening
	Data       *datadir.Dir
	ID         string // of the server
	Journal    *mq.Log
	Store      *store.Store
	modules    *modules.Store
	queue      *queue.Queue
	Partitions []Partition // further partitions, of a cluster
	log        *slog.Logger
}

// Partition is a further partition of a cluster, whose journal is in etcd.
type Partition struct {
	Name    string
	Store   *store.Store
	modules *modules.Store
}

func (o *Server) openPartitions() error {
	cfg := store.Config{Logger: o.log}
	if datadir.IsClustered(o.Data.Path, datadir.SpanOf(o.Journal)) {
		cfg.Journal = datadir.JournalElsewhere
	}
	names, err := datadir.Partitions(o.Data.Path)
	for _, name := range names {
		u := Partition{Name: name}
		cfg.Dir = o.Data.Join(datadir.PartitionsDir, name, "store")
		if u.Store, err = store.Open(cfg); err != nil {
			return fmt.Errorf("open the store of the partition %s: %w", name, err)
		}
		o.add(u.Store)
		if u.modules, err = modules.Open(o.Data.Join(datadir.PartitionsDir, name, "modules")); err != nil {
			return err
		}
		o.Partitions = append(o.Partitions, u)
	}
	return err
}

// Open opens and locks a data directory.
func Open(data string, log *slog.Logger) (_ *Server, err error) {
	o := &Server{log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if o.Data, err = datadir.Open(data, datadir.ServerForm); err != nil {
		return nil, err
	}
	o.add(o.Data)
	if o.ID, err = datadir.Identity(o.Data.Join("server-id"), "srv-"); err != nil {
		return nil, err
	}
	if o.Journal, err = mq.Open(mq.Config{Dir: o.Data.Join("journal"), Logger: o.log}); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	o.add(o.Journal)
	span := func() (store.Journal, error) { return datadir.SpanOf(o.Journal), nil }
	if datadir.IsClustered(o.Data.Path, datadir.SpanOf(o.Journal)) {
		span = datadir.JournalElsewhere
	}
	if o.Store, err = datadir.OpenStoreBeside(o.Data, span, o.log); err != nil {
		return nil, err
	}
	o.add(o.Store)
	if o.modules, err = modules.Open(o.Data.Join("modules")); err != nil {
		return nil, err
	}
	if o.queue, err = queue.Open(queue.Config{Dir: o.Data.Join("ingress"), Log: mq.Config{SegmentBytes: datadir.IngressSegment}, Logger: o.log}); err != nil {
		return nil, fmt.Errorf("open the ingress: %w", err)
	}
	o.add(o.queue)
	return o, o.openPartitions()
}

// Settle applies the journal in the directory to the store. A directory whose journal is
// in etcd has none. A journal that does not belong to the store is ignored, with a
// warning.
func (o *Server) Settle() error {
	if o.Journal.Next() == 1 {
		return nil
	}
	if err := datadir.CheckSpan(o.Data.Path, datadir.SpanOf(o.Journal), o.Store.Applied()); err != nil {
		o.log.Warn("the backup holds what the store has, and nothing of the journal", "store_applied", o.Store.Applied(), "journal_first", o.Journal.First(), "journal_next", o.Journal.Next())
		return nil
	}
	standby, err := sched.Follow(sched.Config{
		ID: o.ID, Journal: local.New(o.Journal), Store: o.Store, Modules: o.modules, Logger: o.log,
		Inspect: func(context.Context, *modules.Upload, string) (sched.ModuleInfo, error) {
			return sched.ModuleInfo{}, errors.New("the server does not run")
		},
	})
	if err == nil {
		_, err = standby.CatchUp()
	}
	return err
}

func (o *Server) add(c io.Closer) { o.closers = append(o.closers, c) }

// Close closes everything that was opened, the last first.
func (o *Server) Close() error {
	var err error
	for _, c := range slices.Backward(o.closers) {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Backup writes a backup of the data directory of a stopped server, which is not encrypted.
func Backup(ctx context.Context, data string, log *slog.Logger, keys archive.Keys, w io.Writer) (sum backup.Summary, err error) {
	if _, err := os.Stat(filepath.Join(data, "store")); err != nil {
		return sum, fmt.Errorf("%s is not the data directory of a server: there is no store in it", data)
	}
	o, err := Open(data, log)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	s := &archive.Source{ID: o.ID, Dir: o.Data, Queue: o.queue, Parts: []archive.Part{{
		Partition: o.ID, Modules: o.modules, Copy: archive.CopyOf(o.Store, func(context.Context) error { return o.Settle() }),
	}}}
	for _, u := range o.Partitions { // their journals are not in the directory
		s.Parts = append(s.Parts, archive.Part{
			Partition: u.Name, Prefix: datadir.PartitionsDir + "/" + u.Name + "/", Modules: u.modules,
			Copy: archive.CopyOf(u.Store, func(context.Context) error { return nil }),
		})
	}
	return s.Write(ctx, w, keys)
}

// Place creates as many partitions as the directory has, and gives the apps the placement
// that they had. Rows that an earlier attempt has written stay.
func (o *Server) Place(ctx context.Context, r *cluster.View) error {
	if err := r.Begin(ctx, len(o.Partitions)+1); err != nil {
		return err
	}
	if want := len(o.Partitions) + 1; len(r.Partitions) != want {
		return fmt.Errorf("the group %s has %d partitions on this etcd, and %s has %d: choose another etcd, or remove what is left of the group there", r.Group, len(r.Partitions), o.Data.Path, want)
	}
	p, ok, err := archive.ReadPlacement(o.Data.Path)
	if err != nil || !ok {
		return err
	}
	if p.Splits() {
		if err := r.Etcd.Raise(ctx, etcd.FormSplit); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Rows)) {
		if _, err := r.Etcd.First(ctx, r.Group, key, p.Rows[key]); err != nil {
			return err
		}
	}
	return nil
}

// OldJournal is the new name of the journal of a server that was standalone.
const oldJournal = "journal.alone"

// Retire renames the journal of the standalone server.
func (o *Server) Retire() error {
	if err := o.Journal.Close(); err != nil {
		return err
	}
	old := o.Data.Join(oldJournal)
	if err := os.RemoveAll(old); err != nil { // for example of a growth before a restore
		return err
	}
	if err := o.Data.MarkClustered(); err != nil {
		return err
	}
	if err := os.Rename(o.Data.Join("journal"), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := archive.RemovePlacement(o.Data.Path); err != nil { // it is in etcd now
		return err
	}
	return datadir.SyncDir(o.Data.Path)
}

// OldJournal returns the directory to which retire renames the journal.
func (o *Server) OldJournal() string { return o.Data.Join(oldJournal) }

// Waiting counts the commands in the ingress.
func (o *Server) Waiting() (n int) {
	for _, t := range o.queue.Stats().Topics {
		for _, g := range t.Groups {
			n += int(g.Lag)
		}
	}
	return n
}
