package sched

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/wheelworkhq/wheelwork/access"
	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/sender"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/keyring"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/sched/projection"
	"github.com/wheelworkhq/wheelwork/sched/slotmove"
	"github.com/wheelworkhq/wheelwork/store"
)

// Config configures a server. Journal, Store, Modules and Inspect are required; a zero
// value of another field means the default in its comment.
type Config struct {
	ID        string // name of this server in the API, in texts and for hosts
	Partition string // its name; default main
	Epoch     uint64 // epoch of its ownership of the partition; default 1

	Journal journal.Journal
	Store   *store.Store
	Modules *modules.Store
	// Inspect is the upload verifier. It returns what a module contains, or an error of
	// one sentence that says why the module is refused. manifest is the manifest that was
	// pushed beside the code; "": none. Calls are concurrent, but at most one for each
	// app.
	Inspect func(ctx context.Context, code *modules.Upload, manifest string) (api.ModuleInfo, error)
	// UploadBytes returns the size of the largest module that may be uploaded now; 0, or a
	// nil function: 64 MiB.
	UploadBytes func() int64
	// Scripts works with scripts that Inspect has accepted. nil: scripts are neither parsed nor
	// tried.
	Scripts api.Scripts

	// Authority signs the certificates of machines; nil: no machine joins. It must be the same for all
	// servers of a cluster.
	Authority *authority.Authority
	// Grant returns what a server that joins gets beside its certificate; nil: this server takes no other. It is safe
	// for concurrent use.
	Grant func() *apiv1.ServerGrant

	PublicURL string // where people reach the console; "": at the address of the API

	// Keys seal the secrets of apps; nil: the server refuses secrets. All servers that may
	// own the partition must have the same.
	Keys *keyring.Ring

	// Remote calls the other partitions; nil: there are none.
	Remote api.Remote
	// Gathered reports whether a broadcast of an app need not wait for further hosts to
	// connect; have is the number of hosts of the app that are connected. The loop calls
	// it, so it must not block. nil: every host is connected to every partition.
	Gathered func(app string, have int) bool

	// Publish gives the guard the tokens that the server has issued, after each change. It must not
	// block. nil: another partition of the cluster has the access state.
	Publish func([]access.Credential)

	// Ingress takes the commands of producers that do not wait until commands are applied;
	// nil: there is no ingress.
	Ingress api.Ingress
	// Sync is what durable means for this journal: always, interval or os. Producers get
	// it with each response. Default always.
	Sync string

	MaxLive         int           // bound of the runs that have not ended; default 1 000 000
	MaxApps         int           // bound of the apps of the partition; default 1 000
	HostLease       time.Duration // how long a host may be disconnected before its runs are lost; default 10 s
	CheckpointEvery time.Duration // interval between projection batches; default 200 ms
	Random          *rand.ChaCha8 // makes the ids of triggered runs; default: seeded by the system
	BundleRuns      int           // with more changed live runs a batch packs their rows; default 512
	StatsBatch      int           // jobs per CheckpointEvery whose deferred statistics are written; default 20 000
	Snapshots

	// Alerts is what messages of alerts reach the world with; nil: none is sent.
	Alerts *definition.Edges
	// Conditions returns how the process is, for alert rules. It is called every 10 s. nil: such rules see nothing.
	Conditions func() core.Conditions

	Meter  metric.Meter // default: none
	Logger *slog.Logger // default: discard
}

// Snapshots says when a server writes a snapshot.
type Snapshots struct {
	SnapshotEvery time.Duration // time between snapshots; default 10 min
	SnapshotBytes int64         // growth of the journal that causes a snapshot earlier; default 256 MiB
	// SnapshotTimes is a second condition for an earlier snapshot: the journal must also have
	// grown by this multiple of the rows' bytes, because a snapshot reads every row. Default 0.
	SnapshotTimes int64
}

func (c *Config) defaults() error {
	if c.Journal == nil || c.Store == nil || c.Modules == nil || c.Inspect == nil {
		return errors.New("sched: Journal, Store, Modules and Inspect are required")
	}
	c.Epoch, c.Sync = cmp.Or(c.Epoch, 1), cmp.Or(c.Sync, "always")
	c.MaxLive = cmp.Or(c.MaxLive, 1_000_000)
	c.MaxApps = cmp.Or(c.MaxApps, 1_000)
	c.HostLease = cmp.Or(c.HostLease, 10*time.Second)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 200*time.Millisecond)
	if c.Random == nil {
		var seed [32]byte
		crand.Read(seed[:]) //nolint:errcheck // it never fails
		c.Random = rand.NewChaCha8(seed)
	}
	c.BundleRuns = cmp.Or(c.BundleRuns, 512)
	c.StatsBatch = cmp.Or(c.StatsBatch, 20_000)
	c.SnapshotEvery = cmp.Or(c.SnapshotEvery, 10*time.Minute)
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, 256<<20)
	if c.Meter == nil {
		c.Meter = noop.NewMeterProvider().Meter("")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// core returns the configuration of the loop.
func (c *Config) core(v *projection.View) core.Config {
	return core.Config{
		ID: c.ID, Epoch: c.Epoch, Journal: c.Journal, View: v, History: c.Store, HasModule: c.Modules.Has,
		Cluster: c.Remote != nil, Others: c.Remote, Gathered: c.Gathered, Publish: c.Publish,
		Sync: c.Sync, MaxLive: c.MaxLive, MaxApps: c.MaxApps, HostLease: c.HostLease, Random: c.Random, Meter: c.Meter, Logger: c.Logger,
	}
}

// projection returns the configuration of the projection.
func (c *Config) projection() projection.Config {
	return projection.Config{Store: c.Store, Every: c.CheckpointEvery, BundleRuns: c.BundleRuns, StatsBatch: c.StatsBatch, Logger: c.Logger}
}

// Server schedules the runs of one partition and dispatches tasks to hosts. It does not
// own the journal and the store: the caller closes them after Run has returned. The
// methods are safe for concurrent use, except UnreadableSecrets.
type Server struct {
	*api.Services
	*slotmove.Slots
	cfg        Config
	loop       *core.Loop
	sender     *sender.Sender // of the messages of alerts; nil: none is sent
	operations Operations     // nil: there are none
}

// New loads the state from the store, replays the journal from there and returns a server
// that is ready to Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	l, err := core.Open(cfg.core(projection.New(cfg.projection())))
	if err != nil {
		return nil, fmt.Errorf("restore the state: %w", err)
	}
	return serve(cfg, l)
}

