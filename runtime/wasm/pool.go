package wasm

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// poolKey separates instances that must not stand in for one another.
type poolKey struct {
	module *module
	limit  int64 // bytes of memory
}

// instanceOverhead is roughly what an idle instance takes besides its memory.
const instanceOverhead = 32 << 10

// pool keeps idle instances, up to a number of bytes. The instance used last
// is used first again: its memory is warm. The one idle longest goes first.
type pool struct {
	mu    sync.Mutex
	max   int64
	bytes int64                       // invariant: sum of cost over idle
	idle  map[poolKey][]*list.Element // stacks, the youngest last
	byAge *list.List                  // of *instance, the youngest at the front
}

func newPool(maxBytes int64) *pool {
	return &pool{max: maxBytes, idle: make(map[poolKey][]*list.Element), byAge: list.New()}
}

func cost(inst *instance) int64 { return inst.size() + instanceOverhead }

func (p *pool) get(key poolKey) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	stack := p.idle[key]
	if len(stack) == 0 {
		return nil
	}
	return p.remove(key, len(stack)-1)
}

// remove takes the instance at place i out of the pool. The caller holds mu.
func (p *pool) remove(key poolKey, i int) *instance {
	stack := p.idle[key]
	inst := p.byAge.Remove(stack[i]).(*instance)
	copy(stack[i:], stack[i+1:])
	stack[len(stack)-1] = nil
	if p.idle[key] = stack[:len(stack)-1]; len(stack) == 1 {
		delete(p.idle, key)
	}
	p.bytes -= cost(inst)
	return inst
}

// put adds an instance and closes those for which there is no room any more.
func (p *pool) put(ctx context.Context, inst *instance) {
	for _, old := range p.add(inst) {
		_ = old.close(ctx) // frees memory; it has no error to tell
	}
}

func (p *pool) add(inst *instance) (evicted []*instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := poolKey{inst.module, inst.limit}
	p.idle[key] = append(p.idle[key], p.byAge.PushFront(inst))
	p.bytes += cost(inst)
	for p.bytes > p.max {
		oldest := p.byAge.Back().Value.(*instance)
		// The oldest of all is the oldest of its stack.
		evicted = append(evicted, p.remove(poolKey{oldest.module, oldest.limit}, 0))
	}
	return evicted
}

func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for p.byAge.Len() > 0 {
		oldest := p.byAge.Back().Value.(*instance)
		errs = append(errs, p.remove(poolKey{oldest.module, oldest.limit}, 0).close(ctx))
	}
	return errors.Join(errs...)
}
