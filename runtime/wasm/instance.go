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
	globals    []string                  // names of the exports of its mutable globals
	marks      *marks                    // nil: the module has no dirty bits
	runs       bool                      // it exports the function that takes batches
	resettable bool                      // memory and globals are all the state that a call changes
	gone       bool                      // it was unloaded; guarded by the pool's lock
	last       atomic.Pointer[idleStack] // the stack used last, because most tasks of a module are of one app
	grants     atomic.Pointer[granted]
	script     *scripts.Script       // the script that an interpreter runs; nil: the module is no script
	image      atomic.Pointer[image] // state after _initialize; nil until an instance has reached it
	files      codecache.Held        // files of the compile cache that are held while the module is loaded
	lines      *lines.Table          // source lines of its code; nil: unknown
	stubs      unnamed               // implements the optional imports that wheelwork_v1 lacks; zero: none is missing
}

// An instance is one instantiated module. One goroutine uses it at a time.
type instance struct {
	mod     api.Module
	module  *module
	call    *call      // invariant: while guest code runs, the current call
	idle    *idleStack // the stack of the pool to which it returns
	tasks   int        // number of tasks that a shared instance has run
	limit   int64      // bytes of linear memory that it may have
	handle  api.Function
	run     api.Function // takes batches; nil until the first batch
	budget  api.MutableGlobal
	marks   api.MutableGlobal
	lines   api.MutableGlobal
	taken   api.MutableGlobal   // BatchGlobal, the state of a batch's task; nil: it takes no batches
	globals []api.MutableGlobal // in the order of module.globals
	params  [1]uint64           // parameter and result of handle
	quick   *quick              // drives the interpreter of a script; nil: the module is no script

	older, younger *instance // neighbours in the pool
}

// instantiate creates an instance for c. It runs the module's start function if there is
// one, but neither _initialize nor _start.
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
	c.look() // instantiation takes a while, so read the clock again
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
			err = fmt.Errorf("%w: %v", errInstantiate, r)
		}
	}()
	return rt.InstantiateModule(ctx, m, cfg)
}

// errInstantiate means that the host, not the guest, caused the failure to create an
// instance.
var errInstantiate = errors.New("the host could not create an instance")

// config returns the environment of a guest. Everything that depends on the task goes
// through inst.call. Only the arguments, environment and standard streams of commands do
// not, because a command instance runs one task.
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
	for _, key := range slices.Sorted(maps.Keys(t.Env)) { // may override the variables above
		cfg = cfg.WithEnv(key, t.Env[key])
	}
	return cfg
}

// clockStep is the resolution of the clocks that guests see. A finer one would let guests
// measure the timing of caches and of other guests.
const clockStep = time.Millisecond

// coarse is the monotonic clock of guests.
func coarse() int64 { return int64(time.Duration(now()).Truncate(clockStep)) }

// coarseWall is the wall clock of guests.
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

// inputStream is the stdin of a command that has files. Other commands use readStdin.
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

// arm prepares the budget for a call that begins at c.seen.
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

// A page of pageBytes is the granularity in which memory is compared.
const (
	pageShift = 12
	pageBytes = 1 << pageShift
)

// An image is the state of an initialised instance. It is immutable.
type image struct {
	pages   [][]byte // nil: a page of zeros
	globals []uint64
	marks   uint64 // chunks that may differ from zeros, and from the memory of a new instance
	quick   quick  // locations of the script driver's values
}

// takeImage copies an instance's memory and globals. Memory that has no dirty bit and no
// data segment is zero. takeImage does not read it, so its pages need not exist.
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

// take copies the pages that overlap a part of the memory.
func (im *image) take(mem []byte, at, end int) {
	for i := at / pageBytes; i*pageBytes < end; i++ {
		if page := mem[i*pageBytes : (i+1)*pageBytes]; im.pages[i] == nil && !bytes.Equal(page, zeros[:]) {
			im.pages[i] = bytes.Clone(page)
		}
	}
}

