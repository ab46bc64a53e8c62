package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/backups"
	"github.com/wheelworkhq/wheelwork/cluster/membership"
	"github.com/wheelworkhq/wheelwork/cluster/partition"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/node/certificates"
	"github.com/wheelworkhq/wheelwork/sched"
)

// EtcdConfig is the configuration of servers that share their journals in etcd. Each
// partition of the cluster has one owner; the other servers are its standbys and can take
// it over.
type EtcdConfig struct {
	Endpoints []string // addresses of etcd; none: the journal is on this server's disk
	Group     string   // the cluster name; default "main"
	// Units is the number of partitions of a new cluster, at most 24; default 6. It is
	// fixed afterwards.
	Units int
	// SplitRate is the rate, in schedules a second, from which an app may be split over
	// partitions. Default 500; negative: only operators split apps.
	SplitRate float64
	// MaxHosts bounds the hosts of a partition. Up to so many hosts in the cluster, each
	// works for all partitions; more are divided among them. An app with more hosts than
	// that may be split. Default 100; negative: hosts are never divided.
	MaxHosts int
	// Settle is the minimum dwell time of a partition with its owner, unless that is lost
	// or drained. Default 10 s.
	Settle time.Duration
	// Cert, Key and CA are files by which the server and etcd verify each other. "": no
	// TLS, on this machine only.
	Cert, Key, CA string

	member     *etcd.Member // the etcd member in this process; nil: there is none
	serverName string       // in the certificates of the members; "": that of their addresses
}

// defaultPartitions can be shared evenly by two servers and by three. A cluster may begin with
// one server and grow, and the number of partitions is fixed.
const defaultPartitions = 6

// maxPartitions bounds the number of partitions: one transaction of etcd has room for so many
// journals.
const maxPartitions = 24

// memberParts are the open parts of a server that is in a cluster.
type memberParts struct {
	closers
	*membership.Member
	replicas []*partition.Replica
	backups  *backups.Service
	// authority is that of the cluster; nil: its servers serve without TLS.
	authority *authority.Authority
	shared    certificates.Shared
}

// groupOf returns the name of the cluster.
func groupOf(cfg *ServerConfig) string { return cmp.Or(cfg.Etcd.Group, "main") }

// joinCluster connects to etcd. It also returns the address that this server tells the
// others.
func joinCluster(ctx context.Context, cfg ServerConfig, id string, log *slog.Logger) (*etcd.Cluster, string, error) {
	address := cmp.Or(cfg.Advertise, cfg.Listen)
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
		return nil, "", fmt.Errorf("servers that share a journal tell each other where they are: give --listen a port, or --advertise HOST:PORT, instead of %q", address)
	}
	var secure *tls.Config
	if cfg.Etcd.Cert != "" || cfg.Etcd.Key != "" || cfg.Etcd.CA != "" {
		var err error
		if secure, err = etcd.ClientTLS(cfg.Etcd.Cert, cfg.Etcd.Key, cfg.Etcd.CA, cfg.Etcd.serverName); err != nil {
			return nil, "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := etcd.Connect(ctx, etcd.Config{Endpoints: cfg.Etcd.Endpoints, Member: cfg.Etcd.member, Grows: cfg.Cluster.On, Server: id, Address: address, TLS: secure, Logger: log})
	return c, address, withoutAnswer(err, cfg.Etcd.Endpoints)
}

// withoutAnswer explains a timeout of etcd with the addresses that the server must reach:
// a longer wait would not help.
func withoutAnswer(err error, endpoints []string) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("etcd at %s did not answer in time: this machine must reach the addresses in --etcd-endpoints, or for --cluster that in --cluster-advertise", strings.Join(endpoints, ", "))
}

