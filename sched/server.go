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

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/store"
)

// Config configures a server. Journal, Store, Modules and Inspect are required; a zero
// value of another field means the default in its comment.
type Config struct {
	ID    string // name of this server in the API, in texts and for hosts
	Epoch uint64 // epoch of its ownership of the partition; default 1

	Journal journal.Journal
	Store   *store.Store
	Modules *modules.Store
	// Inspect is the upload verifier. It returns what a module contains, or an error of
	// one sentence that says why the module is refused. manifest is the manifest that was
	// pushed beside the code; "": none. Calls are concurrent, but at most one for each
	// app.
	Inspect func(ctx context.Context, code *modules.Upload, manifest string) (ModuleInfo, error)

	// SecretKey seals the secrets of apps, 32 bytes; nil: the server refuses secrets. It
	// must be the same for all servers that may own the partition.
	SecretKey []byte

	// Remote calls the other partitions; nil: there are none.
	Remote Remote
	// Gathered reports whether a broadcast of an app need not wait for further hosts to
	// connect; have is the number of hosts of the app that are connected. The loop calls
	// it, so it must not block. nil: every host is connected to every partition.
	Gathered func(app string, have int) bool

	// Ingress takes the commands of producers that do not wait until commands are applied;
	// nil: there is no ingress.
	Ingress Ingress
	// Sync is what durable means for this journal: always, interval or os. Producers get
	// it with each response. Default always.
	Sync string

	MaxLive         int           // bound of the runs that have not ended; default 1 000 000
	HostLease       time.Duration // how long a host may be disconnected before its runs are lost; default 10 s
	CheckpointEvery time.Duration // interval between projection batches; default 200 ms
	Random          *rand.ChaCha8 // makes the ids of triggered runs; default: seeded by the system
	BundleRuns      int           // with more changed live runs a batch packs their rows; default 512
	StatsBatch      int           // jobs per CheckpointEvery whose deferred statistics are written; default 20 000
	SnapshotEvery   time.Duration // time between snapshots; default 10 min
	SnapshotBytes   int64         // growth of the journal that causes a snapshot earlier; default 256 MiB
	// SnapshotTimes is a second condition for an earlier snapshot: the journal must also have
	// grown by this multiple of the rows' bytes, because a snapshot reads every row. Default 0.
	SnapshotTimes int64

	Meter  metric.Meter // default: none
	Logger *slog.Logger // default: discard
}

// Ingress accepts commands that are applied later. Implementations are safe for
// concurrent use.
type Ingress interface {
	// Accept makes the commands durable and then calls done once, with a result for each
	// command in order, or with an error. If Accept itself returns an error, nothing was
	// accepted and it does not call done.
	Accept(commands []*apiv1.Command, origin string, done func([]*apiv1.CommandResult, error)) error
}

// ModuleInfo is what the upload verifier finds in a module.
type ModuleInfo struct {
	Digest      string // SHA-256 of the upload, to which Inspect has appended a separate manifest
	Kind        string // command or reactor
	Handlers    []string
	Imports     []string
	Needs       []string      // abilities that a host must advertise to run it
	Requests    *apiv1.Grants // capabilities that its manifest asks for; nil: none
	Interpreter string        // digest of the interpreter of a script; "": it is no script
	// GetInterpreter is a text for users that says how to upload the interpreter.
	GetInterpreter string
}