var zeros [pageBytes]byte // never written

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

// allMarks are the dirty bits of a memory with unknown changes.
const allMarks = ^uint64(0)

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
	inst.quick.adopt(im)
	return true
}

// compare makes a part of the memory equal to the image and writes only the pages that
// differ. Reading is cheaper than writing, and a page that was never written need not
// exist.
func (im *image) compare(mem []byte, at, end int) {
	for at < end {
		have, want := im.piece(mem, at, end)
		if !bytes.Equal(have, want) {
			copy(have, want)
		}
		at += len(have)
	}
}

// copy makes a part of the memory equal to the image without comparing.
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

// piece returns the part of the range that lies in its first page, in memory and image.
func (im *image) piece(mem []byte, at, end int) (have, want []byte) {
	page := at / pageBytes
	from := at - page*pageBytes
	to := min(pageBytes, end-page*pageBytes)
	if want = im.pages[page]; want == nil {
		want = zeros[:]
	}
	return mem[at : at+to-from], want[from:to]
}

// marks describes the dirty bits of a module.
type marks meter.Marks

// setBack makes the dirty chunks of the memory equal to the image.
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

// setLines makes the dirty lines of the memory equal to the image. A line may lie outside
// the memory, when the guest passed the host an address that it may not write to.
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

// chunks returns the dirty bits of all chunks that the given lines lie in.
func (m *marks) chunks(lines uint64) uint64 { return (*meter.Marks)(m).Chunks(lines) }

// each calls do for each dirty chunk of a memory of size bytes.
func (m *marks) each(set uint64, size int, do func(at, end int)) {
	for ; set != 0; set &= set - 1 {
		for at := bits.TrailingZeros64(set) << m.Shift; at < size; at += 64 << m.Shift {
			do(at, min(at+1<<m.Shift+m.Slack, size))
		}
	}
}

// reactor returns an initialised instance: an idle one, a new one with the module's image,
// or a new one that runs _initialize. The first instance of a module runs _initialize, and
// so does every instance of a module whose instances are not reset.
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

// sharedTasks is the number of tasks that an instance runs when it is never reset, which
// bounds leaks in the guest.
const sharedTasks = 10_000

// reuse determines how an instance is reused after a task: as the module asks, or fresh if
// its state cannot be reset.
func (m *module) reuse() manifest.Reuse {
	switch want := m.info.Manifest.Reuse; {
	case want == manifest.ReuseShared, want == manifest.ReuseFresh:
		return want
	case !m.resettable:
		return manifest.ReuseFresh
	}
	return manifest.ReuseReset
}

// granted caches the key of the last grants: computing it takes longer than a task, and the
// tasks of a module and app share one Grants value.
type granted struct {
	grants *runtime.Grants
	key    string
}

// grantKey returns equal keys for equal grants.
func (m *module) grantKey(g *runtime.Grants) string {
	if g == nil {
		return ""
	}
	if last := m.grants.Load(); last != nil && last.grants == g {
		return last.key
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("wasm: grants have no JSON: %v", err)) // cannot happen: grants are strings and numbers
	}
	sum := sha256.Sum256(text)
	m.grants.Store(&granted{g, string(sum[:])})
	return string(sum[:])
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

// recycle returns an instance to the pool or closes it. Unless the instance is shared, it
// is reset first.
func (e *Engine) recycle(ctx context.Context, inst *instance) {
	inst.call = nil
	keep := false
	switch inst.module.reuse() {
	case manifest.ReuseReset:
		im := inst.module.image.Load()
		// Resetting an instance that is larger than the pool would be slow and useless.
		keep = im != nil && e.pool.fits(inst) && inst.restore(im)
	case manifest.ReuseShared:
		inst.tasks++
		keep = inst.tasks < sharedTasks
	}
	if keep {
		e.pool.put(ctx, inst)
	} else {
		_ = inst.close(ctx) // closing an instance frees memory and has no error to report
	}
}
