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

// Engine runs modules. It is safe for concurrent use.
type Engine interface {
	runtime.Executor
	// Load makes a module ready to run; loading it again is cheap.
	Load(ctx context.Context, digest string, code []byte) error
	Loaded(digest string) bool
}

// Config is what a host is made of. A zero value means the default named beside
// the field; ID, Connect, Engine, Modules and Spool are required.
type Config struct {
	ID      string // stable over restarts
	Name    string // for people; default: ID
	Version string
	Labels  map[string]string
	Apps    []string // which it serves; default: all
	ABI     []string

	Slots   int // tasks that run at once; default: GOMAXPROCS, at least 4
	Credits int // tasks that it holds at most, queued ones included; default 8192, at least Slots

	// MaxSleeping bounds the tasks whose handlers sleep and hold no slot. Default: 16 for
	// each slot; negative: none.
	MaxSleeping int

	// Connect returns a connection to the server that serves this host now. It is
	// called before every session and may block until there is one.
	Connect func(ctx context.Context) (grpc.ClientConnInterface, io.Closer, error)

	// Units returns the units of a cluster: the host has a session with the owner of
	// each, and ConnectUnit connects to it. None, or no Units: there is one session.
	Units       func(ctx context.Context) ([]string, error)
	ConnectUnit func(ctx context.Context, unit string) (grpc.ClientConnInterface, io.Closer, error)

	Engine Engine
	// Others run handlers that are in no module, each those that need its key, as
	// job.Executor says it: "plugin:NAME", "builtin:http". The host tells the
	// server of them, of those that are [Sometimes] while they are up.
	Others  map[string]runtime.Executor
	Modules *modules.Store // the cache of modules
	// ModuleBytes bounds that cache on disk; what was not used for the longest time goes first. Default 1 GiB.
	ModuleBytes int64
	// TrustedKeys are those of the operator of this host ("ed25519:" and base64): it runs only modules that one of
	// them has signed, whatever the server says. Default: what the app asks for.
	TrustedKeys []string
	Spool       *mq.Log // of results; the caller closes it after Run

	Tracer trace.Tracer // of the spans of attempts; default: none

	Guests Guests // the services of handlers; default: none

	DrainTimeout time.Duration // how long running tasks may go on when the host ends; default 10 s
	Logger       *slog.Logger  // default: discard
}

// Host is a worker that runs modules.
type Host struct {
	batches runtime.BatchExecutor // cfg.Engine, if it is one
	cfg     Config
	worker  *session.Worker
	fetch   singleflight
	grants  grantCache
	modules *moduleTable
	uses    uses
	tell    func(*apiv1.ModuleState) // the server, what became of a module
	// untraced means that nobody looks at spans: they cost as much as a short
	// handler.
	untraced bool
}

// New returns a host that holds the results of the spool.
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
		Slots: cfg.Slots, Credits: cfg.Credits, MaxSleeping: cfg.MaxSleeping, Connect: cfg.Connect, Units: cfg.Units, ConnectUnit: cfg.ConnectUnit, Run: h.execute, Together: h.together, RunBatch: runBatch,
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

// Run works until ctx ends, then lets running tasks finish (DrainTimeout), ends
// the others and brings back their results; what cannot be brought back is in
// the spool for the next start.
func (h *Host) Run(ctx context.Context) error {
	ahead, end := context.WithCancel(ctx)
	var loading sync.WaitGroup
	loading.Go(func() { h.loadAhead(ahead) })
	defer loading.Wait()
	defer end()
	return h.worker.Run(ctx)
}

// client returns the door of the server that an app's tasks come from, or nil.
func (h *Host) client(app string) apiv1.WorkerClient {
	conn := h.worker.Conn(app)
	if conn == nil {
		return nil
	}
	return apiv1.NewWorkerClient(conn)
}
