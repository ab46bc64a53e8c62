package wasm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// idleInstance takes the only idle instance out of the pool.
func idleInstance(t *testing.T, e *Engine) *instance {
	t.Helper()
	if n := e.pool.len(); n != 1 {
		t.Fatalf("%d idle instances, want 1", n)
	}
	inst := e.pool.get(e.pool.oldest.idle)
	t.Cleanup(func() { inst.close(context.Background()) })
	return inst
}

// TestWhatTheHostWritesIsSetBack makes every host function that writes to memory do so, at
// constant and at computed addresses. The guest itself stores nothing.
func TestWhatTheHostWritesIsSetBack(t *testing.T) {
	var names []string
	for i := range 13 {
		names = append(names, fmt.Sprint(i))
	}
	for i, name := range slices.Concat(names, names) {
		from := "writes"
		if i >= len(names) {
			from = "writesat"
		}
		t.Run(from+"/"+name, func(t *testing.T) {
			e := newEngine(t, Config{})
			digest := load(t, e, withHandlers(fixture(t, from), names...))
			r := e.Run(context.Background(), runtime.Task{
				Digest: digest, Handler: name, RunID: "the id of the run", Input: bytes.Repeat([]byte("input"), 1000),
			}, &recorder{})
			if r.Outcome != runtime.Succeeded {
				t.Fatalf("result = %+v", r)
			}
			inst := idleInstance(t, e)
			checkSetBack(t, inst)
		})
	}
}

// checkSetBack fails when an instance differs from the module's image.
func checkSetBack(t *testing.T, inst *instance) {
	t.Helper()
	for page, want := range inst.module.image.Load().pages {
		if want == nil {
			want = zeros[:]
		}
		if have := inst.view()[page*pageBytes:][:pageBytes]; !bytes.Equal(have, want) {
			t.Errorf("page %d was not set back", page)
		}
	}
	if chunks, lines := inst.takeMarks(); chunks != 0 || lines != 0 {
		t.Error("marks are left")
	}
}

// storing returns a reactor that stores to the given constant addresses, some of them
// across boundaries of lines, both in _initialize and, in a loop, in each task. It returns
// whether the last address still has the value from _initialize.
func storing(addresses []int64) []byte {
	stores := func(value int64) (b []byte) {
		for _, at := range addresses {
			b = wasmbinary.AppendS64(append(b, 0x41), at)
			b = wasmbinary.AppendS64(append(b, 0x42), value)
			b = append(b, 0x37, 0, 0)
		}
		return b
	}
	init := append([]byte{0}, append(stores(0x0101010101010101), 0x0b)...)
	handle := []byte{1, 2, 0x7f} // the count of iterations, and the result
	handle = wasmbinary.AppendS64(append(handle, 0x41), addresses[len(addresses)-1])
	handle = append(handle, 0x2d, 0, 0, 0x41, 1, 0x47, 0x21, 2, 0x03, 0x40)
	handle = append(append(handle, stores(0x0202020202020202)...), 0x20, 1, 0x41, 1, 0x6a, 0x22, 1, 0x41, 2, 0x49, 0x0d, 0, 0x0b, 0x20, 2, 0x0b)
	code := []byte("\x00asm\x01\x00\x00\x00")
	code = wasmbinary.AppendSection(code, wasmbinary.SectionType, []byte{2, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 0, 0})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionFunction, []byte{2, 0, 1})
	code = wasmbinary.AppendSection(code, wasmbinary.SectionMemory, []byte{1, 0, 2})
	exports := append(wasmbinary.AppendName([]byte{3}, "memory"), 2, 0)
	exports = append(wasmbinary.AppendName(exports, "wheelwork_handle"), 0, 0)
	exports = append(wasmbinary.AppendName(exports, "_initialize"), 0, 1)
	code = wasmbinary.AppendSection(code, wasmbinary.SectionExport, exports)
	bodies := wasmbinary.AppendU32([]byte{2}, uint32(len(handle)))
	bodies = wasmbinary.AppendU32(append(bodies, handle...), uint32(len(init)))
	return wasmbinary.AppendSection(code, wasmbinary.SectionCode, append(bodies, init...))
}

