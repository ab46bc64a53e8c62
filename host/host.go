package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/host/session"
	"github.com/wheelworkhq/wheelwork/internal/wire/codec"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// Engine executes the handlers of modules. It is safe for concurrent use.
type Engine interface {
	runtime.Executor
	// Load makes a module ready to run. Loading it again is cheap.
	Load(ctx context.Context, digest string, code []byte) error
	Loaded(digest string) bool
}

// Config configures a host. A zero value means the default that the comment of the field
// gives; ID, Connect, Engine, Modules and Spool are required.
type Config struct {
	ID      string // stable over restarts
	Name    string // for display; default: ID
	Version string
	Labels  map[string]string
	Apps    []string // the apps that the host serves; default: all
	ABI     []string

	Slots   int // execution slots: tasks that run at once; default: GOMAXPROCS, at least 4
	Credits int // tasks that the host holds at most, queued ones included; default 8192, at least Slots

	// MaxSleeping bounds the tasks whose handlers sleep and hold no slot. Default: 16 for
	// each slot; negative: none.
	MaxSleeping int

	// Connect returns a connection to the server of this host. It is called before every
	// session and may block until there is a server.
	Connect func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)

	// Units returns the partitions of a cluster. The host has a session with the owner of
	// each partition, and ConnectUnit connects to that owner. If Units is nil or returns
	// none, there is one session.
	Units       func(ctx context.Context) ([]string, error)
	ConnectUnit func(ctx context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error)

	// Cordoned and Cordon are as in [session.Config].
	Cordoned bool
	Cordon   func(on bool) error

	Engine Engine
	// Others execute the handlers that are in no module. The key of an executor is what
	// its handlers need, as job.Executor reports it: "plugin:NAME", "builtin:http". The
	// host reports the keys to the server; it reports the key of a [Sometimes] executor
	// only while its Up returns true.
	Others  map[string]runtime.Executor
	Modules *modules.Store // the cache of modules
	// ModuleBytes bounds that cache on disk, in bytes; the least recently used modules
	// are evicted first. Default 1 GiB.
	ModuleBytes int64
	// TrustedKeys are the keys of the operator of this host ("ed25519:" and base64). If
	// there are any, the host runs only modules that one of them has signed, whatever the
	// server says. Default: the app alone decides.
	TrustedKeys []string
	Spool       *mq.Log // of results; the caller closes it after Run has returned

	Tracer trace.Tracer // of the spans of attempts; default: none

	Guests Guests // the services of handlers; default: none

	DrainTimeout time.Duration // how long running tasks may continue after ctx of Run has ended; default 10 s
	Logger       *slog.Logger  // default: discard
}

// Host executes the tasks of a server. It is made by [New].
type Host struct {
	batches runtime.BatchExecutor // cfg.Engine, if it implements BatchExecutor
	cfg     Config
	worker  *session.Worker
	fetch   singleflight
	grants  grantCache
	modules *moduleTable
	uses    uses
	tell    func(*apiv1.ModuleState) // sends the state of a module to the server
	// untraced is true if the tracer records nothing. Then tasks without a trace get no
	// span, because a span costs as much as a short handler: 0.05 of its time remains
	// (BenchmarkSpan).
	untraced bool
}

// New returns a host that holds the results in the spool.
func New(cfg Config) (*Host, error) {
	if cfg.ID == "" || cfg.Connect == nil || cfg.Engine == nil || cfg.Modules == nil || cfg.Spool == nil {
		return nil, errors.New("host: ID, Connect, Engine, Modules and Spool are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	cfg.ModuleBytes = cmp.Or(cfg.ModuleBytes, defaultModuleBytes)
	for _, key := range cfg.TrustedKeys {
		if _, err := modules.ParseKey(key); err != nil {
			return nil, fmt.Errorf("trusted keys of the host: %w", err)
		}
	}
	h := &Host{cfg: cfg, modules: newModuleTable()}
	cfg.ABI = h.abilities()
	_, h.untraced = cfg.Tracer.(noop.Tracer)
	var runBatch func([]*session.Batched)
	if engine, ok := cfg.Engine.(runtime.BatchExecutor); ok {
		h.batches, runBatch = engine, h.executeBatch
	}
	var err error
	h.worker, err = session.New(session.Config{
		ID: cfg.ID, Name: cfg.Name, Version: cfg.Version, Labels: cfg.Labels, Apps: cfg.Apps, ABI: cfg.ABI,
		Slots: cfg.Slots, Credits: cfg.Credits, MaxSleeping: cfg.MaxSleeping, Cordoned: cfg.Cordoned, Cordon: cfg.Cordon, Connect: cfg.Connect, Units: cfg.Units, ConnectUnit: cfg.ConnectUnit, Run: h.execute, Together: h.together, RunBatch: runBatch,
		Free: codec.FreeTask, FreeResults: codec.FreeResults, Prefetch: h.prefetch, Unload: h.unload, Modules: h.modules.all,
		Spool: newSpool(cfg.Spool, cfg.Logger), DrainTimeout: cfg.DrainTimeout, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h.tell = h.worker.Module
	h.watchOthers()
	return h, nil
}

// Run executes tasks until ctx ends. Then it lets running tasks finish for at most
// DrainTimeout, stops the others and delivers the results. Results that it cannot deliver
// are in the spool for the next start.
func (h *Host) Run(ctx context.Context) error {
	ahead, end := context.WithCancel(ctx)
	var loading sync.WaitGroup
	loading.Go(func() { h.loadAhead(ahead) })
	defer loading.Wait()
	defer end()
	return h.worker.Run(ctx)
}

// client returns a client of the server that an app's tasks come from; nil: no server is
// connected.
func (h *Host) client(app string) apiv1.WorkerClient {
	conn := h.worker.Conn(app)
	if conn == nil {
		return nil
	}
	return apiv1.NewWorkerClient(conn)
}
