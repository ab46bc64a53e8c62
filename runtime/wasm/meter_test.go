package wasm

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// pair holds the plain and the metered form of a module.
type pair struct {
	rt             wazero.Runtime
	plain, metered api.Module
	call           *guest.Call
	marks          *marks // of the metered form; nil: none
	code           []byte // of the metered form
}

// newPair instantiates both forms. ok is false when the plain form cannot be instantiated.
func newPair(t *testing.T, rt wazero.Runtime, code []byte) (p pair, ok bool) {
	t.Helper()
	task := runtime.Task{Deadline: within(time.Minute)}
	c := guest.NewCall(context.Background(), &task, &recorder{}, &guest.Host{Slots: make(chan struct{}, 1)})
	cfg := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	parsed, err := wasmbinary.Parse(code, wasmbinary.DefaultLimits())
	if err != nil {
		return pair{}, false
	}
	plain, err := rt.InstantiateWithConfig(c, code, cfg)
	opts := inspect.DefaultLimits().Options()
	opts.Marks = true
	rewritten := meter.Rewrite(parsed, opts)
	metered, meteredErr := rt.InstantiateWithConfig(c, rewritten.Code, cfg)
	if (err == nil) != (meteredErr == nil) {
		t.Errorf("instantiate plain: %v, metered: %v", err, meteredErr)
	}
	return pair{rt, plain, metered, c, (*marks)(rewritten.Marks), rewritten.Code}, err == nil && meteredErr == nil
}

// memory returns a copy of the metered form's memory, or nil when the module has no dirty
// bits or the memory is large.
func (p pair) memory() []byte {
	if p.marks == nil || p.metered.Memory().Size() > 4<<20 {
		return nil
	}
	mem := p.metered.Memory()
	view, _ := mem.Read(0, mem.Size())
	return bytes.Clone(view)
}

// checkMarks fails when the metered form changed a byte without setting a dirty bit.
func (p pair) checkMarks(t *testing.T, name string, before []byte) {
	t.Helper()
	if before == nil {
		return
	}
	global := p.metered.ExportedGlobal(meter.MarksGlobal).(api.MutableGlobal)
	after := p.memory()
	if len(after) < len(before) {
		return // the memory has grown too large for a copy
	}
	lines := p.metered.ExportedGlobal(meter.LinesGlobal).(api.MutableGlobal)
	set := global.Get()
	global.Set(0)
	for marked := lines.Get(); marked != 0; marked &= marked - 1 {
		at := int(p.marks.Lines[bits.TrailingZeros64(marked)]) * meter.LineBytes
		copy(after[at:at+meter.LineBytes], before[min(at, len(before)):])
	}
	lines.Set(0)
	p.marks.each(set, len(before), func(at, end int) { copy(after[at:end], before[at:end]) })
	if !bytes.Equal(after[:len(before)], before) {
		t.Fatalf("%s changed memory without a mark: marks %b, chunks of %d", name, set, 1<<p.marks.Shift)
	}
}

// tooDeep is the engine's error for a guest that the host ended because of its stack.
const tooDeep = "calls are nested too deep for the stack: look for a recursion without end"

// trapped is the prefix in the description of a call that did not return.
const trapped = "trap: "

// invoke calls an export of one form and describes its result.
func (p pair) invoke(m api.Module, name string, args []uint64) string {
	p.call.Begin(context.Background(), p.call.Task, &recorder{}, &guest.Host{}) // forgets the end of the last call
	results, err := m.ExportedFunction(name).Call(p.call, args...)
	if err != nil {
		text := strings.TrimPrefix(oneline.First(err.Error()), "wasm error: ")
		return trapped + strings.Replace(text, tooDeep+" (recovered by wazero)", "stack overflow", 1)
	}
	return fmt.Sprint(results)
}

func (p pair) budget() api.MutableGlobal {
	return p.metered.ExportedGlobal(meter.BudgetGlobal).(api.MutableGlobal)
}