// TestConstantAddressesAreSetBack stores to fewer lines, and to more lines, than can have
// dirty bits.
func TestConstantAddressesAreSetBack(t *testing.T) {
	for _, n := range []int{1, 40, 63, 64, 65, 300} {
		var addresses []int64
		for i := range n {
			addresses = append(addresses, int64(i*388+61)) // some lie across a boundary
		}
		addresses = append(addresses, 128<<10-8) // the last bytes of the memory
		e := newEngine(t, Config{})
		digest := load(t, e, storing(addresses))
		for range 3 {
			if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); r.Outcome != runtime.Succeeded {
				t.Fatalf("%d addresses: result = %+v", n, r)
			}
		}
		inst := idleInstance(t, e)
		if at := inst.view()[128<<10-1]; at != 1 {
			t.Errorf("%d addresses: the last byte is %d and not what _initialize left", n, at)
		}
		checkSetBack(t, inst)
		if got := len(inst.module.marks.Lines); n < 40 && got > 4 || n > 64 && got != 64 {
			t.Errorf("%d addresses: %d lines have a mark", n, got)
		}
	}
}

// TestALineMayLieBehindTheMemory passes the host a buffer outside the memory. The host
// writes nothing to it, because the parameter does not exist.
func TestALineMayLieBehindTheMemory(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "beyond"))
	for range 2 {
		if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); r.Outcome != runtime.Succeeded {
			t.Fatalf("result = %+v", r)
		}
	}
	inst := idleInstance(t, e)
	if lines := inst.module.marks.Lines; len(lines) != 1 || int64(lines[0])*meter.LineBytes < inst.size() {
		t.Errorf("the lines with a mark are %d", lines)
	}
}

// counting returns a reactor that counts the calls of its instance, in memory and in a
// global, and returns the count.
func counting(t *testing.T, manifest string) []byte {
	t.Helper()
	return withSection(fixture(t, "count"), "wheelwork.manifest", manifest)
}

func TestReuse(t *testing.T) {
	for _, tt := range []struct {
		reuse string
		want  [3]uint32
		idle  int
	}{
		{"", [3]uint32{1, 1, 1}, 1},
		{"reset", [3]uint32{1, 1, 1}, 1},
		{"fresh", [3]uint32{1, 1, 1}, 0},
		{"shared", [3]uint32{1, 2, 3}, 1},
	} {
		e := newEngine(t, Config{})
		digest := load(t, e, counting(t, `{"handlers":[{"name":"main"}],"reuse":"`+tt.reuse+`"}`))
		for i, want := range tt.want {
			r := e.Run(context.Background(), runtime.Task{Digest: digest, App: "a"}, &recorder{})
			if got := u32(t, r.Output); got != want {
				t.Errorf("reuse %q: call %d counts %d, want %d", tt.reuse, i, got, want)
			}
		}
		if n := e.pool.len(); n != tt.idle {
			t.Errorf("reuse %q: %d idle instances, want %d", tt.reuse, n, tt.idle)
		}
	}
	_, err := Inspect(counting(t, `{"handlers":[{"name":"main"}],"reuse":"pooled"}`))
	if err == nil {
		t.Error("reuse pooled is accepted")
	}
}

// TestSharedInstancesServeOneAppAndGrant lets shared instances count. Another app, other
// grants or another limit must get a new instance; equal grants must not.
func TestSharedInstancesServeOneAppAndGrant(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, counting(t, `{"handlers":[{"name":"main"}],"reuse":"shared"}`))
	secret := func(name string) *runtime.Grants { return &runtime.Grants{Secrets: []string{name}} }
	for i, tt := range []struct {
		task runtime.Task
		want uint32
	}{
		{runtime.Task{App: "a"}, 1},
		{runtime.Task{App: "a"}, 2},
		{runtime.Task{App: "b"}, 1},
		{runtime.Task{App: "a", Grants: secret("x")}, 1},
		{runtime.Task{App: "a", Grants: secret("y")}, 1},
		{runtime.Task{App: "a", Grants: secret("x")}, 2}, // equal, though another pointer
		{runtime.Task{App: "a", Limits: runtime.Limits{MemoryBytes: 1 << 20}}, 1},
		{runtime.Task{App: "a"}, 3},
	} {
		tt.task.Digest = digest
		r := e.Run(context.Background(), tt.task, &recorder{})
		if got := u32(t, r.Output); got != tt.want {
			t.Errorf("task %d counts %d, want %d", i, got, tt.want)
		}
	}
}

