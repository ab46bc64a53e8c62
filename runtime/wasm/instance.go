package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// A module is a compiled module.
type module struct {
	info       Info
	compiled   wazero.CompiledModule
	globals    []string              // exports that hold its mutable globals
	resettable bool                  // memory and globals are all the state that a call changes
	image      atomic.Pointer[image] // state after _initialize; nil until an instance got there
	stubs      api.Module            // stands in for wheelwork_v1 where it lacks what the module calls optional; nil: nothing is missing
}

// An instance is one instantiated module. One goroutine uses it at a time.
type instance struct {
	mod     api.Module
	module  *module
	call    *call // invariant: the call that runs while guest code runs
	limit   int64 // bytes of linear memory it may have
	handle  api.Function
	fuel    api.MutableGlobal
	stack   api.MutableGlobal
	globals []api.MutableGlobal // in the order of module.globals
	params  [1]uint64           // parameter and result of handle
}

// instantiate makes an instance for c. It runs the module's start function if
// it has one, but neither _initialize nor _start.
func (e *Engine) instantiate(c *call, m *module, limit int64) (*instance, error) {
	inst := &instance{module: m, call: c, limit: limit}
	memory := &allocator{limit: limit}
	ctx := e.hosts.resolve(experimental.WithMemoryAllocator(c, memory), m, c.files != nil)
	cfg := inst.config(c.task)
	if c.files != nil {
		cfg = cfg.WithFSConfig(c.files)
	}
	mod, err := instantiate(ctx, e.rt, m.compiled, cfg)
	if err != nil {
		memory.free()
		return nil, err
	}
	inst.mod = mod
	inst.handle = mod.ExportedFunction(abi.ExportHandle)
	inst.fuel = mod.ExportedGlobal(meter.FuelGlobal).(api.MutableGlobal)
	inst.stack = mod.ExportedGlobal(meter.StackGlobal).(api.MutableGlobal)
	for _, name := range m.globals {
		inst.globals = append(inst.globals, mod.ExportedGlobal(name).(api.MutableGlobal))
	}
	return inst, nil
}

// instantiate turns a panic of the engine into an error: it panics when the
// allocator has no memory for it.
func instantiate(ctx context.Context, rt wazero.Runtime, m wazero.CompiledModule, cfg wazero.ModuleConfig) (mod api.Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errInstantiate, r)
		}
	}()
	return rt.InstantiateModule(ctx, m, cfg)
}

// errInstantiate says that the host, not the guest, is why there is no instance.
var errInstantiate = errors.New("the host could not create an instance")

// config gives a guest its surroundings. Everything that depends on the task
// goes through inst.call, except for what only commands get, which run once.
func (inst *instance) config(t *runtime.Task) wazero.ModuleConfig {
	cfg := wazero.NewModuleConfig().
		WithName(""). // anonymous: there may be many
		WithStartFunctions().
		WithStderr(logStream{inst}).
		WithSysWalltime().
		WithSysNanotime().
		WithNanosleep(func(ns int64) { inst.call.sleep(time.Duration(ns)) }).
		WithOsyield(func() { inst.call.tick() }).
		WithRandSource(instanceRandom{inst})
	if inst.module.info.Kind == Reactor {
		return cfg.WithStdout(logStream{inst})
	}
	cfg = cfg.WithStdin(bytes.NewReader(t.Input)).WithStdout(outputStream{inst}).
		WithArgs(append([]string{t.Module}, t.Args...)...)
	for _, key := range toldToCommands {
		value, _ := inst.call.param(key)
		cfg = cfg.WithEnv("WHEELWORK_"+strings.ToUpper(key), value)
	}
	for _, key := range slices.Sorted(maps.Keys(t.Env)) { // may replace one of ours
		cfg = cfg.WithEnv(key, t.Env[key])
	}
	return cfg
}

// toldToCommands are the parameters that a command finds in its environment, as
// WHEELWORK_RUN_ID and so on.
var toldToCommands = []string{"run_id", "app", "job", "attempt", "max_attempts", "planned_at_ms", "covers", "part", "parts"}

// logStream is the stderr of every guest, and the stdout of a reactor.
type logStream struct{ inst *instance }

func (s logStream) Write(p []byte) (int, error) {
	s.inst.call.log.Write(runtime.LevelInfo, p)
	s.inst.call.pace()
	return len(p), nil
}

// outputStream is the stdout of a command.
type outputStream struct{ inst *instance }

func (s outputStream) Write(p []byte) (int, error) {
	s.inst.call.writeOutput(p)
	return len(p), nil
}