func specRuntime(t *testing.T) wazero.Runtime {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(inspect.Features))
	t.Cleanup(func() { rt.Close(ctx) })
	if err := hostabi.InstantiateMeter(ctx, rt); err != nil {
		t.Fatal(err)
	}
	return rt
}

// TestSpecModulesBehaveAlikeMetered runs the modules of the specification's test suite,
// which is part of the engine's source, in both forms. It calls every exported function
// with several arguments, one after another.
func TestSpecModulesBehaveAlikeMetered(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		testkit.Lacks(t, "needs the go command, which is not installed")
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	files := slices.Concat(glob(t, dir, "v2"), glob(t, dir, "tail-call"), glob(t, dir, "extended-const"))
	if len(files) == 0 {
		testkit.Lacks(t, "needs the engine's source with its specification tests, which is not installed")
	}
	rt := specRuntime(t)
	modules, calls := 0, 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, ok := newPair(t, rt, code)
			if !ok {
				return
			}
			modules++
			p.compareMemories(t)
			calls += p.compareExports(t)
			p.plain.Close(p.call)
			p.metered.Close(p.call)
		})
	}
	t.Logf("%d modules, %d calls", modules, calls)
	if modules < 500 || calls < 5000 {
		t.Errorf("only %d modules and %d calls compared", modules, calls)
	}
}