func (c *Config) defaults() error {
	if c.Journal == nil || c.Store == nil || c.Modules == nil || c.Inspect == nil {
		return errors.New("sched: Journal, Store, Modules and Inspect are required")
	}
	if err := c.checkKey(); err != nil {
		return err
	}
	c.Epoch, c.Sync = cmp.Or(c.Epoch, 1), cmp.Or(c.Sync, "always")
	c.MaxLive = cmp.Or(c.MaxLive, 1_000_000)
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

func (c *Config) checkKey() error {
	if n := len(c.SecretKey); n != 0 && n != keyBytes {
		return fmt.Errorf("sched: the key of the secrets has %d bytes, it must have %d", n, keyBytes)
	}
	return nil
}

// Server schedules the runs of one partition and dispatches tasks to hosts. It does not
// own the journal and the store: the caller closes them after Run has returned. The
// methods are safe for concurrent use, except CheckSecrets.
type Server struct {
	cfg  Config
	loop *loop
	logs *logbook
	hub  *hub

	secrets   sealer
	uploads   uploads
	backfills turns
}

// New loads the state from the store, replays the journal from there and returns a server
// that is ready to Run.
func New(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	l, err := load(&cfg)
	if err != nil {
		return nil, fmt.Errorf("restore the state: %w", err)
	}
	return serve(cfg, l)
}

// serve replays the rest of the journal and returns a server with the state of l. cfg is
// the configuration of l.
func serve(cfg Config, l *loop) (_ *Server, err error) {
	if err := l.replay(); err != nil {
		return nil, fmt.Errorf("restore the state: %w", err)
	}
	l.resume()
	s := &Server{cfg: cfg, loop: l, hub: l.hub, logs: newLogbook(cfg.Store, l.hub)}
	if s.secrets, err = newSealer(cfg.SecretKey); err != nil {
		return nil, fmt.Errorf("the key of the secrets: %w", err)
	}
	if err := s.observe(cfg.Meter); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return s, nil
}

// Register registers the server's gRPC services with r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	apiv1.RegisterJobsServer(r, &jobsAPI{s: s})
	apiv1.RegisterAppsServer(r, &appsAPI{s: s})
	apiv1.RegisterCalendarsServer(r, &calendarsAPI{s: s})
	apiv1.RegisterRunsServer(r, &runsAPI{s: s})
	apiv1.RegisterModulesServer(r, &modulesAPI{s: s})
	apiv1.RegisterProducerServer(r, &producerAPI{s: s})
	apiv1.RegisterWorkerServer(r, &workerAPI{s: s})
	apiv1.RegisterGuestServer(r, &guestAPI{s: s})
	apiv1.RegisterValuesServer(r, &valuesAPI{s: s})
	apiv1.RegisterSecretsServer(r, &secretsAPI{s: s})
	apiv1.RegisterModuleAccessServer(r, &accessAPI{s: s})
	apiv1.RegisterClusterServer(r, &clusterAPI{s: s})
}

// Run runs the server until ctx ends, then brings the store up to date and returns nil.
// An error means that the journal or the store has failed: all acknowledged changes are
// durable, and the process should end. Run is called once.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.loop.run(ctx) })
	g.Go(func() error { return s.loop.writeCheckpoints() })
	g.Go(func() error { return s.snapshots(ctx) })
	return g.Wait()
}

// Epoch returns the epoch of the server's ownership.
func (s *Server) Epoch() uint64 { return s.cfg.Epoch }

// CaughtUp waits until the store includes all records that were made before the call. If
// the disk is full it returns nil early, and readers see an older state.
func (s *Server) CaughtUp(ctx context.Context) error { return s.loop.caughtUp(ctx) }

// Load is the load of a server as it reports it to the nameserver and the balancer.
type Load struct {
	ScheduleRate float64          // armed and triggered runs a second, an average with a half-life of 30 s
	Hosts        int              // connected hosts
	Zone         string           // the most frequent label "zone" of these hosts; "": no host has one
	Apps         []string         // apps whose primary partition is this one, sorted
	Shares       map[string]Share // of active and split apps; nil without [Config.Remote]
}

// Load returns the server's load.
func (s *Server) Load(ctx context.Context) (Load, error) {
	return ask(ctx, s.loop, func(l *loop) (Load, error) {
		ld := l.load()
		if l.cfg.Remote != nil {
			ld.Shares = l.shares()
		}
		return ld, nil
	})
}
