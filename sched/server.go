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

// Config is what a server is made of. Journal, Store, Modules and Inspect are
// required; a zero value elsewhere means the default named beside it.
type Config struct {
	ID    string // of this server, for people and hosts
	Epoch uint64 // of its ownership; default 1

	Journal journal.Journal
	Store   *store.Store
	Modules *modules.Store
	// Inspect is the upload gate: it says what a module is, or in one sentence
	// why it is refused. manifest is what was pushed beside the code, "" when
	// nothing was.
	Inspect func(ctx context.Context, code *modules.Upload, manifest string) (ModuleInfo, error)

	// SecretKey seals the secrets of apps, 32 bytes; nil: there are none. It is the
	// same for all servers that share a journal.
	SecretKey []byte

	// Remote asks other units; nil: there are none.
	Remote Remote
	// Gathered reports whether those hosts of an app are here that are to be, for a
	// broadcast: have is how many are. nil: there are no others.
	Gathered func(app string, have int) bool

	// Ingress takes the commands of producers who do not wait for them to be applied; nil: there is none.
	Ingress Ingress
	// Sync is what durable means here: always, interval or os. It is told to producers. Default always.
	Sync string

	MaxLive         int           // runs that have not ended; default 1 000 000
	HostLease       time.Duration // how long a host may be out of touch before its runs are sent elsewhere; default 10 s
	CheckpointEvery time.Duration // the store follows the state at this distance; default 200 ms
	Random          *rand.ChaCha8 // makes the ids of runs that are asked for; default: the system has seeded it
	BundleRuns      int           // live runs that have changed, over which they are written together; default 512
	StatsBatch      int           // jobs whose counts are written in CheckpointEvery, when there is time for them; default 20 000
	SnapshotEvery   time.Duration // default 10 min
	SnapshotBytes   int64         // or when the journal has grown by this; default 256 MiB
	SnapshotTimes   int64         // and by so many times what the snapshot takes: it reads every row; default 0

	Meter  metric.Meter // default: none
	Logger *slog.Logger // default: discard
}

// Ingress makes commands durable that are applied later.
type Ingress interface {
	// Accept calls done once, with a result for each command. An error means that nothing was accepted.
	Accept(commands []*apiv1.Command, origin string, done func([]*apiv1.CommandResult, error)) error
}

// ModuleInfo is what the upload gate finds in a module.
type ModuleInfo struct {
	Digest      string // of what is to be kept: the upload, to which Inspect appends a manifest that came beside it
	Kind        string // command reactor
	Handlers    []string
	Imports     []string
	Needs       []string      // what a host has to advertise to run it
	Requests    *apiv1.Grants // what its manifest asks for; nil: nothing
	Interpreter string        // of a script: its digest
	// GetInterpreter says to people how the interpreter comes to the server.
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

// Server schedules and dispatches. It owns neither the journal nor the store:
// the caller closes them after Run has returned.
type Server struct {
	cfg  Config
	loop *loop
	logs *logbook
	hub  *hub

	secrets   sealer
	uploads   uploads
	backfills turns
}

// New loads the state from the store, replays the journal behind it and returns
// a server that is ready to Run.
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

// serve returns a server that goes on with the state of a loop, whose configuration cfg is.
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

// Register puts the server's gRPC services on r.
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

// Run works until ctx ends, then brings the store up to date and returns nil.
// An error means that the journal or the store failed: what was acknowledged is
// safe, and the process should end.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.loop.run(ctx) })
	g.Go(func() error { return s.loop.writeCheckpoints() })
	g.Go(func() error { return s.snapshots(ctx) })
	return g.Wait()
}

// Epoch is the number of the ownership that the server works under.
func (s *Server) Epoch() uint64 { return s.cfg.Epoch }

// CaughtUp waits until the store includes everything that was decided before the
// call, or until the disk has no room for it.
func (s *Server) CaughtUp(ctx context.Context) error { return s.loop.caughtUp(ctx) }

// Load is what the nameserver wants to know.
type Load struct {
	ScheduleRate float64 // fires and triggers a second, decaying over a minute
	Hosts        int
	Zone         string // that most hosts have in their label "zone"; "": none says
	Apps         []string
	Shares       map[string]Share // of apps with a rate, and of those that are split; nil without [Config.Remote]
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
