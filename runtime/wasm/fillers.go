package wasm

import (
	"context"
	"errors"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// fillers are placeholders for modules that were unloaded. The engine retains the code of
// all modules in one list. When it removes an entry it moves the following entries up, but
// leaves a reference to the last one behind the end of the list, until the next module is
// added there. A hundred megabytes of an interpreter could so stay until the process ends.
// Therefore each removed module is replaced by an almost empty one, and the list never
// becomes shorter, except while a module is loaded, which replaces a placeholder.
type fillers struct {
	mu   sync.Mutex
	each []wazero.CompiledModule
}

// add puts a placeholder at the position of a module that was just closed.
func (f *fillers) add(ctx context.Context, rt wazero.Runtime) error {
	// Code of a host module is not written to the cache of compiled code.
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

// take removes a placeholder before a module is added.
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

// closeCode releases the code of a module and of its stubs. Running tasks retain the code
// that they use until they end.
func (e *Engine) closeCode(ctx context.Context, m *module) error {
	err := errors.Join(m.compiled.Close(ctx), e.fillers.add(ctx, e.rt))
	if m.stubs.compiled == nil {
		return err
	}
	return errors.Join(err, m.stubs.instance.Close(ctx), m.stubs.compiled.Close(ctx), e.fillers.add(ctx, e.rt))
}
