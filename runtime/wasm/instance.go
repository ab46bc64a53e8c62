package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/quickjs"
)

// An instance is one instantiated module. One goroutine uses it at a time.
type instance struct {
	mod     api.Module
	module  *module
	call    *guest.Call // invariant: while guest code runs, the current call
	idle    *idleStack  // the stack of the pool to which it returns
	tasks   int         // number of tasks that a shared instance has run
	limit   int64       // bytes of linear memory that it may have
	handle  api.Function
	run     api.Function // takes batches; nil until the first batch
	budget  api.MutableGlobal
	marks   api.MutableGlobal
	lines   api.MutableGlobal
	taken   api.MutableGlobal   // BatchGlobal, the state of a batch's task; nil: it takes no batches
	globals []api.MutableGlobal // in the order of module.globals
	params  [1]uint64           // parameter and result of handle
	quick   *quickjs.Driver     // drives the interpreter of a script; nil: the module is no script

	older, younger *instance // neighbours in the pool
}

// instantiate creates an instance for c, with the given files; nil: none. It runs the
// module's start function if there is one, but neither _initialize nor _start.
func (e *Engine) instantiate(c *guest.Call, m *module, limit int64, files wazero.FSConfig) (*instance, error) {
	inst := &instance{module: m, call: c, limit: limit}
	c.SetLines(m.lines)
	allocator := &memory.Allocator{Limit: limit, Budget: e.host.Memory}
	ctx := e.imports.Resolve(experimental.WithMemoryAllocator(c, allocator), m.stubs, files != nil)
	cfg := inst.config(c.Task, !e.cfg.NoVariables)
	if files != nil {
		cfg = cfg.WithFSConfig(files)
	}
	mod, err := instantiate(ctx, e.rt, m.compiled, cfg)
	if err != nil {
		if allocator.Refused() && c.Cause() == nil {
			err = fmt.Errorf("%w: %w", guest.ErrInstantiate, e.host.Memory.Exceeded())
		}
		allocator.Free()
		return nil, err
	}
	inst.mod = mod
	if m.script != nil {
		inst.quick = quickjs.New(mod, m.script)
	}
	c.Look() // instantiation takes a while, so read the clock again
	inst.handle = mod.ExportedFunction(abi.ExportHandle)
	inst.budget = mod.ExportedGlobal(meter.BudgetGlobal).(api.MutableGlobal)
	inst.marks = mod.ExportedGlobal(meter.MarksGlobal).(api.MutableGlobal)
	inst.lines = mod.ExportedGlobal(meter.LinesGlobal).(api.MutableGlobal)
	inst.taken, _ = mod.ExportedGlobal(meter.BatchGlobal).(api.MutableGlobal)
	for _, name := range m.globals {
		inst.globals = append(inst.globals, mod.ExportedGlobal(name).(api.MutableGlobal))
	}
	return inst, nil
}

// instantiate turns a panic of the engine into an error. The engine panics when the
// allocator has no memory for it.
func instantiate(ctx context.Context, rt wazero.Runtime, m wazero.CompiledModule, cfg wazero.ModuleConfig) (mod api.Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", guest.ErrInstantiate, r)
		}
	}()
	return rt.InstantiateModule(ctx, m, cfg)
}

