package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// metering compares metered guests with the same guests in the plain engine, which cannot
// stop them.
func (b *bench) metering(ctx context.Context) error {
	b.note("measure metering")
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx) //nolint:errcheck // frees memory
	if err := hostModules(ctx, rt); err != nil {
		return err
	}
	cUnmarked, err := wasm.WithManifest(cGuest, manifest("fresh"))
	if err != nil {
		return err
	}
	rustUnmarked, err := wasm.WithManifest(rustGuest, `{"handlers":[{"name":"main"}],"reuse":"fresh"}`)
	if err != nil {
		return err
	}
	for _, row := range []struct {
		name   string
		code   []byte
		export string
		n      uint64
		goal   *report.Goal
	}{
		{"metering/c/fnv", cGuest, "fnv", 200_000, report.AtMost(1.1)},
		{"metering/c/crc", cGuest, "crc", 200_000, report.AtMost(1.1)},
		{"metering/c/sort", cGuest, "sort", 4096, report.AtMost(2.5)},
		{"metering/c/fib", cGuest, "fib", 22, report.AtMost(2.5)},
		{"metering/rust/fnv", rustGuest, "fnv", 200_000, report.AtMost(1.1)},
		{"metering/rust/sort", rustGuest, "sort", 1024, report.AtMost(2.5)},
		{"metering/c/sort/unmarked", cUnmarked, "sort", 4096, nil},
		{"metering/rust/sort/unmarked", rustUnmarked, "sort", 1024, nil},
		{"metering/go/fnv", b.goReactor, "fnv", 200_000, report.AtMost(2.5)},
	} {
		plain, err := instance(ctx, rt, row.code, row.export, row.n)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		code, err := wasm.Metered(row.code)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		metered, err := instance(ctx, rt, code, row.export, row.n)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		took, err := b.best(ctx, metered, plain)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
		b.report.AddRatio(row.name, micros(took[0]), "us", "plain", micros(took[1]), row.goal)
	}
	return nil
}

// instance returns a job that calls an export of a new instance of a module.
func instance(ctx context.Context, rt wazero.Runtime, code []byte, export string, n uint64) (job, error) {
	mod, err := rt.InstantiateWithConfig(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	f := mod.ExportedFunction(export)
	if f == nil {
		return nil, fmt.Errorf("there is no export %s", export)
	}
	want := uint64(0)
	return func() error {
		r, err := f.Call(ctx, n)
		if err != nil {
			return err
		}
		if want == 0 {
			want = r[0]
		}
		if r[0] != want {
			return fmt.Errorf("%s(%d) is %d, then %d", export, n, want, r[0])
		}
		return nil
	}, nil
}

// slice is the fuel between two ticks, which a host grants a long-running guest.
const slice = 1_000_000

// hostModules provides the imports of the guests. It refills their fuel as a host does
// when it has no reason to stop them.
func hostModules(ctx context.Context, rt wazero.Runtime) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return err
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	none := api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = 0 })
	if _, err := rt.NewHostModuleBuilder("wheelwork_v1").
		NewFunctionBuilder().WithGoFunction(none, []api.ValueType{i64, i32, i32}, []api.ValueType{i32}).Export("input_read").
		NewFunctionBuilder().WithGoFunction(none, []api.ValueType{i32, i32}, []api.ValueType{i32}).Export("output_write").
		NewFunctionBuilder().WithGoFunction(none, []api.ValueType{i32}, []api.ValueType{i32}).Export("job_next").
		NewFunctionBuilder().WithGoFunction(none, []api.ValueType{i32}, []api.ValueType{i32}).Export("job_done").
		Instantiate(ctx); err != nil {
		return err
	}
	tick := api.GoFunc(func(_ context.Context, stack []uint64) {
		left := int64(int32(stack[0]))
		stack[0] = uint64(int64(stack[0]) - left + slice)
	})
	_, err := rt.NewHostModuleBuilder("wheelwork_meter").
		NewFunctionBuilder().WithGoFunction(tick, []api.ValueType{i64}, []api.ValueType{i64}).Export("tick").
		NewFunctionBuilder().WithGoFunction(none, []api.ValueType{i64, i64}, []api.ValueType{i32}).Export("next").
		Instantiate(ctx)
	return err
}
