package hostabi

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// Modules are the modules of one engine that guests import from.
type Modules struct {
	// withFiles is WASI, by version, for instances that have files. Such an instance runs one
	// task, so its changes to file descriptors affect no other task.
	withFiles map[string]api.Module
}

// Instantiate creates the modules in the engine. The engine closes them.
func (m *Modules) Instantiate(ctx context.Context, rt wazero.Runtime) error {
	_, err := wheelwork(rt).Instantiate(ctx)
	if err = errors.Join(err, InstantiateMeter(ctx, rt)); err != nil {
		return err
	}
	m.withFiles = make(map[string]api.Module)
	for _, version := range previews() {
		if _, err := wasi(rt, version, false).Instantiate(ctx); err != nil {
			return err
		}
		with, err := instantiateUnnamed(ctx, rt, wasi(rt, version, true))
		if err != nil {
			return err
		}
		m.withFiles[version] = with.instance
	}
	return nil
}

// Resolve replaces named modules for a guest: wheelwork_v1 by its stubs, and WASI by
// withFiles if it has files. stubs is nil if the guest has none.
func (m *Modules) Resolve(ctx context.Context, stubs *Stubs, files bool) context.Context {
	if stubs == nil && !files {
		return ctx
	}
	return experimental.WithImportResolver(ctx, func(name string) api.Module {
		switch {
		case name == abi.ImportModule && stubs != nil:
			return stubs.module.instance
		case files && m.withFiles[name] != nil:
			return m.withFiles[name]
		}
		return nil
	})
}

// A Stub replaces an optional import that this version does not serve. It returns the error
// "not served".
type Stub struct {
	Name            string
	Params, Results []byte // value types; one result, an i32 or an i64
}

// Stubs is an instance of wheelwork_v1 with stubs besides its functions.
type Stubs struct{ module unnamed }

// InstantiateStubs returns wheelwork_v1 with stubs. The caller must Close it.
func InstantiateStubs(ctx context.Context, rt wazero.Runtime, stubs []Stub) (*Stubs, error) {
	b := wheelwork(rt)
	for _, s := range stubs {
		answer := errno(abi.ErrnoNoSys)
		if s.Results[0] == i64 {
			answer = wide(answer)
		}
		// The stack has room for the result even without parameters.
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = answer }), s.Params, s.Results).Export(s.Name)
	}
	m, err := instantiateUnnamed(ctx, rt, b)
	if err != nil {
		return nil, err
	}
	return &Stubs{m}, nil
}

// Close removes the instance and its code.
func (s *Stubs) Close(ctx context.Context) error {
	return errors.Join(s.module.instance.Close(ctx), s.module.compiled.Close(ctx))
}

// An unnamed is a module of the host that guests cannot import by name.
type unnamed struct {
	compiled wazero.CompiledModule
	instance api.Module
}

func instantiateUnnamed(ctx context.Context, rt wazero.Runtime, b wazero.HostModuleBuilder) (m unnamed, err error) {
	if m.compiled, err = b.Compile(ctx); err != nil {
		return unnamed{}, err
	}
	if m.instance, err = rt.InstantiateModule(ctx, m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return unnamed{}, errors.Join(err, m.compiled.Close(ctx))
	}
	return m, nil
}

// wheelwork builds the module wheelwork_v1.
func wheelwork(rt wazero.Runtime) wazero.HostModuleBuilder {
	b := rt.NewHostModuleBuilder(abi.ImportModule)
	for _, f := range Functions() {
		if f.Name == "job_next" || f.Name == "job_done" { // called for each task of a batch
			b.NewFunctionBuilder().WithGoFunction(&plainFunction{f}, f.Params, f.Results).Export(f.Name)
		} else {
			b.NewFunctionBuilder().WithGoModuleFunction(&f, f.Params, f.Results).Export(f.Name)
		}
	}
	return b
}

// InstantiateMeter creates the module that only the rewritten code calls.
func InstantiateMeter(ctx context.Context, rt wazero.Runtime) error {
	tick := api.GoFunc(func(ctx context.Context, stack []uint64) {
		stack[0] = guest.CallFrom(ctx).Refill(stack[0])
	})
	next := api.GoFunc(func(ctx context.Context, stack []uint64) {
		stack[0] = result(guest.CallFrom(ctx).NextTask(stack[0], stack[1]))
	})
	_, err := rt.NewHostModuleBuilder(meter.HostModule).
		NewFunctionBuilder().WithGoFunction(tick, []api.ValueType{i64}, []api.ValueType{i64}).Export(meter.TickName).
		NewFunctionBuilder().WithGoFunction(next, []api.ValueType{i64, i64}, []api.ValueType{i32}).Export(meter.NextName).
		Instantiate(ctx)
	return err
}
