package wasm

import (
	"context"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// placeholders stand in for modules that were unloaded. The engine retains the code of
// all modules in one list. When it removes an entry it moves the following entries up, but
// leaves a reference to the last one behind the end of the list, until the next module is
// added there. A hundred megabytes of an interpreter could so stay until the process ends.
// Therefore each removed module is replaced by an almost empty one, and the list never
// becomes shorter, except while a module is loaded, which replaces a placeholder.
type placeholders struct {
	mu   sync.Mutex
	each []wazero.CompiledModule
}

// add puts a placeholder at the position of a module that was just closed.
func (p *placeholders) add(ctx context.Context, rt wazero.Runtime) error {
	// Code of a host module is not written to the cache of compiled code.
	placeholder, err := rt.NewHostModuleBuilder("filler").NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), nil, nil).Export("nothing").Compile(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each = append(p.each, placeholder)
	return nil
}

// take removes a placeholder before a module is added.
func (p *placeholders) take(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.each) - 1
	if n < 0 {
		return nil
	}
	last := p.each[n]
	p.each[n] = nil
	p.each = p.each[:n]
	return last.Close(ctx)
}