func TestUnload(t *testing.T) {
	ctx := context.Background()
	e := newEngine(t, Config{})
	code := counting(t, `{"handlers":[{"name":"main"}]}`)
	digest := load(t, e, code)
	e.Run(ctx, runtime.Task{Digest: digest}, &recorder{})
	m := e.module(digest)
	task := runtime.Task{Digest: digest}
	running, err := e.reactor(guest.NewCall(ctx, &task, &recorder{}, &e.host), m, defaultMemoryBytes)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(ctx, task, &recorder{}) // a second instance, idle
	if err := e.Unload(ctx, digest); err != nil {
		t.Fatal(err)
	}
	if e.Loaded(digest) || e.pool.len() != 0 || e.pool.bytes != 0 || len(e.pool.stacks) != 0 {
		t.Errorf("loaded %t, %d idle instances, %d bytes, %d stacks", e.Loaded(digest), e.pool.len(), e.pool.bytes, len(e.pool.stacks))
	}
	if r := e.Run(ctx, task, &recorder{}); r.Code != "not_loaded" {
		t.Errorf("result = %+v", r)
	}
	e.recycle(ctx, running) // its task ends after the module was unloaded
	if e.pool.len() != 0 {
		t.Error("an instance of a module that is gone came back")
	}
	if err := e.Unload(ctx, digest); err != nil {
		t.Error(err)
	}
	load(t, e, code)
	if r := e.Run(ctx, task, &recorder{}); r.Outcome != runtime.Succeeded {
		t.Errorf("loaded again: %+v", r)
	}
}

// TestFuel runs a loop of known length with slightly less and slightly more fuel than it
// needs.
func TestFuel(t *testing.T) {
	e := newEngine(t, Config{})
	code := withHandlers(fixture(t, "count"), "main", "spin")
	digest := load(t, e, code)
	run := func(fuel int64) runtime.Result {
		return e.Run(context.Background(), runtime.Task{Digest: digest, Handler: "spin", Limits: runtime.Limits{Fuel: fuel}}, &recorder{})
	}
	least, most := int64(0), int64(100_000_000)
	if r := run(most); r.Outcome != runtime.Succeeded {
		t.Fatalf("result = %+v", r)
	}
	for most-least > 1 { // a million iterations of six instructions
		if mid := (least + most) / 2; run(mid).Outcome == runtime.Succeeded {
			most = mid
		} else {
			least = mid
		}
	}
	if most < 6_000_000 || most > 9_000_000 {
		t.Errorf("a million rounds need %d units", most)
	}
	for range 3 { // the same result with other slices
		if r := run(most - 1); r.Outcome != runtime.Permanent || r.Code != "fuel" || r.Error == "" {
			t.Errorf("one unit less: %+v", r)
		}
		if r := run(most); r.Outcome != runtime.Succeeded {
			t.Errorf("enough: %+v", r)
		}
	}
	if r := run(0); r.Outcome != runtime.Succeeded {
		t.Errorf("without a limit: %+v", r)
	}
}

func TestBudgetComesBack(t *testing.T) {
	for _, fuel := range []int32{0, 1, -1, 1 << 30, -1 << 30} {
		for _, stack := range []int64{0, 1, -1, 16 << 20, -100_000} {
			if f, s := meter.SplitBudget(meter.Budget(fuel, stack)); f != fuel || s != stack {
				t.Errorf("(%d, %d) came back as (%d, %d)", fuel, stack, f, s)
			}
		}
	}
}

// TestACachedModuleIsNotRewritten loads a module in two engines that share a directory. The
// second engine must use the rewritten module of the first one, unless the file is damaged
// or belongs to other limits.
func TestACachedModuleIsNotRewritten(t *testing.T) {
	dir := t.TempDir()
	code := counting(t, `{"handlers":[{"name":"main"},{"name":"spin"}],"reuse":"shared"}`)
	files := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "*", "rewritten", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	run := func(cfg Config) {
		t.Helper()
		cfg.CacheDir = dir
		e := newEngine(t, cfg)
		digest := load(t, e, code)
		for want := range uint32(2) { // shared: the cached file contains the manifest too
			if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); u32(t, r.Output) != want+1 {
				t.Errorf("result = %+v", r)
			}
		}
	}
	run(Config{})
	if n := len(files()); n != 1 {
		t.Fatalf("%d modules are kept, want 1", n)
	}
	kept := files()[0]
	before, err := os.Stat(kept)
	if err != nil {
		t.Fatal(err)
	}
	run(Config{})
	if after, err := os.Stat(kept); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was written again: %v", err)
	}
	if err := os.Truncate(kept, before.Size()/2); err != nil {
		t.Fatal(err)
	}
	run(Config{})
	if after, err := os.Stat(kept); err != nil || after.Size() != before.Size() {
		t.Errorf("a damaged one was not replaced: %v", err)
	}
	run(Config{StackBytes: 1 << 20})
	if n := len(files()); n != 2 {
		t.Errorf("%d modules are kept, want one for each limit of stack", n)
	}
}