type instanceRandom struct{ inst *instance }

func (r instanceRandom) Read(p []byte) (int, error) { return randomSource{r.inst.call}.Read(p) }

// arm prepares the counters for a call.
func (inst *instance) arm(c *call, stackBytes int64) {
	inst.call = c
	inst.fuel.Set(firstSlice)
	inst.stack.Set(uint64(stackBytes))
	c.begin()
}

// size is the instance's linear memory in bytes.
func (inst *instance) size() int64 {
	if mem := inst.mod.Memory(); mem != nil {
		return int64(mem.Size())
	}
	return 0
}

func (inst *instance) close(ctx context.Context) error { return inst.mod.Close(ctx) }

// pageBytes is the unit in which memory is compared and set back.
const pageBytes = 4096

// An image is the state of an initialised instance. It is immutable.
type image struct {
	pages   [][]byte // nil: a page of zeros
	globals []uint64
}

// takeImage copies an instance's memory and globals.
func takeImage(inst *instance) *image {
	im := &image{}
	for _, g := range inst.globals {
		im.globals = append(im.globals, g.Get())
	}
	mem := inst.view()
	var zero [pageBytes]byte
	for off := 0; off < len(mem); off += pageBytes {
		page := mem[off : off+pageBytes]
		if bytes.Equal(page, zero[:]) {
			im.pages = append(im.pages, nil)
		} else {
			im.pages = append(im.pages, bytes.Clone(page))
		}
	}
	return im
}

// view is the whole linear memory, valid until the guest runs again. Its
// length is a multiple of a Wasm page and so of pageBytes.
func (inst *instance) view() []byte {
	mem := inst.mod.Memory()
	if mem == nil {
		return nil
	}
	view, _ := mem.Read(0, mem.Size())
	return view
}

// restore sets the instance back to the image, writing only pages that differ.
// It reports false when the memory has another size, which cannot be set back.
func (inst *instance) restore(im *image) bool {
	mem := inst.view()
	if len(mem) != len(im.pages)*pageBytes {
		return false
	}
	var zero [pageBytes]byte
	for i, want := range im.pages {
		have := mem[i*pageBytes : (i+1)*pageBytes]
		switch {
		case want == nil && !bytes.Equal(have, zero[:]):
			clear(have)
		case want != nil && !bytes.Equal(have, want):
			copy(have, want)
		}
	}
	for i, g := range inst.globals {
		g.Set(im.globals[i])
	}
	return true
}

// reactor returns an initialised instance: an idle one, a new one set to the
// module's image, or, the first time, a new one that runs _initialize.
func (e *Engine) reactor(c *call, m *module, limit int64) (*instance, error) {
	if inst := e.pool.get(poolKey{m, limit}); inst != nil {
		return inst, nil
	}
	inst, err := e.instantiate(c, m, limit)
	if err != nil {
		return nil, err
	}
	if im := m.image.Load(); im != nil && inst.adopt(im) {
		return inst, nil
	}
	if err := e.initialize(c, inst); err != nil {
		return nil, errors.Join(err, inst.close(c))
	}
	if m.resettable {
		m.image.CompareAndSwap(nil, takeImage(inst))
	}
	return inst, nil
}

// adopt sets a new instance to an image that another one took.
func (inst *instance) adopt(im *image) bool {
	want := int64(len(im.pages)) * pageBytes
	if grow := want - inst.size(); grow > 0 {
		if _, ok := inst.mod.Memory().Grow(uint32(grow >> 16)); !ok {
			return false
		}
	}
	return inst.restore(im)
}

func (e *Engine) initialize(c *call, inst *instance) error {
	init := inst.mod.ExportedFunction(abi.ExportInit)
	if init == nil {
		return nil
	}
	c.starting = true
	defer func() { c.starting = false }()
	inst.arm(c, e.cfg.StackBytes)
	if _, err := init.Call(c); err != nil {
		return fmt.Errorf("%s: %w", abi.ExportInit, err)
	}
	return nil
}

// recycle puts an instance back into the pool as if it were new, or closes it.
func (e *Engine) recycle(ctx context.Context, inst *instance) {
	im := inst.module.image.Load()
	inst.call = nil
	if im == nil || !inst.module.resettable || inst.module.info.Manifest.Reuse == manifest.ReuseFresh || !inst.restore(im) {
		_ = inst.close(ctx) // closing an instance frees memory; it has no error to tell
		return
	}
	e.pool.put(ctx, inst)
}
