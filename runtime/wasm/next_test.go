package wasm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// The functions of a taker. The first three are also the indices of its table.
const (
	takerNext  = 0
	takerDone  = 1
	takerOther = 2
	takerWork  = 3 // counts down in a loop
	takerRun   = 4
)

// taker returns a module that imports job_next, job_done and another function. Its
// wheelwork_run calls them in a random order, directly or through its table, works a little
// between the calls, and may trap.
func taker(r *rand.Rand) []byte {
	var run []byte
	konst := func(v int64) { run = wasmbinary.AppendS64(append(run, 0x41), v) }
	open := false
	for range 3 + r.IntN(20) {
		f := byte(r.IntN(4))
		if f == takerDone && !open && r.IntN(20) > 0 { // a call of job_done here would end the guest
			f = takerNext
		}
		if f != takerWork && f != takerOther {
			open = f == takerNext
		}
		konst(int64(r.IntN(4)))
		switch {
		case f == takerWork:
			konst(int64(r.IntN(40)))
			run = append(run, 0x10, f, 0x1a, 0x1a)
		case r.IntN(3) == 0:
			konst(int64(f))
			run = append(run, 0x11, 0, 0, 0x1a)
		default:
			run = append(run, 0x10, f, 0x1a)
		}
	}
	switch r.IntN(4) {
	case 0:
		run = append(run, 0x00) // unreachable
	case 1: // a tail call
		konst(int64(r.IntN(3)))
		run = append(run, 0x12, byte(r.IntN(3)))
	}
	konst(0)
	run = append([]byte{0}, append(run, 0x0b)...)
	work := []byte{0, 0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x41, 0, 0x4a, 0x0d, 0, 0x0b, 0x20, 0, 0x0b}

	code := []byte("\x00asm\x01\x00\x00\x00")
	code = wasmbinary.AppendSection(code, wasmbinary.SectionType, []byte{1, 0x60, 1, 0x7f, 1, 0x7f})
	imports := []byte{3}
	for _, name := range []string{"job_next", "job_done", "other"} {
		imports = wasmbinary.AppendName(wasmbinary.AppendName(imports, "wheelwork_v1"), name)
		imports = append(imports, 0, 0)
	}
	code = wasmbinary.AppendSection(code, wasmbinary.SectionImport, imports)
	code = wasmbinary.AppendSection(code, wasmbinary.SectionFunction, []byte{2, 0, 0})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionTable, []byte{1, 0x70, 0, 3})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionMemory, []byte{1, 0, 1})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionExport, append(wasmbinary.AppendName([]byte{1}, "wheelwork_run"), 0, takerRun))
	code = wasmbinary.AppendSection(code, wasmbinary.SectionElement, []byte{1, 0, 0x41, 0, 0x0b, 3, takerNext, takerDone, takerOther})
	bodies := []byte{2}
	for _, body := range [][]byte{work, run} {
		bodies = append(wasmbinary.AppendU32(bodies, uint32(len(body))), body...)
	}
	return wasmbinary.AppendSection(code, wasmbinary.SectionCode, bodies)
}

// A witness is a host of takers that records the calls it receives. Like the real host it
// tracks whether a task is open, and ends a guest that calls job_done without a task.
type witness struct {
	seen []string
	left int // tasks
	open bool
}

func (w *witness) note(format string, args ...any) {
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

func (w *witness) next() uint64 {
	w.note("next %v", w.open)
	switch {
	case w.open:
		return api.EncodeI32(-28)
	case w.left == 0:
		return 2
	}
	w.left--
	w.open = true
	return 1
}

func (w *witness) done(status int32) {
	w.note("done %d %v", status, w.open)
	if !w.open {
		panic("there is no task")
	}
	w.open = false
}

// run returns the calls that a host receives from a taker in one of its forms.
func (w *witness) run(t *testing.T, code []byte) []string {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(inspect.Features))
	defer rt.Close(ctx)
	one, wide := []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64}
	host := func(module, name string, params, results []api.ValueType, f api.GoFunc) wazero.HostFunctionBuilder {
		return rt.NewHostModuleBuilder(module).NewFunctionBuilder().WithGoFunction(f, params, results).WithName(name)
	}
	build := func(b wazero.HostModuleBuilder) {
		if _, err := b.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	build(host("wheelwork_v1", "job_next", one, one, func(_ context.Context, s []uint64) { s[0] = w.next() }).Export("job_next").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) {
		w.done(int32(s[0]))
		s[0] = 0
	}), one, one).Export("job_done").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) { w.note("other %d %v", s[0], w.open) }), one, one).Export("other"))
	var mod api.Module
	budget := func() api.MutableGlobal { return mod.ExportedGlobal(meter.BudgetGlobal).(api.MutableGlobal) }
	build(host(meter.HostModule, meter.TickName, wide, wide, func(_ context.Context, s []uint64) {
		left, stack := meter.SplitBudget(s[0])
		w.note("tick %d %v", left, w.open)
		s[0] = meter.Budget(100, stack)
	}).Export(meter.TickName).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) {
		if s[1] != budget().Get() {
			t.Errorf("a guest with %x left says that it is %x", budget().Get(), s[1])
		}
		if s[0] >= meter.TaskEnded {
			w.done(int32(s[0]))
		}
		s[0] = w.next()
	}), []api.ValueType{api.ValueTypeI64, api.ValueTypeI64}, one).Export(meter.NextName))
	mod, err := rt.Instantiate(ctx, code)
	if err != nil {
		t.Fatal(err)
	}
	budget().Set(meter.Budget(100, inspect.DefaultLimits().StackBytes))
	_, err = mod.ExportedFunction("wheelwork_run").Call(ctx, 0)
	if taken := mod.ExportedGlobal(meter.BatchGlobal); taken != nil && taken.Get() >= meter.TaskEnded && w.open {
		w.done(int32(taken.Get()))
	}
	end := "returned"
	if err != nil {
		end, _, _ = strings.Cut(err.Error(), "\n")
	}
	left, _ := meter.SplitBudget(budget().Get())
	return append(w.seen, fmt.Sprintf("%s, %d left", end, left))
}

