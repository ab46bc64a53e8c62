package wasm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sync/singleflight"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/codecache"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// engineVersion is part of the path of the compile cache: code compiled by another version
// of the engine must not run. A test compares it with go.mod.
const engineVersion = "wazero-v1.12.0"

// Defaults of Config and of runtime.Limits.
const (
	defaultPoolBytes   = 256 << 20
	defaultCacheBytes  = 2 << 30
	maxStackBytes      = 50 << 20 // the engine itself ends a call at this limit
	defaultMemoryBytes = 256 << 20
)

// ErrDigest means that the SHA-256 of a module's bytes differs from its digest.
var ErrDigest = errors.New("the module's bytes do not match its digest")

// Config configures an Engine. The zero value works.
type Config struct {
	// CacheDir is the directory that retains compiled code across restarts, in a
	// subdirectory per version of engine and rewriter. It holds machine code that will be
	// executed, so no other user may have write access to it. Default "": compiled code is
	// held in memory only.
	CacheDir string
	// CacheBytes bounds that directory, including the files of other versions. The least
	// recently used files are removed first; files of loaded modules stay. Default 2 GiB.
	CacheBytes int64
	// MaxPoolBytes bounds the memory of the idle instances of all modules together. The
	// instance that has been idle longest is closed first. Default 256 MiB.
	MaxPoolBytes int64
	// Slots bounds how many guests run at once. A task waits for a slot; a sleeping guest
	// holds none. Default: 4 for each processor that Go uses.
	Slots int
	// MaxMemoryBytes caps runtime.Limits.MemoryBytes of every task. Default 1 GiB.
	MaxMemoryBytes int64
	// MaxTotalBytes bounds the linear memory of all instances together, running and idle.
	// Above it memory.grow fails, and a failure to create an instance is a host error.
	// Default: no bound.
	MaxTotalBytes int64
	// StackBytes bounds the estimated native stack of one guest call, and with it the depth
	// of its recursion. Default 16 MiB.
	StackBytes int64
	// Services are the services that handlers may call. Default: none.
	Services runtime.Services
	// NoVariables leaves the variables WHEELWORK_RUN_ID and so on out of the environment of
	// commands, which then consists of the task's own. Default: commands have them.
	NoVariables bool
	// Dirs are the directories of this machine that grants may name. Default: none.
	Dirs map[string]string
	// DirApps has the apps that may use a directory, by its name. Default: all.
	DirApps map[string][]string
}

func (c Config) withDefaults() Config {
	if c.MaxPoolBytes == 0 {
		c.MaxPoolBytes = defaultPoolBytes
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if c.Slots == 0 {
		c.Slots = 4 * goruntime.GOMAXPROCS(0)
	}
	if c.MaxMemoryBytes == 0 {
		c.MaxMemoryBytes = inspect.DefaultLimits().MemoryBytes
	}
	if c.StackBytes == 0 {
		c.StackBytes = inspect.DefaultLimits().StackBytes
	}
	return c
}

// limits returns the limits by which modules are rewritten.
func (c Config) limits() inspect.Limits {
	return inspect.Limits{StackBytes: c.StackBytes, MemoryBytes: c.MaxMemoryBytes}
}

func (c Config) validate() error {
	if c.MaxPoolBytes < 0 || c.CacheBytes < 0 || c.Slots < 0 || c.MaxMemoryBytes < 0 || c.MaxTotalBytes < 0 || c.StackBytes < 0 {
		return errors.New("wasm: a limit in the configuration is negative")
	}
	if c.StackBytes > maxStackBytes {
		return fmt.Errorf("wasm: StackBytes is %d, but the engine ends a call at %d", c.StackBytes, maxStackBytes)
	}
	if c.MaxMemoryBytes > 1<<32 {
		return fmt.Errorf("wasm: MaxMemoryBytes is %d, but a module cannot address more than 4 GiB", c.MaxMemoryBytes)
	}
	return nil
}

// An Engine compiles modules and runs tasks. It is safe for concurrent use.
type Engine struct {
	cfg       Config
	rt        wazero.Runtime
	cache     wazero.CompilationCache
	rewritten codecache.Dir
	evictor   *codecache.Evictor // bounds the files of cache and rewritten; nil: there are none
	pool      *pool
	loads     singleflight.Group
	calls     sync.Pool  // of *guest.Call
	host      guest.Host // what all calls share
	imports   hostabi.Modules

	placeholders placeholders

	mu      sync.RWMutex
	modules map[string]*module     // by digest
	latest  atomic.Pointer[module] // one of modules; nil: look it up in modules
	loading sync.WaitGroup         // loads in progress
	closed  bool                   // no further load may begin
}

var _ runtime.Executor = (*Engine)(nil)

// New returns an engine. The caller must Close it.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg.withDefaults(), modules: make(map[string]*module)}
	e.calls.New = func() any { return new(guest.Call) }
	e.pool = newPool(e.cfg.MaxPoolBytes)
	e.host = guest.Host{
		Slots: make(chan struct{}, e.cfg.Slots), Services: e.cfg.Services,
		Memory: memory.NewBudget(e.cfg.MaxTotalBytes, func() bool { return e.pool.spare(ctx) }),
	}
	if err := e.openCache(); err != nil {
		return nil, err
	}
	e.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(inspect.Features).
		WithMemoryLimitPages(e.cfg.limits().MemoryPages()).
		WithCompilationCache(e.cache))
	if err := errors.Join(e.imports.Instantiate(ctx, e.rt), quickjs.Instantiate(ctx, e.rt)); err != nil {
		return nil, errors.Join(fmt.Errorf("wasm: build host modules: %w", err), e.Close(ctx))
	}
	return e, nil
}