// serve replays the rest of the journal and returns a server with the state of l. cfg is
// the configuration of l.
func serve(cfg Config, l *core.Loop) (*Server, error) {
	if err := l.BecomeOwner(); err != nil {
		return nil, fmt.Errorf("restore the state: %w", err)
	}
	services := api.New(api.Config{
		ID: cfg.ID, Partition: cfg.Partition, Epoch: cfg.Epoch, Loop: l, Store: cfg.Store, Modules: cfg.Modules, Journal: cfg.Journal, Inspect: cfg.Inspect, Scripts: cfg.Scripts, UploadBytes: cfg.UploadBytes,
		Authority: cfg.Authority, Grant: cfg.Grant, PublicURL: cfg.PublicURL, Keys: cfg.Keys, Remote: cfg.Remote, Ingress: cfg.Ingress, Sync: cfg.Sync, Logger: cfg.Logger,
	})
	s := &Server{Services: services, Slots: slotmove.New(l), cfg: cfg, loop: l}
	if cfg.Alerts != nil {
		var err error
		if s.sender, err = sender.New(alertSource{l, services, *cfg.Alerts}, cfg.PublicURL, cfg.Meter, cfg.Logger); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		l.Alerts.Notify(s.sender.Notify)
	}
	if err := s.observe(cfg.Meter); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

// Operations is the service of operations of a partition.
type Operations interface {
	apiv1.OperationsServer
	// Close stops the operations. It does not wait for them.
	Close()
}

// Operate gives the server its service of operations, before Register and Run. The server closes
// it at its end.
func (s *Server) Operate(o Operations) { s.operations = o }

// Register registers the server's gRPC services with r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	s.Services.Register(r)
	if s.operations == nil {
		apiv1.RegisterOperationsServer(r, apiv1.UnimplementedOperationsServer{})
		return
	}
	apiv1.RegisterOperationsServer(r, s.operations)
}

// Run runs the server until ctx ends, then brings the store up to date and returns nil.
// An error means that the journal or the store has failed: all acknowledged changes are
// durable, and the process should end. Run is called once.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.operations != nil {
		context.AfterFunc(ctx, s.operations.Close)
	}
	g.Go(func() error { return s.loop.Run(ctx) })
	g.Go(func() error { return s.loop.WriteCheckpoints() })
	g.Go(func() error { return s.snapshots(ctx) })
	if s.cfg.Conditions != nil {
		g.Go(func() error { return s.watch(ctx) })
	}
	if s.sender != nil {
		g.Go(func() error { s.sender.Run(ctx); return nil })
	}
	return g.Wait()
}

// Epoch returns the epoch of the server's ownership.
func (s *Server) Epoch() uint64 { return s.cfg.Epoch }

// CaughtUp waits until the store includes all records that were made before the call. If
// the disk is full it returns nil early, and readers see an older state.
func (s *Server) CaughtUp(ctx context.Context) error { return s.loop.CaughtUp(ctx) }

// Load returns the server's load.
func (s *Server) Load(ctx context.Context) (core.Load, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (core.Load, error) {
		return l.PartitionLoad(), nil
	})
}

// HostDemand returns the hosts and the demand for more. The server calls it about once a second.
func (s *Server) HostDemand(ctx context.Context) (core.HostDemand, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (core.HostDemand, error) { return l.Demand.HostDemand(), nil })
}

// Note makes audit events about something that no record of the partition describes, and returns when
// they are durable.
func (s *Server) Note(ctx context.Context, events []audit.Event) error {
	_, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) {
		for _, e := range events {
			l.Note(e.By, e.Row)
		}
		return struct{}{}, nil
	})
	return err
}

// AuditEnd returns the end of the audit log of the partition, which is durable.
func (s *Server) AuditEnd(ctx context.Context) (audit.Anchor, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) (audit.Anchor, error) { return l.Audit.End(), nil })
}

// watchEvery is how often alert rules see the conditions of the process.
const watchEvery = 10 * time.Second

// watch lets the alert rules see the conditions of the process until ctx ends.
func (s *Server) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		now := s.cfg.Conditions()
		if _, err := core.Ask(ctx, s.loop, func(l *core.Loop) (struct{}, error) { l.Alerts.Check(now); return struct{}{}, nil }); err != nil {
			return nil //nolint:nilerr // the loop has ended, and tells why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
