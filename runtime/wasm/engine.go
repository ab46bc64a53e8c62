package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sync/singleflight"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/codecache"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// engineVersion is part of the compile cache's path: code compiled by another
// version of the engine must not be run. A test compares it with go.mod.
const engineVersion = "wazero-v1.12.0"

// Defaults of Config and of runtime.Limits.
const (
	defaultPoolBytes   = 256 << 20
	defaultCacheBytes  = 2 << 30
	defaultMaxMemory   = 1 << 30
	defaultStackBytes  = 16 << 20
	maxStackBytes      = 50 << 20 // where the engine ends a call by itself
	defaultMemoryBytes = 256 << 20
	defaultOutputBytes = 1 << 20
	defaultLogBytes    = 1 << 20
	defaultLogLines    = 20_000
	defaultLogRate     = 2000
	defaultCalls       = 100_000
)

// ErrDigest says that a module's bytes are not those of its digest.
var ErrDigest = errors.New("the module's bytes do not match its digest")

// Config configures an Engine. The zero value works.
type Config struct {
	// CacheDir keeps compiled code across restarts, in a directory per version
	// of engine and rewriter. It holds machine code that will be executed: nobody else may be
	// able to write there. Default "": compiled code is kept in memory only.
	CacheDir string
	// CacheBytes bounds that directory, with what other versions left in it: what
	// was not used for the longest time goes first, what is loaded stays. Default 2 GiB.
	CacheBytes int64
	// MaxPoolBytes bounds the memory of idle instances, of all modules together;
	// the one idle longest goes first. Default 256 MiB.
	MaxPoolBytes int64
	// Slots bounds how many guests run at once; a sleeping guest holds none, a
	// task waits for one. Default: 4 for each processor Go uses.
	Slots int
	// MaxMemoryBytes caps runtime.Limits.MemoryBytes of every task. Default 1 GiB.
	MaxMemoryBytes int64
	// MaxTotalBytes bounds the linear memory of all instances together, those that
	// run and those that are idle: memory.grow fails, and an instance that cannot be
	// made for it is the host's error. Default: no bound.
	MaxTotalBytes int64
	// StackBytes bounds the estimated native stack of one guest call, and so its
	// recursion. Default 16 MiB.
	StackBytes int64
	// Services is what handlers may ask for. Default: nothing is served.
	Services runtime.Services
	// Dirs are the directories of this machine that grants may name. Default: none.
	Dirs map[string]string
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
		c.MaxMemoryBytes = defaultMaxMemory
	}
	if c.StackBytes == 0 {
		c.StackBytes = defaultStackBytes
	}
	return c
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
	slots     chan struct{}      // holds a token for each guest that runs
	pool      *pool
	loads     singleflight.Group
	calls     sync.Pool // of *call
	hosts     hostModules

	fillers fillers
	ration  ration

	mu      sync.RWMutex
	modules map[string]*module     // by digest
	latest  atomic.Pointer[module] // one of modules; nil: ask them
	loading sync.WaitGroup         // loads that are under way
	closed  bool                   // no load begins any more
}

var _ runtime.Executor = (*Engine)(nil)

// features are what guests may use: WebAssembly 2.0 and what compilers emit
// beyond it. Threads and exceptions stay off: the rewriter does not know them.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// New returns an engine. The caller must Close it.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg.withDefaults(), modules: make(map[string]*module)}
	e.calls.New = func() any { return new(call) }
	e.slots = make(chan struct{}, e.cfg.Slots)
	e.pool = newPool(e.cfg.MaxPoolBytes)
	e.ration.max, e.ration.spare = e.cfg.MaxTotalBytes, func() bool { return e.pool.spare(ctx) }
	if err := e.openCache(); err != nil {
		return nil, err
	}
	e.rt = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(features).
		WithMemoryLimitPages(pages(e.cfg.MaxMemoryBytes)).
		WithCompilationCache(e.cache))
	if err := e.hosts.instantiate(ctx, e.rt); err != nil {
		return nil, errors.Join(fmt.Errorf("wasm: build host modules: %w", err), e.Close(ctx))
	}
	return e, nil
}