// config returns the environment of a guest. Everything that depends on the task goes
// through inst.call. Only the arguments, environment and standard streams of commands do
// not, because a command instance runs one task. variables adds commandVariables to the
// environment of a command.
func (inst *instance) config(t *runtime.Task, variables bool) wazero.ModuleConfig {
	cfg := wazero.NewModuleConfig().
		WithName(""). // anonymous: there may be many
		WithStartFunctions().
		WithStderr(logStream{inst}).
		WithWalltime(guest.Walltime, sys.ClockResolution(guest.ClockStep)).
		WithNanotime(guest.Nanotime, sys.ClockResolution(guest.ClockStep)).
		WithNanosleep(func(ns int64) { inst.call.Sleep(time.Duration(ns)) }).
		WithOsyield(func() { inst.call.Tick() }).
		WithRandSource(randomStream{inst})
	if inst.module.info.Kind == inspect.Reactor {
		return cfg.WithStdout(logStream{inst})
	}
	if inst.module.script != nil {
		return inst.scriptConfig(cfg)
	}
	inst.call.SetInput(t.Input)
	cfg = cfg.WithStdin(inputStream{inst}).WithStdout(outputStream{inst}).
		WithArgs(append([]string{t.Module}, t.Args...)...)
	if variables {
		for _, key := range commandVariables {
			value, _ := hostabi.Param(inst.call, key)
			cfg = cfg.WithEnv("WHEELWORK_"+strings.ToUpper(key), value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Env)) { // may override the variables above
		cfg = cfg.WithEnv(key, t.Env[key])
	}
	return cfg
}

// commandVariables are the parameters that a command finds in its environment, as
// WHEELWORK_RUN_ID and so on.
var commandVariables = []string{"run_id", "app", "job", "attempt", "max_attempts", "planned_at_ms", "covers", "part", "parts"}

// logStream is the stderr of every guest, and the stdout of a reactor.
type logStream struct{ inst *instance }

func (s logStream) Write(p []byte) (int, error) {
	s.inst.call.WriteLog(p)
	return len(p), nil
}

// inputStream is the stdin of a command that has files. The fd_read of other commands reads
// from the call.
type inputStream struct{ inst *instance }

func (s inputStream) Read(p []byte) (int, error) {
	n := s.inst.call.ReadInput(p)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// outputStream is the stdout of a command.
type outputStream struct{ inst *instance }

func (s outputStream) Write(p []byte) (int, error) {
	s.inst.call.Work(len(p))
	s.inst.call.WriteOutput(p)
	return len(p), nil
}

type randomStream struct{ inst *instance }

func (s randomStream) Read(p []byte) (int, error) { return hostabi.ReadRandom(s.inst.call, p) }

// arm prepares the budget for a call that begins when the clock was last read.
func (inst *instance) arm(c *guest.Call, stackBytes int64) {
	inst.call = c
	inst.budget.Set(meter.Budget(c.BeginSlice(inst.module.lines), stackBytes))
}

// size is the instance's linear memory in bytes.
func (inst *instance) size() int64 {
	if mem := inst.mod.Memory(); mem != nil {
		return int64(mem.Size())
	}
	return 0
}

func (inst *instance) close(ctx context.Context) error { return inst.mod.Close(ctx) }

// image returns the state of an instance. Memory that has no dirty bit and no data segment is
// zero. It is not read, so its pages need not exist.
func (inst *instance) image() *image {
	im := &image{marks: allMarks}
	if inst.quick != nil {
		im.script = inst.quick.State
	}
	for _, g := range inst.globals {
		im.globals = append(im.globals, g.Get())
	}
	mem := inst.view()
	im.pages = make([][]byte, len(mem)/pageBytes)
	if m := inst.module.marks; m != nil {
		set, lines := inst.takeMarks()
		im.marks = set | m.chunks(lines) | m.Start
		m.each(im.marks, len(mem), func(at, end int) { im.take(mem, at, end) })
	} else {
		im.take(mem, 0, len(mem))
	}
	return im
}

// view returns the whole linear memory, valid until the guest runs again. Its length is a
// multiple of a Wasm page and therefore of pageBytes.
func (inst *instance) view() []byte {
	mem := inst.mod.Memory()
	if mem == nil {
		return nil
	}
	view, _ := mem.Read(0, mem.Size())
	return view
}

// restore resets the instance to the image: the globals, and the memory that is dirty. It
// returns false when the size of the memory differs from the image, because the size cannot
// be reset.
func (inst *instance) restore(im *image) bool {
	marks, lines := allMarks, uint64(0)
	if inst.module.marks != nil {
		marks, lines = inst.takeMarks()
	}
	return inst.restoreMarked(im, marks, lines)
}

// takeMarks returns the dirty bits that were set since the last call, and clears them.
func (inst *instance) takeMarks() (chunks, lines uint64) {
	if chunks = inst.marks.Get(); chunks != 0 {
		inst.marks.Set(0)
	}
	if lines = inst.lines.Get(); lines != 0 {
		inst.lines.Set(0)
	}
	return chunks, lines
}

func (inst *instance) restoreMarked(im *image, marks, lines uint64) bool {
	mem := inst.view()
	if len(mem) != len(im.pages)*pageBytes {
		return false
	}
	if marks == allMarks {
		im.compare(mem, 0, len(mem))
	} else {
		inst.module.marks.setBack(mem, im, marks)
		inst.module.marks.setLines(mem, im, lines)
	}
	for i, g := range inst.globals {
		g.Set(im.globals[i])
	}
	if inst.quick != nil {
		inst.quick.State = im.script
	}
	return true
}

// reactor returns an initialised instance: an idle one, a new one with the module's image,
// or a new one that runs _initialize. The first instance of a module runs _initialize, and
// so does every instance of a module whose instances are not reset.
func (e *Engine) reactor(c *guest.Call, m *module, limit int64) (*instance, error) {
	key := poolKey{m, limit, c.Task.App, m.grantKey(c.Task.Grants)}
	at := e.pool.stackOf(key)
	if inst := e.pool.get(at); inst != nil {
		return inst, nil
	}
	inst, err := e.instantiate(c, m, limit, nil)
	if err != nil {
		return nil, err
	}
	inst.idle = at
	if im := m.image.Load(); im != nil && inst.adopt(im) {
		return inst, nil
	}
	err = e.initialize(c, inst)
	if err == nil {
		err = e.startScript(c, inst)
	}
	if err != nil {
		return nil, errors.Join(err, inst.close(c))
	}
	if m.reuse() == manifest.ReuseReset {
		m.image.CompareAndSwap(nil, inst.image())
	}
	return inst, nil
}

// adopt sets a new instance to an image taken from another instance.
func (inst *instance) adopt(im *image) bool {
	if grow := int64(len(im.pages))*pageBytes - inst.size(); grow > 0 {
		if _, ok := inst.mod.Memory().Grow(uint32(grow >> 16)); !ok {
			return false
		}
	}
	set, lines := inst.takeMarks() // a start function may have run
	return inst.restoreMarked(im, im.marks|set, lines)
}

func (e *Engine) initialize(c *guest.Call, inst *instance) error {
	init := inst.mod.ExportedFunction(abi.ExportInit)
	if init == nil {
		return nil
	}
	defer c.Initialize()()
	inst.arm(c, e.cfg.StackBytes)
	if _, err := init.Call(c); err != nil {
		return fmt.Errorf("%s: %w", abi.ExportInit, err)
	}
	c.Look()
	left, _ := meter.SplitBudget(inst.budget.Get())
	c.GiveBack(int64(left))
	return nil
}

// recycle returns an instance to the pool or closes it. Unless the instance is shared, it
// is reset first.
func (e *Engine) recycle(ctx context.Context, inst *instance) {
	inst.call = nil
	reusable := false
	switch inst.module.reuse() {
	case manifest.ReuseReset:
		im := inst.module.image.Load()
		// Resetting an instance that is larger than the pool would be slow and useless.
		reusable = im != nil && e.pool.fits(inst) && inst.restore(im)
	case manifest.ReuseShared:
		inst.tasks++
		reusable = inst.tasks < sharedTasks
	}
	if reusable {
		e.pool.put(ctx, inst)
	} else {
		_ = inst.close(ctx) // closing an instance frees memory and has no error to report
	}
}
