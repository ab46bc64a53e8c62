package wasm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64

	maxCode    = 128     // bytes of an error code
	maxMessage = 4 << 10 // bytes of an error or progress message
)

// A hostFunction is one function of wheelwork_v1. fn reads its parameters from the stack
// and stores its result there.
type hostFunction struct {
	name            string
	params, results []api.ValueType
	task            bool // needs a task, so _initialize may not call it
	fn              func(c *call, mem memory, stack []uint64)
}

// hostFunctions returns all functions of wheelwork_v1, in the order of wheelwork.wit.
func hostFunctions() []hostFunction {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	first := []hostFunction{
		{"input_len", nil, types(i64), true, inputLen},
		{"input_read", types(i64, i32, i32), types(i32), true, inputRead},
		{"param_get", types(i32, i32, i32, i32), types(i32), true, paramGet},
		{"output_write", types(i32, i32), types(i32), false, outputWrite},
		{"fail", types(i32, i64, i32, i32, i32, i32), types(i32), true, fail},
		{"log", types(i32, i32, i32), types(i32), false, logLines},
		{"progress", types(i64, i64, i32, i32), types(i32), true, setProgress},
		{"cancelled", nil, types(i32), true, cancelled},
		{"now_ms", nil, types(i64), false, nowMs},
		{"random", types(i32, i32), types(i32), false, random},
	}
	return append(first, serviceFunctions()...)
}

// hostModules holds the modules that guests import from.
type hostModules struct {
	// plainWASI is WASI for instances that have files. Such an instance runs one task, so
	// its changes to file descriptors affect no other task.
	plainWASI api.Module
}

func (h *hostModules) instantiate(ctx context.Context, rt wazero.Runtime) (err error) {
	if err = errors.Join(instantiateWASI(ctx, rt), instantiateWheelwork(ctx, rt), instantiateQuick(ctx, rt), instantiateMeter(ctx, rt)); err != nil {
		return err
	}
	plain, err := anonymous(ctx, rt, wasi(rt, true))
	h.plainWASI = plain.instance
	return err
}

// An unnamed is a module of the host that guests cannot import by name.
type unnamed struct {
	compiled wazero.CompiledModule
	instance api.Module
}

// anonymous instantiates an unnamed module.
func anonymous(ctx context.Context, rt wazero.Runtime, b interface {
	Compile(context.Context) (wazero.CompiledModule, error)
},
) (m unnamed, err error) {
	if m.compiled, err = b.Compile(ctx); err != nil {
		return unnamed{}, err
	}
	if m.instance, err = rt.InstantiateModule(ctx, m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return unnamed{}, errors.Join(err, m.compiled.Close(ctx))
	}
	return m, nil
}

// resolve replaces named host modules for a guest: by its stubs, and by plainWASI if it has
// files.
func (h *hostModules) resolve(ctx context.Context, m *module, files bool) context.Context {
	stubs := m.stubs.instance
	if stubs == nil && !files {
		return ctx
	}
	return experimental.WithImportResolver(ctx, func(name string) api.Module {
		switch {
		case name == abi.ImportModule && stubs != nil:
			return stubs
		case name == wasi_snapshot_preview1.ModuleName && files:
			return h.plainWASI
		}
		return nil
	})
}

// stubModule instantiates wheelwork_v1 with stubs for functions that the host does not
// serve; zero when there are no stubs.
func stubModule(ctx context.Context, rt wazero.Runtime, stubs []Stub) (unnamed, error) {
	if len(stubs) == 0 {
		return unnamed{}, nil
	}
	b := wheelwork(rt)
	for _, s := range stubs {
		answer := errno(abi.ErrnoNoSys)
		if s.Results[0] == i64 {
			answer = wide(answer)
		}
		// The stack has room for the result even without parameters.
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = answer }), s.Params, s.Results).Export(s.Name)
	}
	return anonymous(ctx, rt, b)
}

// wheelwork builds the module wheelwork_v1.
func wheelwork(rt wazero.Runtime) wazero.HostModuleBuilder {
	b := rt.NewHostModuleBuilder(abi.ImportModule)
	for _, f := range hostFunctions() {
		if f.name == "job_next" || f.name == "job_done" { // called for each task of a batch
			b.NewFunctionBuilder().WithGoFunction(&plainFunction{f}, f.params, f.results).Export(f.name)
		} else {
			b.NewFunctionBuilder().WithGoModuleFunction(&f, f.params, f.results).Export(f.name)
		}
	}
	return b
}

