package wasm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64

	maxCode    = 128     // bytes of an error code
	maxMessage = 4 << 10 // bytes of an error or progress message
)

// A hostFunction is one import of wheelwork_v1. fn reads its parameters from
// the stack and puts its result there.
type hostFunction struct {
	name            string
	params, results []api.ValueType
	task            bool // needs a task, so _initialize may not call it
	fn              func(c *call, mem memory, stack []uint64)
}

// hostFunctions is the whole of wheelwork_v1, in the order of wheelwork.wit.
func hostFunctions() []hostFunction {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	return []hostFunction{
		{"input_len", nil, types(i64), true, inputLen},
		{"input_read", types(i64, i32, i32), types(i32), true, inputRead},
		{"param_get", types(i32, i32, i32, i32), types(i32), true, paramGet},
		{"output_write", types(i32, i32), types(i32), true, outputWrite},
		{"fail", types(i32, i64, i32, i32, i32, i32), types(i32), true, fail},
		{"log", types(i32, i32, i32), types(i32), false, logLines},
		{"progress", types(i64, i64, i32, i32), types(i32), true, setProgress},
		{"cancelled", nil, types(i32), true, cancelled},
		{"now_ms", nil, types(i64), false, nowMs},
		{"random", types(i32, i32), types(i32), false, random},
	}
}

// instantiateHost builds the modules that guests import from.
func instantiateHost(ctx context.Context, rt wazero.Runtime) error {
	return errors.Join(instantiateWASI(ctx, rt), instantiateFiles(ctx, rt), instantiateWheelwork(ctx, rt), instantiateQuick(ctx, rt), instantiateMeter(ctx, rt))
}

func instantiateWheelwork(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(abi.ImportModule)
	for _, f := range hostFunctions() {
		b.NewFunctionBuilder().WithGoModuleFunction(f.goFunc(), f.params, f.results).Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

func (f hostFunction) goFunc() api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		c := callFrom(ctx)
		if f.task && c.starting {
			c.endf("%s was called in %s, where there is no task yet", f.name, abi.ExportInit)
		}
		f.fn(c, memory{c, f.name, mod.Memory()}, stack)
	}
}

func instantiateMeter(ctx context.Context, rt wazero.Runtime) error {
	tick := api.GoFunc(func(ctx context.Context, stack []uint64) {
		c := callFrom(ctx)
		if int64(stack[0]) < 0 {
			c.end(errCallDepth)
		}
		stack[0] = uint64(c.tick())
	})
	_, err := rt.NewHostModuleBuilder(meter.HostModule).NewFunctionBuilder().
		WithGoFunction(tick, []api.ValueType{i64}, []api.ValueType{i64}).Export(meter.TickName).
		Instantiate(ctx)
	return err
}

// instantiateFiles serves all of WASI, with files that can be closed, to
// interpreters: they open the sources of the script, in an instance that serves
// one task. The module's name is as long as the one that it stands in for.
func instantiateFiles(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(filesModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	_, err := b.Instantiate(ctx)
	return err
}

const filesModule = "wasi_interpreter_files"

// withFiles makes an interpreter's imports those of instantiateFiles. Only known
// interpreters get them, whose imports have the name in no other place.
func withFiles(imports []byte) []byte {
	return bytes.ReplaceAll(imports, []byte(wasi_snapshot_preview1.ModuleName), []byte(filesModule))
}

// WASI error numbers.
const (
	wasiOK    = 0
	wasiBadFD = 8
)

// instantiateWASI serves WASI preview 1. Closing or moving a standard stream
// has no effect: it would outlive the task in an instance that is used again.
func instantiateWASI(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		stack[0] = standardStream(stack[0])
	}), []api.ValueType{i32}, []api.ValueType{i32}).Export("fd_close")
	b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		stack[0] = max(standardStream(stack[0]), standardStream(stack[1]))
	}), []api.ValueType{i32, i32}, []api.ValueType{i32}).Export("fd_renumber")
	_, err := b.Instantiate(ctx)
	return err
}

// standardStream is the result for a file descriptor: guests have only three.
func standardStream(fd uint64) uint64 {
	if uint32(fd) <= 2 {
		return wasiOK
	}
	return wasiBadFD
}

// memory is a guest's memory as one host function sees it: a range outside it
// ends the guest.
type memory struct {
	c    *call
	fn   string
	view api.Memory
}

// read returns a view of the guest's memory, valid until the guest runs again.
func (m memory) read(ptr, n uint64) []byte {
	if m.view != nil {
		if b, ok := m.view.Read(uint32(ptr), uint32(n)); ok {
			return b
		}
	}
	m.c.endf("%s: range %d+%d is outside the memory", m.fn, uint32(ptr), uint32(n))
	return nil
}

// text copies a string that may not be longer than limit; what is too long is cut.
func (m memory) text(ptr, n uint64, limit int) string {
	b := m.read(ptr, n)
	return string(b[:min(len(b), limit)])
}

// give writes src to a buffer of the guest and returns src's full length.
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

// param looks up what a task tells about itself, then the job's environment.
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
	case "deadline_ms":
		return unixMs(c.deadline), true
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

// unixMs is "0" for the zero time.
func unixMs(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

func outputWrite(c *call, mem memory, stack []uint64) {
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

// maxRetryAfter is the longest delay that a handler can ask for.
const maxRetryAfter = 30 * 24 * time.Hour

func logLines(c *call, mem memory, stack []uint64) {
	level := runtime.Level(min(uint32(stack[0]), abi.LogError))
	c.log.Flush(runtime.LevelInfo)
	c.log.Write(level, mem.read(stack[1], stack[2]))
	c.log.Flush(level)
	stack[0] = 0
}

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

// randomSource gives random bytes in pieces and looks at the clock between
// them, so that a request for a whole memory does not outlast the deadline.
type randomSource struct{ c *call }

const randomPiece = 64 << 10

func (s randomSource) Read(p []byte) (int, error) {
	if len(p) > randomPiece {
		p = p[:randomPiece]
		s.c.check(time.Now())
	}
	return rand.Read(p)
}