func glob(t *testing.T, dir, part string) []string {
	files, err := filepath.Glob(filepath.Join(dir, part, "testdata", "*.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// compareMemories compares the initial memories of both forms.
func (p pair) compareMemories(t *testing.T) {
	t.Helper()
	if metered := p.memory(); metered != nil {
		if plain, ok := p.plain.Memory().Read(0, uint32(len(metered))); !ok || !bytes.Equal(plain, metered) {
			t.Error("the forms start with different memories")
		}
	}
}

// TestSegmentsAreMerged compares the memories that data segments initialise, and counts the
// remaining segments.
func TestSegmentsAreMerged(t *testing.T) {
	active := func(at int64, text string) []byte {
		b := append(wasmbinary.AppendS64([]byte{0, 0x41}, at), 0x0b)
		return wasmbinary.AppendName(b, text)
	}
	passive := func(text string) []byte { return wasmbinary.AppendName([]byte{1}, text) }
	rt := specRuntime(t)
	for _, tt := range []struct {
		name     string
		segments [][]byte
		want     int
	}{
		{"adjacent", [][]byte{active(10, "one"), active(13, "two")}, 1},
		{"a small gap", [][]byte{active(10, "one"), active(40, "two")}, 1},
		{"a large gap", [][]byte{active(10, "one"), active(4000, "two")}, 2},
		{"falling", [][]byte{active(40, "two"), active(10, "one")}, 1},
		{"overlapping", [][]byte{active(10, "first"), active(12, "second")}, 2},
		{"overlapping and falling", [][]byte{active(12, "second"), active(10, "first")}, 2},
		{"the same twice", [][]byte{active(10, "first"), active(10, "again")}, 2},
		{"empty at the end", [][]byte{active(65530, "one"), active(65536, "")}, 1},
		{"up to the end", [][]byte{active(65500, "one"), active(65533, "end")}, 1},
		{"out of bounds", [][]byte{active(65500, "one"), active(65534, "end")}, 0},
		{"empty out of bounds", [][]byte{active(65500, "one"), active(65537, "")}, 0},
		{"a negative address", [][]byte{active(10, "one"), active(-100, "two")}, 0},
		{"passive", [][]byte{active(10, "one"), passive("two")}, 2},
	} {
		code := []byte("\x00asm\x01\x00\x00\x00")
		code = wasmbinary.AppendSection(code, wasmbinary.SectionMemory, []byte{1, 0, 1})
		code = wasmbinary.AppendSection(code, wasmbinary.SectionExport, append(wasmbinary.AppendName([]byte{1}, "memory"), 2, 0))
		code = wasmbinary.AppendSection(code, wasmbinary.SectionData, slices.Concat([]byte{byte(len(tt.segments))}, slices.Concat(tt.segments...)))
		p, ok := newPair(t, rt, code)
		if ok != (tt.want > 0) {
			t.Errorf("%s: instantiated %t", tt.name, ok)
		}
		if !ok {
			continue
		}
		p.compareMemories(t)
		if have := len(parsed(t, p.code).Data); have != tt.want {
			t.Errorf("%s: %d segments, want %d", tt.name, have, tt.want)
		}
	}
}

func parsed(t *testing.T, code []byte) *wasmbinary.Module {
	t.Helper()
	m, err := wasmbinary.Parse(code, wasmbinary.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// compareExports calls each exported function in both forms.
func (p pair) compareExports(t *testing.T) (calls int) {
	defs := p.plain.ExportedFunctionDefinitions()
	names := make([]string, 0, len(defs))
	for name := range defs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		def := defs[name]
		if !numbersOnly(def.ParamTypes()) || !numbersOnly(def.ResultTypes()) {
			continue
		}
		for _, arg := range []uint64{0, 1, 5, 0xff} {
			args := slices.Repeat([]uint64{arg}, len(def.ParamTypes()))
			p.call.Task.Deadline = within(100 * time.Millisecond)
			before := p.memory()
			metered := p.invoke(p.metered, name, args)
			if !strings.HasPrefix(metered, trapped) {
				p.checkMarks(t, name, before)
			}
			if strings.Contains(metered, overdue) {
				return calls // the plain form would never return
			}
			calls++
			if plain := p.invoke(p.plain, name, args); plain != metered {
				t.Errorf("%s(%d): plain %s, metered %s", name, arg, plain, metered)
			}
			if _, left := meter.SplitBudget(p.budget().Get()); left != inspect.DefaultLimits().StackBytes && !strings.HasPrefix(metered, trapped) {
				t.Fatalf("%s(%d): %d bytes of stack are left of %d", name, arg, left, inspect.DefaultLimits().StackBytes)
			}
			if strings.HasPrefix(metered, trapped) { // as its host would discard it
				p.budget().Set(meter.Budget(0, inspect.DefaultLimits().StackBytes))
			}
		}
	}
	return calls
}

func numbersOnly(types []api.ValueType) bool {
	return !slices.ContainsFunc(types, func(t api.ValueType) bool { return t < api.ValueTypeF64 || t > api.ValueTypeI32 })
}

// TestBulkOperationsBehaveAlikeMetered compares chunked fills and copies with
// the plain instructions, around the size of a chunk and of the memory.
func TestBulkOperationsBehaveAlikeMetered(t *testing.T) {
	p, ok := newPair(t, specRuntime(t), fixture(t, "bulk"))
	if !ok {
		t.Fatal("the fixture cannot be instantiated")
	}
	const chunk, size = 256 << 10, 32 * 64 << 10
	for i := range uint32(size / 4) { // so that a copy in the wrong order is detected
		p.plain.Memory().WriteUint32Le(i*4, i*2654435761)
		p.metered.Memory().WriteUint32Le(i*4, i*2654435761)
	}
	lengths := []uint64{0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 3*chunk + 7, size - 10, size - 3, size, size + 1, 1<<32 - 1}
	for _, n := range lengths {
		for _, pos := range [][2]uint64{{0, 3}, {3, 0}, {0, chunk}, {chunk, 0}, {5, 5}, {chunk + 9, chunk}, {1, size - chunk}} {
			for _, name := range []string{"copy", "fill"} {
				args := []uint64{pos[0], pos[1], n}
				before := p.memory()
				plain, metered := p.invoke(p.plain, name, args), p.invoke(p.metered, name, args)
				if metered == "[]" {
					p.checkMarks(t, name, before)
				}
				if plain != metered {
					t.Errorf("%s(%d): plain %s, metered %s", name, args, plain, metered)
				}
				if name == "fill" && n > size/2 {
					continue // would leave the memory too uniform to check copies
				}
				a, _ := p.plain.Memory().Read(0, size)
				b, _ := p.metered.Memory().Read(0, size)
				if !bytes.Equal(a, b) {
					t.Fatalf("%s(%d): memories differ", name, args)
				}
			}
		}
	}
}

func TestTracesNameTheRightFunction(t *testing.T) {
	name := wasmbinary.AppendSection(nil, 1, append(wasmbinary.AppendName([]byte{1, 0}, "boom"), []byte{}...))
	code := withSection(assemble([]byte{0, 0x00, 0x0b}), "name", string(name))
	e := newEngine(t, Config{})
	r := e.Run(context.Background(), runtime.Task{Digest: load(t, e, code)}, &recorder{})
	if r.Code != "trap" || !strings.Contains(r.Trace, "boom") {
		t.Errorf("result = %+v", r)
	}
}

// TestChargeIsWhatRuns counts down in a loop of six instructions, including its end, with a
// check at its head.
func TestChargeIsWhatRuns(t *testing.T) {
	code := assemble([]byte{
		0, 0x03, 0x40, // loop
		0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, // local 0 = local 0 - 1, repeat unless it is 0
		0x0b, 0x20, 0, 0x0b,
	})
	p, ok := newPair(t, specRuntime(t), code)
	if !ok {
		t.Fatal("the module cannot be instantiated")
	}
	for _, n := range []uint64{1, 10, 1000} {
		const full = 1 << 30
		p.budget().Set(meter.Budget(full, inspect.DefaultLimits().StackBytes))
		if got := p.invoke(p.metered, "wheelwork_handle", []uint64{n}); got != "[0]" {
			t.Fatal(got)
		}
		left, _ := meter.SplitBudget(p.budget().Get())
		if charged := uint64(full - left); charged < 6*n || charged > 7*n+10 {
			t.Errorf("%d rounds cost %d units, want 6 to 7 for each", n, charged)
		}
	}
}

// TestChargeOfBytes fills and copies memory. A quarter unit is charged per byte, at lengths
// around those of the chunks, too.
func TestChargeOfBytes(t *testing.T) {
	grow := []byte{0, 0x41, 31, 0x40, 0, 0x1a} // to 2 MiB
	fill := []byte{0x41, 0, 0x41, 7, 0x20, 0, 0xfc, 0x0b, 0, 0x41, 0, 0x0b}
	forth := []byte{0x41, 0, 0x41, 8, 0x20, 0, 0xfc, 0x0a, 0, 0, 0x41, 0, 0x0b}
	back := []byte{0x41, 8, 0x41, 0, 0x20, 0, 0xfc, 0x0a, 0, 0, 0x41, 0, 0x0b}
	const chunk = 256 << 10
	for name, body := range map[string][]byte{"fill": fill, "copy forwards": forth, "copy backwards": back} {
		p, ok := newPair(t, specRuntime(t), assemble(slices.Concat(grow, body)))
		if !ok {
			t.Fatal("the module cannot be instantiated")
		}
		for _, n := range []uint64{0, 4, chunk - 4, chunk, chunk + 4, 3 * chunk, 5*chunk + 400} {
			const full = 1 << 30
			p.budget().Set(meter.Budget(full, inspect.DefaultLimits().StackBytes))
			if got := p.invoke(p.metered, "wheelwork_handle", []uint64{n}); got != "[0]" {
				t.Fatal(got)
			}
			left, _ := meter.SplitBudget(p.budget().Get())
			if charged := uint64(full - left); charged < n/4 || charged > n/4+400 {
				t.Errorf("%s of %d bytes cost %d units, want %d and a few", name, n, charged, n/4)
			}
		}
	}
}

// TestChargesOfCallees calls functions in loops. Afterwards their cost must be missing from
// the budget, wherever the budget was held, and the stack must be returned.
func TestChargesOfCallees(t *testing.T) {
	p, ok := newPair(t, specRuntime(t), fixture(t, "calls"))
	if !ok {
		t.Fatal("the module cannot be instantiated")
	}
	const n = 100
	const least, most = 20 * 6, 20*7 + 10 // cost of one call of the callee
	for _, tt := range []struct {
		name        string
		arg         uint64
		least, most uint64
	}{
		{"one", n, n * (least + 6), n * (most + 20)},
		{"many", n, n * (3*least + 8), n * (3*most + 40)},
		{"deep", 12, 233 * 8, 233 * 60}, // it is called 233 times
	} {
		const full = 1 << 30
		p.budget().Set(meter.Budget(full, inspect.DefaultLimits().StackBytes))
		if got := p.invoke(p.metered, tt.name, []uint64{tt.arg}); got != "[0]" {
			t.Fatal(got)
		}
		left, stack := meter.SplitBudget(p.budget().Get())
		if charged := uint64(full - left); charged < tt.least || charged > tt.most {
			t.Errorf("%s cost %d units, want %d to %d", tt.name, charged, tt.least, tt.most)
		}
		if stack != inspect.DefaultLimits().StackBytes {
			t.Errorf("%s left %d bytes of stack, want %d", tt.name, stack, inspect.DefaultLimits().StackBytes)
		}
	}
}

// TestFuelDoesNotDependOnSlices gives guests their fuel at once, and in slices so small
// that they call tick in most iterations of their loops.
func TestFuelDoesNotDependOnSlices(t *testing.T) {
	given := assemble([]byte{ // a loop with a parameter, which each iteration passes on
		0, 0x20, 0, 0x03, 0, 0x41, 1, 0x6b, 0x22, 0, 0x20, 0, 0x0d, 0, 0x0b, 0x0b,
	})
	nested := assemble([]byte{ // nested loops
		1, 1, 0x7f, 0x03, 0x40, 0x41, 5, 0x21, 1,
		0x03, 0x40, 0x20, 1, 0x41, 1, 0x6b, 0x22, 1, 0x0d, 0, 0x0b,
		0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x20, 0, 0x0b,
	})
	for _, tt := range []struct {
		name string
		code []byte
		arg  uint64
	}{
		{"wheelwork_handle", given, 50},
		{"wheelwork_handle", nested, 20},
		{"one", fixture(t, "calls"), 20},
		{"many", fixture(t, "calls"), 20},
		{"deep", fixture(t, "calls"), 7},
	} {
		var used []int64
		for _, slice := range []int64{1 << 30, 1000, 7, 1} {
			ctx := context.Background()
			rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(inspect.Features))
			granted, ticks := slice, 0
			_, err := rt.NewHostModuleBuilder(meter.HostModule).NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) {
				left, stack := meter.SplitBudget(s[0])
				if left >= 0 {
					t.Errorf("%s asks for more with %d left", tt.name, left)
				}
				granted += slice - int64(left)
				ticks++
				s[0] = meter.Budget(int32(slice), stack)
			}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).Export(meter.TickName).Instantiate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			mod, err := rt.Instantiate(ctx, meter.Rewrite(parsed(t, tt.code), inspect.DefaultLimits().Options()).Code)
			if err != nil {
				t.Fatal(err)
			}
			budget := mod.ExportedGlobal(meter.BudgetGlobal).(api.MutableGlobal)
			budget.Set(meter.Budget(int32(slice), inspect.DefaultLimits().StackBytes))
			if _, err := mod.ExportedFunction(tt.name).Call(ctx, tt.arg); err != nil {
				t.Fatal(err)
			}
			left, stack := meter.SplitBudget(budget.Get())
			if stack != inspect.DefaultLimits().StackBytes {
				t.Errorf("%s left %d bytes of stack, want %d", tt.name, stack, inspect.DefaultLimits().StackBytes)
			}
			if slice == 1 && ticks < int(tt.arg) {
				t.Errorf("%s asked %d times", tt.name, ticks)
			}
			used = append(used, granted-int64(left))
			rt.Close(ctx)
		}
		if slices.Min(used) != slices.Max(used) || used[0] <= 0 {
			t.Errorf("%s used %v", tt.name, used)
		}
	}
}