func instantiateWASI(ctx context.Context, rt wazero.Runtime) error {
	_, err := wasi(rt, false).Instantiate(ctx)
	return err
}

func instantiateWheelwork(ctx context.Context, rt wazero.Runtime) error {
	_, err := wheelwork(rt).Instantiate(ctx)
	return err
}

// Call implements api.GoModuleFunction.
func (f *hostFunction) Call(ctx context.Context, mod api.Module, stack []uint64) {
	c := callFrom(ctx)
	if f.task && !c.hasTask() {
		c.endWithoutTask(f.name)
	}
	f.fn(c, memory{c, f.name, mod.Memory()}, stack)
}

// A plainFunction is a host function that needs no memory, which makes its call cheaper.
type plainFunction struct{ of hostFunction }

// Call implements api.GoFunction.
func (f *plainFunction) Call(ctx context.Context, stack []uint64) {
	c := callFrom(ctx)
	if f.of.task && !c.hasTask() {
		c.endWithoutTask(f.of.name)
	}
	f.of.fn(c, memory{c: c, fn: f.of.name}, stack)
}

// hasTask reports whether the guest may access a task.
func (c *call) hasTask() bool {
	return !c.starting && !c.describing && (c.batch == nil || c.batch.open)
}

// endWithoutTask ends a guest that calls a function of its task while it has none.
func (c *call) endWithoutTask(name string) {
	switch {
	case c.starting:
		c.endf("%s was called in %s, where there is no task yet", name, abi.ExportInit)
	case c.describing:
		c.endf("%s was called in %s, where there is no task", name, abi.ExportDescribe)
	default:
		c.endf("%s was called between two tasks: call job_next first", name)
	}
}

func instantiateMeter(ctx context.Context, rt wazero.Runtime) error {
	tick := api.GoFunc(func(ctx context.Context, stack []uint64) {
		stack[0] = callFrom(ctx).refill(stack[0])
	})
	next := api.GoFunc(func(ctx context.Context, stack []uint64) {
		stack[0] = callFrom(ctx).nextTask(stack[0], stack[1])
	})
	_, err := rt.NewHostModuleBuilder(meter.HostModule).
		NewFunctionBuilder().WithGoFunction(tick, []api.ValueType{i64}, []api.ValueType{i64}).Export(meter.TickName).
		NewFunctionBuilder().WithGoFunction(next, []api.ValueType{i64, i64}, []api.ValueType{i32}).Export(meter.NextName).
		Instantiate(ctx)
	return err
}

// memory is a guest's memory in one call of a host function. An access outside it ends the
// guest.
type memory struct {
	c    *call
	fn   string
	view api.Memory
}

// read returns a view of the guest's memory, valid until the guest runs again.
func (m memory) read(ptr, n uint64) []byte {
	if m.view != nil {
		if b, ok := m.view.Read(uint32(ptr), uint32(n)); ok {
			m.c.work(len(b))
			return b
		}
	}
	m.c.endf("%s: range %d+%d is outside the memory", m.fn, uint32(ptr), uint32(n))
	return nil
}

// text copies a string and truncates it to limit bytes.
func (m memory) text(ptr, n uint64, limit int) string {
	b := m.read(ptr, n)
	return string(b[:min(len(b), limit)])
}

// give writes src to a buffer of the guest, truncated to capacity, and returns src's full
// length.
func (m memory) give(ptr, capacity uint64, src []byte) uint64 {
	copy(m.read(ptr, capacity), src)
	return result(int32(len(src)))
}

func result(v int32) uint64 { return api.EncodeI32(v) }

func errno(e abi.Errno) uint64 { return result(-int32(e)) }

func inputLen(c *call, _ memory, stack []uint64) { stack[0] = uint64(len(c.task.Input)) }

func inputRead(c *call, mem memory, stack []uint64) {
	off := min(stack[0], uint64(len(c.task.Input)))
	stack[0] = mem.give(stack[1], stack[2], c.task.Input[off:])
}

func paramGet(c *call, mem memory, stack []uint64) {
	key := mem.text(stack[0], stack[1], maxMessage)
	value, ok := c.param(key)
	if !ok {
		stack[0] = errno(abi.ErrnoNoEntry)
		return
	}
	stack[0] = mem.give(stack[2], stack[3], []byte(value))
}