// TestAHostSeesTheSameOfATaker compares the form in which the guest reports the end of a
// task together with the request for the next one, and the form in which it reports the end
// at once.
func TestAHostSeesTheSameOfATaker(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]int{}
	for range 400 {
		m := parsed(t, taker(r))
		opts := inspect.DefaultLimits().Options()
		opts.Marks = r.IntN(2) == 0
		now := (&witness{left: 3}).run(t, meter.Rewrite(m, opts).Code)
		opts.Batch = meter.Batch{}
		want := (&witness{left: 3}).run(t, meter.Rewrite(m, opts).Code)
		if !slices.Equal(now, want) {
			t.Fatalf("the host sees\n%q\nof a guest that tells it at once\n%q", now, want)
		}
		for _, s := range now {
			kind, _, _ := strings.Cut(s, " ")
			seen[kind]++
		}
	}
	t.Logf("%v", seen)
	for _, kind := range []string{"next", "done", "other", "tick", "returned,", "wasm"} {
		if seen[kind] < 10 {
			t.Errorf("only %d of %q in %v", seen[kind], kind, seen)
		}
	}
}

// taking returns a reactor whose wheelwork_run takes one task, ends it with status 2 and
// then runs the given code.
func taking(end ...byte) []byte {
	code := []byte("\x00asm\x01\x00\x00\x00")
	code = wasmbinary.AppendSection(code, wasmbinary.SectionType, []byte{1, 0x60, 1, 0x7f, 1, 0x7f})
	imports := []byte{2}
	for _, name := range []string{"job_next", "job_done"} {
		imports = wasmbinary.AppendName(wasmbinary.AppendName(imports, "wheelwork_v1"), name)
		imports = append(imports, 0, 0)
	}
	code = wasmbinary.AppendSection(code, wasmbinary.SectionImport, imports)
	code = wasmbinary.AppendSection(code, wasmbinary.SectionFunction, []byte{2, 0, 0})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionMemory, []byte{1, 0, 1})
	exports := append(wasmbinary.AppendName([]byte{3}, "memory"), 2, 0)
	exports = append(wasmbinary.AppendName(exports, "wheelwork_handle"), 0, 2)
	exports = append(wasmbinary.AppendName(exports, "wheelwork_run"), 0, 3)
	code = wasmbinary.AppendSection(code, wasmbinary.SectionExport, exports)
	run := append([]byte{0, 0x41, 0, 0x10, 0, 0x1a, 0x41, 2, 0x10, 1, 0x1a}, append(end, 0x41, 0, 0x0b)...)
	bodies := append([]byte{2, 4, 0, 0x41, 0, 0x0b, byte(len(run))}, run...)
	return wasmbinary.AppendSection(code, wasmbinary.SectionCode, bodies)
}

// TestTheEndOfATaskIsHeard runs guests that request no second task, in instances that are
// reused. The task must get its status, and the instance must not remember it.
func TestTheEndOfATaskIsHeard(t *testing.T) {
	for name, code := range map[string][]byte{
		"returns":    taking(),
		"traps":      taking(0x00),
		"never ends": taking(0x03, 0x40, 0x0c, 0, 0x0b),
	} {
		for _, reuse := range []string{"reset", "shared"} {
			e := newEngine(t, Config{})
			digest := load(t, e, withSection(code, "wheelwork.manifest", `{"handlers":[{"name":"main","batch":true}],"reuse":"`+reuse+`"}`))
			for range 2 {
				var items []*runtime.Item
				for i := range 3 {
					task := runtime.Task{Digest: digest}
					if name == "never ends" && i > 0 { // behind the first, its time is the next one's, and runs out
						task.Deadline = within(attackTime)
					}
					items = append(items, &runtime.Item{Ctx: context.Background(), Sink: &recorder{}, Task: task})
				}
				e.RunBatch(items)
				first := items[0].Result
				if first.Outcome != runtime.Permanent || first.Code != guest.CodeStatus || first.Error != "the handler returned status 2" {
					t.Errorf("a %s guest that %s: %+v", reuse, name, first)
				}
				if name == "never ends" {
					continue
				}
				if second, third := items[1].Result, items[2].Result; second.Code != guest.CodeStatus || third.Outcome != runtime.Succeeded {
					t.Errorf("a %s guest that %s: then %+v and %+v", reuse, name, second, third)
				}
			}
		}
	}
}
