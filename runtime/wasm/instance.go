package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/codecache"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// A module is a compiled module.
type module struct {
	info       Info
	compiled   wazero.CompiledModule
	globals    []string                  // exports that hold its mutable globals
	marks      *marks                    // nil: what a call writes is not marked
	runs       bool                      // it can take batches
	resettable bool                      // memory and globals are all the state that a call changes
	gone       bool                      // it was unloaded; guarded by the pool's lock
	last       atomic.Pointer[idleStack] // the stack used last: most tasks of a module are of one app
	grants     atomic.Pointer[granted]
	script     *scripts.Script       // what an interpreter runs; nil: the module is no script
	image      atomic.Pointer[image] // state after _initialize; nil until an instance got there
	files      codecache.Held        // of the compile cache, which stay as long as it is loaded
	lines      *lines.Table          // what its code was compiled from; nil: nobody knows
	stubs      unnamed               // stands in for wheelwork_v1 where it lacks what the module calls optional; zero: nothing is missing
}

// An instance is one instantiated module. One goroutine uses it at a time.
type instance struct {
	mod     api.Module
	module  *module
	call    *call      // invariant: the call that runs while guest code runs
	idle    *idleStack // of the pool, to which it returns
	tasks   int        // how many it has run, when it is shared
	limit   int64      // bytes of linear memory it may have
	handle  api.Function
	run     api.Function // of batches; nil until there was one
	budget  api.MutableGlobal
	marks   api.MutableGlobal
	lines   api.MutableGlobal
	taken   api.MutableGlobal   // what its code knows of a batch's task; nil: it takes no batches
	globals []api.MutableGlobal // in the order of module.globals
	params  [1]uint64           // parameter and result of handle
	quick   *quick              // drives the interpreter of a script; nil: there is none to drive

	older, younger *instance // in the pool
}

