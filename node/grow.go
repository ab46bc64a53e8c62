package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node/offline"
)

// GrowConfig configures [Grow], the step from a standalone server to a cluster.
type GrowConfig struct {
	Data    string // of the stopped server
	Cluster ClusterConfig
	Etcd    EtcdConfig // an etcd outside the servers, if it has endpoints
	// TLS and SecretKey are those of the server, see [CertificatesConfig] and [ServerConfig]. They
	// decide whether the member of etcd has a certificate of the installation: its addresses cannot
	// change between http and https later.
	TLS, SecretKey string
	Logger         *slog.Logger
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
	o, err := offline.Open(cfg.Data, log)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	g.Data, g.Server, g.OldJournal, g.Waiting = o.Data.Path, o.ID, o.OldJournal(), o.Waiting()
	g.SecretKey = cmp.Or(cfg.SecretKey, o.Data.Join(datadir.SecretKeyFile))
	if _, err := os.Stat(o.Data.Join(datadir.ClusteredFile)); err == nil && o.Journal.Next() == 1 {
		g.Applied, g.Again = o.Store.Applied(), true
		return g, nil
	}
	for i, u := range o.Partitions {
		if want := fmt.Sprintf("%s.%d", g.Group, i+1); u.Name != want {
			return g, fmt.Errorf("%s holds the partition %s, and in the group %s it would be %s: give the name that the group had when the backup was made with --group", o.Data.Path, u.Name, g.Group, want)
		}
		if _, err := u.Store.Snapshot(ctx); err != nil {
			return g, err
		}
	}
	if err := o.Settle(); err != nil {
		return g, err
	}
	if g.Applied, err = o.Store.Snapshot(ctx); err != nil {
		return g, err
	}
	if next := o.Journal.Next(); next != g.Applied+1 {
		return g, fmt.Errorf("the store of %s includes record %d, and its journal ends before %d: they do not belong together", o.Data.Path, g.Applied, next)
	}
	if err := seed(ctx, o, cfg, g, log); err != nil {
		return g, err
	}
	return g, o.Retire()
}

// seed lets the cluster's journals begin behind the stores, one for each partition.
func seed(ctx context.Context, o *offline.Server, cfg GrowConfig, g Grown, log *slog.Logger) (err error) {
	s := ServerConfig{Etcd: cfg.Etcd, Cluster: cfg.Cluster, Certificates: CertificatesConfig{TLS: cfg.TLS}, SecretKey: cfg.SecretKey}
	if err := s.Certificates.check(); err != nil {
		return err
	}
	if len(cfg.Etcd.Endpoints) == 0 {
		if s.Cluster.On = s.certifiesMember(); s.Cluster.On {
			if _, err := openCertificate(ctx, o.Data, &s, log); err != nil {
				return err
			}
		}
		m, err := memberConfig(&s, o.Data.Join(memberDir), log)
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
	for _, u := range o.Partitions {
		if err == nil {
			err = c.Seed(ctx, u.Name, u.Store.Applied()+1)
		}
	}
	if err == nil && len(o.Partitions) > 0 {
		err = o.Place(connecting, cluster.NewView(c, g.Group, g.Server, "", log))
	}
	if errors.Is(err, etcd.ErrHasRecords) {
		return fmt.Errorf("a cluster works already on this etcd: choose another group with --group, or another etcd: %w", err)
	}
	return err
}
