package wasm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// silent is a sink that drops everything.
type silent struct{}

func (silent) Log(runtime.Level, []byte)     {}
func (silent) Progress(int64, int64, string) {}

func benchmarkRun(b *testing.B, e *Engine, task runtime.Task) {
	ctx := context.Background()
	task.Deadline = within(time.Hour)
	if r := e.Run(ctx, task, silent{}); r.Outcome != runtime.Succeeded {
		b.Fatalf("result = %+v", r)
	}
	b.ReportAllocs()
	for b.Loop() {
		e.Run(ctx, task, silent{})
	}
}

// BenchmarkWarm runs a whole task on an instance that is reset after it.
func BenchmarkWarm(b *testing.B) {
	b.Run("wat/128KiB", func(b *testing.B) {
		e := newEngine(b, Config{})
		digest := load(b, e, withHandlers(fixture(b, "host"), hostHandlers...))
		benchmarkRun(b, e, runtime.Task{Digest: digest, Handler: "echo", Input: make([]byte, 64)})
	})
	b.Run("go", func(b *testing.B) {
		e := newEngine(b, Config{})
		digest := load(b, e, buildGo(b, "../../examples/progress", "-buildmode=c-shared"))
		benchmarkRun(b, e, runtime.Task{Digest: digest, Input: []byte("0")})
	})
}

// BenchmarkCall measures the begin of a task and the guest's call, without the reset.
func BenchmarkCall(b *testing.B) {
	e := newEngine(b, Config{})
	digest := load(b, e, withHandlers(fixture(b, "host"), hostHandlers...))
	m := e.module(digest)
	task := runtime.Task{Digest: digest, Input: make([]byte, 64), Deadline: within(time.Hour)}
	c := guest.NewCall(context.Background(), &task, silent{}, &e.host)
	inst, err := e.reactor(c, m, defaultMemoryBytes)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.Begin(context.Background(), &task, silent{}, &e.host)
		inst.arm(c, inspect.DefaultLimits().StackBytes)
		inst.params[0] = 0
		if err := inst.handle.CallWithStack(c, inst.params[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReset measures the reset of an instance that the task did not change.
func BenchmarkReset(b *testing.B) {
	e := newEngine(b, Config{})
	digest := load(b, e, withHandlers(fixture(b, "host"), hostHandlers...))
	task := runtime.Task{Digest: digest}
	c := guest.NewCall(context.Background(), &task, silent{}, &e.host)
	inst, err := e.reactor(c, e.module(digest), defaultMemoryBytes)
	if err != nil {
		b.Fatal(err)
	}
	im := inst.module.image.Load()
	b.SetBytes(inst.size())
	for b.Loop() {
		inst.restore(im)
	}
}

// BenchmarkFresh runs a whole task in a new instance.
func BenchmarkFresh(b *testing.B) {
	b.Run("wat", func(b *testing.B) {
		e := newEngine(b, Config{})
		benchmarkRun(b, e, runtime.Task{Digest: load(b, e, fixture(b, "args"))})
	})
	b.Run("go", func(b *testing.B) {
		e := newEngine(b, Config{})
		digest := load(b, e, buildGo(b, "../../examples/totals"))
		benchmarkRun(b, e, runtime.Task{Digest: digest, Input: []byte("customer,item,quantity,price\n")})
	})
}

// buildGo compiles a Go package to WebAssembly.
func buildGo(tb testing.TB, dir string, flags ...string) []byte {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "out.wasm")
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-trimpath", "-ldflags=-s -w", "-o", file, ".")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", dir, err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return code
}