// instantiate makes an instance for c. It runs the module's start function if
// it has one, but neither _initialize nor _start.
func (e *Engine) instantiate(c *call, m *module, limit int64) (*instance, error) {
	inst := &instance{module: m, call: c, limit: limit}
	c.lines = m.lines
	if m.script != nil {
		inst.quick = &quick{}
	}
	memory := &allocator{limit: limit, ration: &e.ration}
	ctx := e.hosts.resolve(experimental.WithMemoryAllocator(c, memory), m, c.files != nil)
	cfg := inst.config(c.task)
	if c.files != nil {
		cfg = cfg.WithFSConfig(c.files)
	}
	mod, err := instantiate(ctx, e.rt, m.compiled, cfg)
	if err != nil {
		if memory.refused() && c.cause == nil {
			err = e.ration.exceeded()
		}
		memory.free()
		return nil, err
	}
	inst.mod = mod
	c.look() // it took a while
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
		WithWalltime(coarseWall, sys.ClockResolution(clockStep)).
		WithNanotime(coarse, sys.ClockResolution(clockStep)).
		WithNanosleep(func(ns int64) { inst.call.sleep(time.Duration(ns)) }).
		WithOsyield(func() { inst.call.tick() }).
		WithRandSource(instanceRandom{inst})
	if inst.module.info.Kind == Reactor {
		return cfg.WithStdout(logStream{inst})
	}
	if inst.module.script != nil {
		return inst.scriptConfig(cfg, t)
	}
	inst.call.stdin = t.Input
	cfg = cfg.WithStdin(inputStream{inst, bytes.NewReader(t.Input)}).WithStdout(outputStream{inst}).
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

// clockStep is the step of the clocks that guests see. A finer one would let
// them time what caches and neighbours do.
const clockStep = time.Millisecond

// coarse is the steady clock of guests.
func coarse() int64 { return int64(time.Duration(now()).Truncate(clockStep)) }

// coarseWall is their wall clock.
func coarseWall() (sec int64, nsec int32) {
	now := time.Now().Truncate(clockStep)
	return now.Unix(), int32(now.Nanosecond())
}

// toldToCommands are the parameters that a command finds in its environment, as
// WHEELWORK_RUN_ID and so on.
var toldToCommands = []string{"run_id", "app", "job", "attempt", "max_attempts", "planned_at_ms", "covers", "part", "parts"}

// logStream is the stderr of every guest, and the stdout of a reactor.
type logStream struct{ inst *instance }

func (s logStream) Write(p []byte) (int, error) {
	s.inst.call.work(len(p))
	s.inst.call.log.Write(runtime.LevelInfo, p)
	s.inst.call.pace()
	return len(p), nil
}

// inputStream is the stdin of a command that has files; see readStdin for others.
type inputStream struct {
	inst *instance
	rest *bytes.Reader
}

func (s inputStream) Read(p []byte) (int, error) {
	s.inst.call.work(min(len(p), s.rest.Len()))
	return s.rest.Read(p)
}

// outputStream is the stdout of a command.
type outputStream struct{ inst *instance }

func (s outputStream) Write(p []byte) (int, error) {
	s.inst.call.work(len(p))
	s.inst.call.writeOutput(p)
	return len(p), nil
}

type instanceRandom struct{ inst *instance }

func (r instanceRandom) Read(p []byte) (int, error) { return randomSource{r.inst.call}.Read(p) }

// arm prepares the counters for a call that begins at the time seen last.
func (inst *instance) arm(c *call, stackBytes int64) {
	inst.call, c.lines = c, inst.module.lines
	inst.budget.Set(meter.Budget(c.grant(firstSlice, 0), stackBytes))
	c.sliceStart = c.seen
}

// size is the instance's linear memory in bytes.
func (inst *instance) size() int64 {
	if mem := inst.mod.Memory(); mem != nil {
		return int64(mem.Size())
	}
	return 0
}

func (inst *instance) close(ctx context.Context) error { return inst.mod.Close(ctx) }

// pageBytes is the unit in which memory is compared.
const (
	pageShift = 12
	pageBytes = 1 << pageShift
)

// An image is the state of an initialised instance. It is immutable.
type image struct {
	pages   [][]byte // nil: a page of zeros
	globals []uint64
	marks   uint64 // where it may differ from a memory of zeros, and from that of a new instance
	quick   quick  // where the driver of a script finds its values
}

// takeImage copies an instance's memory and globals. What was neither filled
// nor marked is zero, and is not read: it need not exist.
func takeImage(inst *instance) *image {
	im := &image{marks: allMarks}
	if inst.quick != nil {
		im.quick = quick{scratch: inst.quick.scratch, handler: inst.quick.handler, nothing: inst.quick.nothing}
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

// take copies the pages that a part of the memory lies in.
func (im *image) take(mem []byte, at, end int) {
	for i := at / pageBytes; i*pageBytes < end; i++ {
		if page := mem[i*pageBytes : (i+1)*pageBytes]; im.pages[i] == nil && !bytes.Equal(page, zeros[:]) {
			im.pages[i] = bytes.Clone(page)
		}
	}
}

var zeros [pageBytes]byte // never written to

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

// allMarks are the marks of a memory of which nothing is known.
const allMarks = ^uint64(0)

// restore sets the instance back to the image: globals, and the memory where
// it was marked. It reports false when the memory has another size, which
// cannot be set back.
func (inst *instance) restore(im *image) bool {
	marks, lines := allMarks, uint64(0)
	if inst.module.marks != nil {
		marks, lines = inst.takeMarks()
	}
	return inst.restoreMarked(im, marks, lines)
}

// takeMarks returns what was written since the marks were taken last.
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
	inst.quick.adopt(im)
	return true
}

// compare makes a part of the memory equal to the image and writes only the
// pages that differ: reading is cheaper, and a page that was never written need
// not exist.
func (im *image) compare(mem []byte, at, end int) {
	for at < end {
		have, want := im.piece(mem, at, end)
		if !bytes.Equal(have, want) {
			copy(have, want)
		}
		at += len(have)
	}
}

// copy makes a part of the memory equal to the image.
func (im *image) copy(mem []byte, at, end int) {
	for at < end {
		page := at >> pageShift
		upTo := min(end, (page+1)<<pageShift)
		if want := im.pages[page]; want == nil {
			clear(mem[at:upTo])
		} else {
			copy(mem[at:upTo], want[at&(pageBytes-1):])
		}
		at = upTo
	}
}

// piece is what of the range lies in its first page, in memory and image.
func (im *image) piece(mem []byte, at, end int) (have, want []byte) {
	page := at / pageBytes
	from := at - page*pageBytes
	to := min(pageBytes, end-page*pageBytes)
	if want = im.pages[page]; want == nil {
		want = zeros[:]
	}
	return mem[at : at+to-from], want[from:to]
}

// marks are how a module marks what it writes.
type marks meter.Marks

// setBack makes the marked parts of the memory equal to the image.
func (m *marks) setBack(mem []byte, im *image, set uint64) {
	if m.Shift > pageShift {
		m.each(set, len(mem), func(at, end int) { im.compare(mem, at, end) })
		return
	}
	for ; set != 0; set &= set - 1 {
		for at := bits.TrailingZeros64(set) << m.Shift; at < len(mem); at += 64 << m.Shift {
			im.copy(mem, at, min(at+1<<m.Shift+m.Slack, len(mem)))
		}
	}
}

// setLines makes the marked lines of the memory equal to the image. What the host was
// given to write to may be outside.
func (m *marks) setLines(mem []byte, im *image, set uint64) {
	for ; set != 0; set &= set - 1 {
		at := int(m.Lines[bits.TrailingZeros64(set)]) * meter.LineBytes
		if at >= len(mem) {
			continue
		}
		have := (*[meter.LineBytes]byte)(mem[at:])
		if want := im.pages[at>>pageShift]; want == nil {
			*have = [meter.LineBytes]byte{}
		} else {
			*have = [meter.LineBytes]byte(want[at&(pageBytes-1):])
		}
	}
}

// chunks are marks that say at least as much as those of lines.
func (m *marks) chunks(lines uint64) uint64 { return (*meter.Marks)(m).Chunks(lines) }

// each calls do for each marked part of a memory of so many bytes.
func (m *marks) each(set uint64, size int, do func(at, end int)) {
	for ; set != 0; set &= set - 1 {
		for at := bits.TrailingZeros64(set) << m.Shift; at < size; at += 64 << m.Shift {
			do(at, min(at+1<<m.Shift+m.Slack, size))
		}
	}
}

// reactor returns an initialised instance: an idle one, a new one set to the
// module's image, or a new one that runs _initialize: the first one does, and
// each of a module that asks for a fresh one.
func (e *Engine) reactor(c *call, m *module, limit int64) (*instance, error) {
	key := poolKey{m, limit, c.task.App, m.grantKey(c.task.Grants)}
	at := e.pool.stackOf(key)
	if inst := e.pool.get(at); inst != nil {
		return inst, nil
	}
	inst, err := e.instantiate(c, m, limit)
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
		m.image.CompareAndSwap(nil, takeImage(inst))
	}
	return inst, nil
}

// sharedTasks is how many tasks an instance runs that is never set back: what
// leaks in it comes to an end.
const sharedTasks = 10_000

// reuse is what becomes of an instance after a task: what the module asks for,
// if its state can be set back at all.
func (m *module) reuse() manifest.Reuse {
	switch want := m.info.Manifest.Reuse; {
	case want == manifest.ReuseShared, want == manifest.ReuseFresh:
		return want
	case !m.resettable:
		return manifest.ReuseFresh
	}
	return manifest.ReuseReset
}

// granted is the key of the grants seen last: computing it takes longer than a
// task, and the tasks of a module and app share theirs.
type granted struct {
	grants *runtime.Grants
	key    string
}

// grantKey is equal for equal grants.
func (m *module) grantKey(g *runtime.Grants) string {
	if g == nil {
		return ""
	}
	if last := m.grants.Load(); last != nil && last.grants == g {
		return last.key
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("wasm: grants have no JSON: %v", err)) // they are strings and numbers
	}
	sum := sha256.Sum256(text)
	m.grants.Store(&granted{g, string(sum[:])})
	return string(sum[:])
}

// adopt sets a new instance to an image that another one took.
func (inst *instance) adopt(im *image) bool {
	if grow := int64(len(im.pages))*pageBytes - inst.size(); grow > 0 {
		if _, ok := inst.mod.Memory().Grow(uint32(grow >> 16)); !ok {
			return false
		}
	}
	set, lines := inst.takeMarks() // a start function has run
	return inst.restoreMarked(im, im.marks|set, lines)
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
	c.look()
	left, _ := meter.SplitBudget(inst.budget.Get())
	c.giveBack(int64(left))
	return nil
}

// recycle puts an instance back into the pool, as if it were new unless it is
// shared, or closes it.
func (e *Engine) recycle(ctx context.Context, inst *instance) {
	inst.call = nil
	keep := false
	switch inst.module.reuse() {
	case manifest.ReuseReset:
		im := inst.module.image.Load()
		// One that is larger than the pool is not set back in vain: that takes long.
		keep = im != nil && e.pool.fits(inst) && inst.restore(im)
	case manifest.ReuseShared:
		inst.tasks++
		keep = inst.tasks < sharedTasks
	}
	if keep {
		e.pool.put(ctx, inst)
	} else {
		_ = inst.close(ctx) // closing an instance frees memory; it has no error to tell
	}
}