func (e *Engine) openCache() (err error) {
	if e.cfg.CacheDir == "" {
		e.cache = wazero.NewCompilationCache()
		return nil
	}
	dir := filepath.Join(e.cfg.CacheDir, CacheVersion())
	if e.cache, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
		return fmt.Errorf("wasm: open compile cache %s: %w", dir, err)
	}
	if e.rewritten, err = codecache.Open(filepath.Join(dir, codecache.RewrittenFolder)); err != nil {
		return fmt.Errorf("wasm: open compile cache %s: %w", dir, err)
	}
	if e.evictor, err = codecache.OpenEvictor(e.cfg.CacheDir, dir, e.cfg.CacheBytes); err != nil {
		return fmt.Errorf("wasm: open compile cache %s: %w", dir, err)
	}
	return nil
}

// CacheVersion names the directory for the output of this version of engine and rewriter: code
// of another version is never used. The engine separates processor types itself.
func CacheVersion() string { return fmt.Sprintf("%s-meter-%d-kept", engineVersion, meter.Version) }

// Close frees all instances and compiled code. No Run may be in progress. Close waits for
// loads in progress, for as long as ctx allows, even if their callers have returned.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	loaded := make(chan struct{})
	go func() {
		e.loading.Wait()
		close(loaded)
	}()
	select { // the compiler uses the runtime and cache that are closed below
	case <-loaded:
	case <-ctx.Done():
		return fmt.Errorf("close the engine: a module is still compiled: %w", context.Cause(ctx))
	}
	return errors.Join(e.pool.close(ctx), e.rt.Close(ctx), e.cache.Close(ctx))
}

var errClosed = errors.New("load module: the engine is closed")

// begin counts a load until the returned function is called.
func (e *Engine) begin() (end func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	e.loading.Add(1)
	return e.loading.Done, nil
}

// Loaded reports whether the module of this digest is loaded, so that Run can run it.
func (e *Engine) Loaded(digest string) bool { return e.module(digest) != nil }

// Info describes a loaded module; ok is false when the module is not loaded.
func (e *Engine) Info(digest string) (info Info, ok bool) {
	if m := e.module(digest); m != nil {
		return m.info, true
	}
	return Info{}, false
}

// Cached reports whether the compile cache has all that a loaded module was made of, so that
// another engine need not compile it. It is false without a cache, and when the cache could
// not be written.
func (e *Engine) Cached(digest string) bool {
	m := e.module(digest)
	return m != nil && m.files.Exist()
}