func (e *Engine) openCache() (err error) {
	if e.cfg.CacheDir == "" {
		e.cache = wazero.NewCompilationCache()
		return nil
	}
	dir := filepath.Join(e.cfg.CacheDir, cacheVersion())
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

// cacheVersion names the directory of what this version of engine and rewriter
// made. The engine tells processors apart by itself.
func cacheVersion() string { return fmt.Sprintf("%s-meter-%d-kept", engineVersion, meter.Version) }

// Close frees all instances and compiled code. No Run may be going on; a load
// that nobody waits for any more is waited for, as long as ctx allows.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	loaded := make(chan struct{})
	go func() {
		e.loading.Wait()
		close(loaded)
	}()
	select { // the compiler works on what is closed here
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

// Loaded says whether Run can run the module of this digest.
func (e *Engine) Loaded(digest string) bool { return e.module(digest) != nil }

// module returns the loaded module of a digest; nil: it is not loaded. It is asked
// several times for each task, and most tasks are of the module of the one before.
func (e *Engine) module(digest string) *module {
	if m := e.latest.Load(); m != nil && m.info.Digest == digest {
		return m
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	m := e.modules[digest]
	if m != nil {
		e.latest.Store(m) // under the lock, which Unload has to have first
	}
	return m
}

// Unload forgets a module: its compiled code and its idle instances. Tasks that
// run go on to their end. A module that is not loaded is no error.
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
	if m.script != nil { // the code is its interpreter's
		return err
	}
	for _, s := range e.scriptsOf(digest) {
		err = errors.Join(err, e.Unload(ctx, s))
	}
	return errors.Join(err, e.closeCode(ctx, m))
}

// Load makes a module ready to run: it checks the digest and the upload rules,
// rewrites and compiles. Loading a loaded module does nothing; concurrent calls
// for one digest share the work. When ctx ends Load returns, but a compilation
// that has begun goes on for those that wait for it.
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
		return nil // by a flight that ended between the caller's look and this one
	}
	end, err := e.begin()
	if err != nil {
		return err
	}
	defer end()
	if digestOf(code) != digest {
		return fmt.Errorf("load module %s: %w", digest, ErrDigest)
	}
	if _, err := scripts.Unpack(code); !errors.Is(err, scripts.ErrNotScript) {
		return e.loadScript(digest, code)
	}
	p, err := e.rewrite(digest, code)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	if err := e.fillers.take(context.Background()); err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	m := &module{info: p.Info, globals: p.Globals, marks: (*marks)(p.Marks), resettable: p.Reset, lines: lines.Open(p.Lines)}
	m.runs = p.Info.Kind == Reactor && slices.Contains(p.Info.Exports, abi.ExportRun)
	m.files, err = e.evictor.Use(p.Sum, []string{e.rewritten.Path(rewrittenName(digest, e.meterOptions()))}, func() (err error) {
		m.compiled, err = compile(e.rt, p.Code)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("load module: %w", err), e.fillers.add(context.Background(), e.rt))
	}
	if len(p.Info.Stubs) > 0 {
		err = e.fillers.take(context.Background())
	}
	if err == nil {
		m.stubs, err = stubModule(context.Background(), e.rt, p.Info.Stubs)
	}
	if err != nil {
		e.evictor.Release(m.files)
		return errors.Join(fmt.Errorf("load module: %w", err), e.closeCode(context.Background(), m))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.modules[digest] = m
	e.latest.Store(nil) // it may have been loaded already
	return nil
}

// rewrite returns the form of a module that is compiled, from the cache if it
// is there. A cache that cannot be written to costs time and nothing else.
func (e *Engine) rewrite(digest string, code []byte) (rewritten, error) {
	opts := e.meterOptions()
	name := rewrittenName(digest, opts)
	if data, ok := e.rewritten.Get(name); ok {
		if p, ok := decodeRewritten(data); ok {
			return p, nil
		}
	}
	p, err := rewrite(code, opts)
	if err != nil {
		return rewritten{}, err
	}
	if data, err := encodeRewritten(p); err == nil {
		_ = e.rewritten.Put(name, data) // the next start takes longer
	}
	return p, nil
}

func (e *Engine) meterOptions() meter.Options {
	return meterOptions(e.cfg)
}

func meterOptions(cfg Config) meter.Options {
	return meter.Options{
		StackBytes:    cfg.StackBytes,
		MemoryPages:   pages(cfg.MaxMemoryBytes),
		TableElements: binary.DefaultLimits().TableElements,
		Writes:        writesOf,
		Batch:         meter.Batch{Module: abi.ImportModule, Done: "job_done", Next: "job_next"},
	}
}

// compile turns a panic of the compiler into an error: the code comes from
// strangers, and a compiler has more corners than a parser.
func compile(rt wazero.Runtime, code []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = refuse("the compiler failed: %v", r)
		}
	}()
	// Not the caller's context: others may wait for the same compilation.
	ctx := experimental.WithCompilationWorkers(context.Background(), goruntime.GOMAXPROCS(0))
	compiled, err := rt.CompileModule(ctx, code)
	if err != nil {
		return nil, refuse("%s: build it again with a current compiler", oneLine(err.Error()))
	}
	return compiled, nil
}

func digestOf(code []byte) string {
	sum := sha256.Sum256(code)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// pages is the number of whole pages in so many bytes.
func pages(bytes int64) uint32 { return uint32(bytes / binary.PageSize) }
