package wasm

import (
	"context"
	"errors"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// fillers take the places of modules that were unloaded. The engine keeps the code
// of all modules in one list. When it takes one out it moves the others up, and what
// was last stays behind the end of the list, where nothing but the next module that
// is added ends its being referred to: a hundred megabytes of an interpreter may
// stay for as long as the process lives. So what is taken out is replaced by next to
// nothing, and the list is never shorter than it was, except while a module is
// loaded, which takes the place of a filler.
type fillers struct {
	mu   sync.Mutex
	each []wazero.CompiledModule
}

// add puts a filler into the place of what was just closed.
func (f *fillers) add(ctx context.Context, rt wazero.Runtime) error {
	// A module of the host: it is not written to the cache of compiled code.
	filler, err := rt.NewHostModuleBuilder("filler").NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), nil, nil).Export("nothing").Compile(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each = append(f.each, filler)
	return nil
}

// take makes room for a module.
func (f *fillers) take(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.each) - 1
	if n < 0 {
		return nil
	}
	last := f.each[n]
	f.each[n] = nil
	f.each = f.each[:n]
	return last.Close(ctx)
}

// closeCode gives back the code of a module and of what stands in for what it calls
// optional. Tasks that run keep what they need of both until they end.
func (e *Engine) closeCode(ctx context.Context, m *module) error {
	err := errors.Join(m.compiled.Close(ctx), e.fillers.add(ctx, e.rt))
	if m.stubs.compiled == nil {
		return err
	}
	return errors.Join(err, m.stubs.instance.Close(ctx), m.stubs.compiled.Close(ctx), e.fillers.add(ctx, e.rt))
}