// module returns the loaded module of a digest, or nil. It is called several times for each
// task, and most tasks have the module of the previous task, so it checks latest first.
func (e *Engine) module(digest string) *module {
	if m := e.latest.Load(); m != nil && m.info.Digest == digest {
		return m
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	m := e.modules[digest]
	if m != nil {
		e.latest.Store(m) // while the read lock is held, so that Unload clears it later
	}
	return m
}

// Unload removes a module's compiled code and idle instances. Running tasks continue to
// their end. Unloading a module that is not loaded is no error.
func (e *Engine) Unload(ctx context.Context, digest string) error {
	e.mu.Lock()
	m := e.modules[digest]
	delete(e.modules, digest)
	e.latest.Store(nil)
	e.mu.Unlock()
	if m == nil {
		return nil
	}
	e.evictor.Release(m.files)
	err := e.pool.drop(ctx, m)
	if m.script != nil { // the code belongs to its interpreter
		return err
	}
	for _, s := range e.scriptsOf(digest) {
		err = errors.Join(err, e.Unload(ctx, s))
	}
	return errors.Join(err, e.closeCode(ctx, m))
}

// Load prepares a module to run: it checks the digest and the upload rules, rewrites and
// compiles. Loading a loaded module does nothing; concurrent calls for one digest share the
// work. When ctx ends Load returns, but a compilation that has begun continues for the
// other callers.
func (e *Engine) Load(ctx context.Context, digest string, code []byte) error {
	if e.Loaded(digest) {
		return nil
	}
	done := e.loads.DoChan(digest, func() (any, error) { return nil, e.load(digest, code) })
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("load module: %w", context.Cause(ctx))
	}
}

func (e *Engine) load(digest string, code []byte) error {
	if e.Loaded(digest) {
		return nil // another load finished after the caller checked
	}
	end, err := e.begin()
	if err != nil {
		return err
	}
	defer end()
	if inspect.Digest(code) != digest {
		return fmt.Errorf("load module %s: %w", digest, ErrDigest)
	}
	if _, err := scripts.Unpack(code); !errors.Is(err, scripts.ErrNotScript) {
		return e.loadScript(digest, code)
	}
	p, err := e.rewrite(digest, code)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	if err := e.placeholders.take(context.Background()); err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	m := &module{info: p.Info, globals: p.Globals, marks: (*marks)(p.Marks), resettable: p.Reset, lines: lines.Open(p.Lines)}
	m.runs = p.Info.Kind == Reactor && slices.Contains(p.Info.Exports, abi.ExportRun)
	m.files, err = e.evictor.Use(p.Sum, []string{e.rewritten.Path(inspect.RewrittenName(digest, e.cfg.limits()))}, func() (err error) {
		m.compiled, err = e.compile(p)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("load module: %w", err), e.placeholders.add(context.Background(), e.rt))
	}
	if len(p.Info.Stubs) > 0 {
		if err = e.placeholders.take(context.Background()); err == nil {
			m.stubs, err = hostabi.InstantiateStubs(context.Background(), e.rt, p.Info.Stubs)
		}
	}
	if err != nil {
		e.evictor.Release(m.files)
		return errors.Join(fmt.Errorf("load module: %w", err), e.closeCode(context.Background(), m))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.modules[digest] = m
	e.latest.Store(nil) // it may point at the previous load of this digest
	return nil
}

// rewrite returns the form of a module that is compiled, from the cache if it is there. A
// failure to write to the cache only costs time.
func (e *Engine) rewrite(digest string, code []byte) (inspect.Rewritten, error) {
	name := inspect.RewrittenName(digest, e.cfg.limits())
	if data, ok := e.rewritten.Get(name); ok {
		if p, ok := inspect.DecodeRewritten(data); ok {
			return p, nil
		}
	}
	p, err := inspect.Rewrite(code, e.cfg.limits())
	if err != nil {
		return inspect.Rewritten{}, err
	}
	if data, err := p.Encode(); err == nil {
		_ = e.rewritten.Put(name, data) // on failure the next start rewrites again
	}
	return p, nil
}

// compile compiles a rewritten module. If the files of the cache are at fault, it only takes
// longer: damaged ones are removed and made again, and ones that cannot be written are left
// out.
func (e *Engine) compile(p inspect.Rewritten) (wazero.CompiledModule, error) {
	compiled, err := inspect.Compile(e.rt, p.Code)
	if err == nil || e.evictor == nil {
		return compiled, err
	}
	// wazero fails when it cannot read or write a file of its cache. It has the code in memory
	// when the write fails, and the second call finds it there; wazero then retains that code
	// until the engine is closed.
	e.evictor.Discard(p.Sum)
	return inspect.Compile(e.rt, p.Code)
}

// closeCode releases the code of a module and of its stubs. Running tasks retain the code
// that they use until they end.
func (e *Engine) closeCode(ctx context.Context, m *module) error {
	err := errors.Join(m.compiled.Close(ctx), e.placeholders.add(ctx, e.rt))
	if m.stubs == nil {
		return err
	}
	return errors.Join(err, m.stubs.Close(ctx), e.placeholders.add(ctx, e.rt))
}