// param returns a property of the task, or else a variable of the job's environment.
func (c *call) param(key string) (string, bool) {
	t := c.task
	switch key {
	case "run_id":
		return t.RunID, true
	case "app":
		return t.App, true
	case "job":
		return t.Job, true
	case "attempt":
		return strconv.Itoa(t.Attempt), true
	case "max_attempts":
		return strconv.Itoa(t.MaxAttempt), true
	case "planned_at_ms":
		return unixMs(t.PlannedAt), true
	case "covers":
		return strconv.FormatInt(t.Covers, 10), true
	case "part":
		return strconv.Itoa(t.Part), true
	case "parts":
		return strconv.Itoa(t.Parts), true
	case "role":
		return t.Role, true
	case "deadline_ms":
		return unixMs(c.deadline.time()), true
	case "module":
		return t.Module, true
	case "digest":
		return t.Digest, true
	case "handler":
		return handlerName(t), true
	case "trace_parent":
		return t.TraceParent, true
	}
	v, ok := t.Env[key]
	return v, ok
}

// unixMs formats a time in milliseconds since 1970; the zero time is "0".
func unixMs(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

func outputWrite(c *call, mem memory, stack []uint64) {
	if !c.describing && !c.hasTask() {
		c.endWithoutTask(mem.fn)
	}
	c.writeOutput(mem.read(stack[0], stack[1]))
	stack[0] = 0
}

func fail(c *call, mem memory, stack []uint64) {
	kind, retryAfter := abi.Status(int32(stack[0])), int64(stack[1])
	if (kind != abi.StatusRetryable && kind != abi.StatusPermanent) || retryAfter < 0 || retryAfter > maxRetryAfter.Milliseconds() {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	c.failure = &failure{
		permanent:  kind == abi.StatusPermanent,
		retryAfter: time.Duration(retryAfter) * time.Millisecond,
		code:       oneLineOrEmpty(mem.text(stack[2], stack[3], maxCode)),
		text:       oneLineOrEmpty(mem.text(stack[4], stack[5], maxMessage)),
	}
	stack[0] = 0
}

// maxRetryAfter is the longest retry delay that a handler can set.
const maxRetryAfter = 30 * 24 * time.Hour

func logLines(c *call, mem memory, stack []uint64) {
	level := runtime.Level(min(uint32(stack[0]), abi.LogError))
	c.log.Flush(runtime.LevelInfo)
	c.log.Write(level, mem.read(stack[1], stack[2]))
	c.log.Flush(level)
	c.pace()
	stack[0] = 0
}

// allowed checks a request against the grants. The service that sends the request checks
// again, for the address that it dials and for every redirect.
func (c *call) allowed(name string, r runtime.Request) abi.Errno {
	u, err := url.Parse(r.URL)
	if err != nil {
		return c.refused(name, fmt.Errorf("%w: the address is malformed", runtime.ErrInvalid))
	}
	if c.task.Grants.Request(r.Method, u) == nil {
		return c.refused(name, fmt.Errorf("%s: %w", printable(fmt.Sprintf("%.20s %.40s://%.200s%.200s", r.Method, u.Scheme, u.Host, u.EscapedPath())), runtime.ErrNotGranted))
	}
	for _, list := range r.Header {
		for _, value := range list {
			for _, m := range secretName.FindAllStringSubmatch(value, -1) {
				if !c.task.Grants.Secret(m[1]) {
					return c.refused(name, fmt.Errorf("%s: %w", printable(fmt.Sprintf("the secret %.60q", m[1])), runtime.ErrNotGranted))
				}
			}
		}
	}
	return 0
}

// secretName matches a placeholder that the host replaces in a header's value.
var secretName = regexp.MustCompile(`\{\{secret:([^{}]*)\}\}`)

func setProgress(c *call, mem memory, stack []uint64) {
	text := mem.read(stack[2], stack[3])
	c.progress.set(int64(stack[0]), int64(stack[1]), text[:min(len(text), maxMessage)])
	stack[0] = 0
}

func cancelled(c *call, _ memory, stack []uint64) { stack[0] = result(int32(c.cancelled())) }

func nowMs(_ *call, _ memory, stack []uint64) { stack[0] = uint64(time.Now().UnixMilli()) }

func random(c *call, mem memory, stack []uint64) {
	// ReadFull cannot fail: the source ends the guest instead.
	_, _ = io.ReadFull(randomSource{c}, mem.read(stack[0], stack[1]))
	stack[0] = 0
}

// randomSource returns random bytes in pieces and reads the clock between them, so that a
// request for a whole memory ends at the deadline.
type randomSource struct{ c *call }

const randomPiece = 64 << 10

func (s randomSource) Read(p []byte) (int, error) {
	if len(p) > randomPiece {
		p = p[:randomPiece]
		s.c.check(s.c.look())
	}
	return rand.Read(p)
}
