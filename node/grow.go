package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
)

// GrowConfig configures [Grow], the step from a standalone server to a cluster.
type GrowConfig struct {
	Data    string // of the stopped server
	Cluster ClusterConfig
	Etcd    EtcdConfig // an etcd outside the servers, if it has endpoints
	Logger  *slog.Logger
}

// Grown describes the data directory after [Grow]. Programs rely on the JSON names.
type Grown struct {
	Data       string `json:"data"`
	Group      string `json:"group"`
	Server     string `json:"server"`          // its id, as before
	Applied    uint64 `json:"applied"`         // the journal of the cluster begins behind this record
	Waiting    int    `json:"ingress_waiting"` // commands in the ingress, which this server applies when it runs
	OldJournal string `json:"old_journal"`     // may be removed
	SecretKey  string `json:"secret_key_file"` // for all servers of the cluster
	Again      bool   `json:"again"`           // it had been done before
}

// oldJournal is the new name of the journal of a server that was standalone.
const oldJournal = "journal.alone"

// Grow turns the data directory of a stopped standalone server into that of the first
// server of a cluster. All state stays in its store, and the cluster's journal begins
// where the server's own ends. After a crash at any point Grow can be run again,
// because of the order of its steps:
//
//	the store applies the journal, and is made durable
//	the cluster's journal, which has no record, begins behind it
//	the server's journal is renamed: from here on the directory is the cluster's
//
// Until the last step the server can still run standalone. The next attempt then
// begins behind the records that it has added.
func Grow(ctx context.Context, cfg GrowConfig) (_ Grown, err error) {
	g := Grown{Group: cmp.Or(cfg.Etcd.Group, "main")}
	log := logger(cfg.Logger)
	if _, err := os.Stat(filepath.Join(cfg.Data, "store")); err != nil {
		return g, fmt.Errorf("%s is not the data directory of a server: there is no store in it; a new cluster needs no init, start its servers with --cluster", cfg.Data)
	}
	o, err := openStopped(cfg.Data, log)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	g.Data, g.Server, g.OldJournal, g.Waiting = o.data.path, o.id, o.data.join(oldJournal), o.waiting()
	g.SecretKey = o.data.join(secretKeyFile)
	if _, err := os.Stat(o.data.join(wasMember)); err == nil && o.journal.Next() == 1 {
		g.Applied, g.Again = o.store.Applied(), true
		return g, nil
	}
	for i, u := range o.partitions {
		if want := fmt.Sprintf("%s.%d", g.Group, i+1); u.name != want {
			return g, fmt.Errorf("%s holds the partition %s, and in the group %s it would be %s: give the name that the group had when the backup was made with --group", o.data.path, u.name, g.Group, want)
		}
		if _, err := u.store.Snapshot(ctx); err != nil {
			return g, err
		}
	}
	if err := o.settle(); err != nil {
		return g, err
	}
	if g.Applied, err = o.store.Snapshot(ctx); err != nil {
		return g, err
	}
	if next := o.journal.Next(); next != g.Applied+1 {
		return g, fmt.Errorf("the store of %s includes record %d, and its journal ends before %d: they do not belong together", o.data.path, g.Applied, next)
	}
	if err := seed(ctx, o, cfg, g, log); err != nil {
		return g, err
	}
	return g, o.retire()
}

// seed lets the cluster's journals begin behind the stores, one for each partition.
func seed(ctx context.Context, o *stopped, cfg GrowConfig, g Grown, log *slog.Logger) (err error) {
	s := ServerConfig{Etcd: cfg.Etcd, Cluster: cfg.Cluster}
	if len(cfg.Etcd.Endpoints) == 0 {
		m, err := memberConfig(&s, o.data.join(memberDir), log)
		if err != nil {
			return err
		}
		if len(m.Join) > 0 || len(m.Members) > 0 {
			return errors.New("the first server of a cluster begins it alone: the others join it when it runs")
		}
		member, err := etcd.Start(ctx, m)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, member.Close()) }()
		s.Etcd.Endpoints = member.Endpoints()
	}
	at, err := EtcdAccess(s.Etcd)
	if err != nil {
		return err
	}
	connecting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := etcd.Connect(connecting, etcd.Config{Endpoints: at.Endpoints, TLS: at.TLS, Server: g.Server, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	err = c.Seed(ctx, g.Group, g.Applied+1)
	for _, u := range o.partitions {
		if err == nil {
			err = c.Seed(ctx, u.name, u.store.Applied()+1)
		}
	}
	if err == nil && len(o.partitions) > 0 {
		err = o.place(connecting, cluster.NewView(c, g.Group, g.Server, "", log))
	}
	if errors.Is(err, etcd.ErrHasRecords) {
		return fmt.Errorf("a cluster works already on this etcd: choose another group with --group, or another etcd: %w", err)
	}
	return err
}

// place creates as many partitions as the directory has, and gives the apps the placement
// that they had. Rows that an earlier attempt has written stay.
func (o *stopped) place(ctx context.Context, r *cluster.View) error {
	if err := r.Begin(ctx, len(o.partitions)+1); err != nil {
		return err
	}
	if want := len(o.partitions) + 1; len(r.Partitions) != want {
		return fmt.Errorf("the group %s has %d partitions on this etcd, and %s has %d: choose another etcd, or remove what is left of the group there", r.Group, len(r.Partitions), o.data.path, want)
	}
	text, err := os.ReadFile(o.data.join(placementFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the owners of the partitions know their apps
	}
	var p placement
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return fmt.Errorf("read which app is in which partition: %w", err)
	}
	if p.splits() {
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

// retire renames the journal of the standalone server.
func (o *stopped) retire() error {
	if err := o.journal.Close(); err != nil {
		return err
	}
	old := o.data.join(oldJournal)
	if err := os.RemoveAll(old); err != nil { // for example of a growth before a restore
		return err
	}
	if err := o.data.joined(); err != nil {
		return err
	}
	if err := os.Rename(o.data.join("journal"), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(o.data.join(placementFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // it is in etcd now
	}
	return syncPath(o.data.path)
}

// waiting counts the commands in the ingress.
func (o *stopped) waiting() (n int) {
	for _, t := range o.queue.Stats().Topics {
		for _, g := range t.Groups {
			n += int(g.Lag)
		}
	}
	return n
}