// openMember joins the cluster and opens what the server has of each partition. conf
// holds the settings that the partitions share.
func openMember(ctx context.Context, d *datadir.Dir, q *queue.Queue, cfg ServerConfig, conf sched.Config, tokens credential.Processes, tel *telemetry, log *slog.Logger) (_ *memberParts, err error) {
	if cfg.Capacity < 0 || math.IsNaN(cfg.Capacity) || math.IsInf(cfg.Capacity, 0) {
		return nil, fmt.Errorf("--capacity %v: want a positive number, the processors of a usual server or so", cfg.Capacity)
	}
	if cfg.Etcd.Units < 0 || cfg.Etcd.Units > maxPartitions {
		return nil, fmt.Errorf("--units %d: a cluster has 1 to %d", cfg.Etcd.Units, maxPartitions)
	}
	m := &memberParts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	c, address, err := joinCluster(ctx, cfg, conf.ID, log)
	if err != nil {
		return nil, err
	}
	m.add(c)
	view := cluster.NewView(c, groupOf(&cfg), conf.ID, address, log)
	if err := view.Begin(ctx, cmp.Or(cfg.Etcd.Units, defaultPartitions)); err != nil {
		return nil, err
	}
	key, err := c.First(ctx, view.Group, cluster.RowKey, credential.NewToken("ws_"))
	if err != nil {
		return nil, err
	}
	if cfg.secure() {
		m.shared = certificates.Shared{
			Keys: conf.Keys,
			First: func(ctx context.Context, value string) (string, error) {
				return c.First(ctx, view.Group, cluster.RowAuthority, value)
			},
			Replace: func(ctx context.Context, value string) error {
				return c.Note(ctx, view.Group, cluster.RowAuthority, value, false)
			},
		}
		if m.authority, err = m.shared.Authority(ctx, d, cfg.NewSecretKey); err != nil {
			return nil, err
		}
		m.authority = m.authority.WithLife(cfg.Certificates.Life)
		conf.Authority = m.authority
		conf.Grant = func() *apiv1.ServerGrant {
			g := &apiv1.ServerGrant{SecretKeys: conf.Keys.Keys().Text(), Group: view.Group}
			if member := cfg.Etcd.member; member != nil {
				g.EtcdEndpoints = member.Endpoints()
			}
			return g
		}
	}
	peers := &router.Peers{Log: log}
	if peers.Own, err = transport.NewIdentity(cmp.Or(tokens.Own(), key), cfg.CACert); err != nil {
		return nil, err
	}
	if peers.Key, err = transport.NewIdentity(key, cfg.CACert); err != nil {
		return nil, err
	}
	m.add(peers)
	m.Member = &membership.Member{
		ID: conf.ID, Address: address, Zone: cfg.Zone, Capacity: cmp.Or(cfg.Capacity, float64(runtime.GOMAXPROCS(0))), Keys: func() []string { return conf.Keys.Keys().IDs() }, View: view,
		Router:   &router.Router{Forwarder: router.Forwarder{View: view, Partitions: map[string]router.Hosted{}, Peers: peers}},
		Balancer: cluster.NewBalancer(view, cluster.BalancerConfig{Settle: cfg.Etcd.Settle, SplitRate: cfg.Etcd.SplitRate, MaxHosts: cfg.Etcd.MaxHosts}, log), Logger: log,
	}
	conf.Keys.Lacking = func(id string) []string { return view.Snapshot().Lacking(id) }
	m.backups = &backups.Service{ID: conf.ID, Dir: d, Queue: q, View: view, Router: m.Router, Logger: log}
	return m, m.openPartitions(ctx, d, cfg, conf, tel)
}

// openPartitions opens what the server has of each partition.
func (m *memberParts) openPartitions(ctx context.Context, d *datadir.Dir, cfg ServerConfig, conf sched.Config, tel *telemetry) error {
	for i, name := range m.View.Partitions {
		dir := d.Join
		if i > 0 { // the first one is where a standalone server has its store, and has the access state
			conf.Publish = nil
			dir = func(parts ...string) string {
				return d.Join(append([]string{datadir.PartitionsDir, name}, parts...)...)
			}
		}
		r, err := partition.Open(ctx, partition.Config{
			Name: name, Dir: dir, Retain: cfg.Retain.ofStore(), View: m.View, Sched: conf, Meter: tel.partitionMeter,
			MaxHosts: cmp.Or(cfg.Etcd.MaxHosts, cluster.DefaultMaxHosts), Router: m.Router, Logger: m.Logger,
		})
		if err != nil {
			return err
		}
		m.replicas = append(m.replicas, r)
		m.Partitions = append(m.Partitions, r)
		m.backups.Partitions = append(m.backups.Partitions, r)
		m.Router.Partitions[name] = r
	}
	return nil
}

// sealedWith counts the secrets of the partitions that this server owns by the id of their key.
func (m *memberParts) sealedWith(ctx context.Context) (map[string]int, error) {
	all := map[string]int{}
	for _, r := range m.replicas {
		services := r.Serving()
		if services == nil || !services.Enter() {
			continue
		}
		n, err := services.Sched.SealedWith(ctx)
		services.Leave()
		if err != nil {
			return nil, err
		}
		for key, k := range n {
			all[key] += k
		}
	}
	return all, nil
}

// run takes part in the cluster until ctx ends.
func (m *memberParts) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// The listener closes after the last partition was released. Until then callers must
	// learn the new owners, so the cluster view is followed until the parts are closed.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan error, 1)
	go func() { followed <- m.View.Follow(following) }()
	m.add(closeFunc(func() error {
		stop()
		return <-followed
	}))
	m.Tell(ctx) // before it can own anything
	g.Go(func() error { return m.Present(ctx) })
	g.Go(func() error { return m.Balancer.Run(ctx) })
	for _, u := range m.replicas {
		g.Go(func() error { return u.Run(ctx) })
	}
	return g.Wait()
}
