package wasm

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// poolKey separates instances that must not replace each other.
type poolKey struct {
	module *module
	limit  int64 // bytes of memory
	app    string
	grants string // equal for equal grants
}

// instanceOverhead is the approximate number of bytes of an idle instance besides its
// linear memory.
const instanceOverhead = 32 << 10

// idleStack has the idle instances of one key, the youngest last.
type idleStack struct {
	key   poolKey
	stack []*instance
	known bool // invariant: true if pool.stacks has it; guarded by the pool's lock
}

// pool retains idle instances, up to a number of bytes over all keys. It hands out the
// instance of a key that was used last, whose memory is warm, and evicts the instance
// that has been idle longest.
type pool struct {
	mu     sync.Mutex
	max    int64
	bytes  int64                  // invariant: sum of cost over idle
	stacks map[poolKey]*idleStack // all with idle instances, and some without

	youngest, oldest *instance // ends of the list by age, linked by younger and older
}

func newPool(maxBytes int64) *pool {
	return &pool{max: maxBytes, stacks: make(map[poolKey]*idleStack)}
}

func cost(inst *instance) int64 { return inst.size() + instanceOverhead }

// fits reports whether an empty pool has room for an instance.
func (p *pool) fits(inst *instance) bool { return cost(inst) <= p.max }

// stackOf returns the stack of a key, and creates it if necessary.
func (p *pool) stackOf(key poolKey) *idleStack {
	if last := key.module.last.Load(); last != nil && last.key == key {
		return last
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.stacks[key]
	if at == nil {
		if len(p.stacks) >= maxStacks {
			p.sweep()
		}
		at = &idleStack{key: key, known: true}
		p.stacks[key] = at
	}
	key.module.last.Store(at)
	return at
}

// maxStacks is the number of stacks from which the pool removes empty ones.
const maxStacks = 1024

// sweep removes empty stacks. A running instance adds its stack again when it becomes
// idle. The caller holds mu.
func (p *pool) sweep() {
	maps.DeleteFunc(p.stacks, func(_ poolKey, at *idleStack) bool {
		at.known = len(at.stack) > 0
		return !at.known
	})
}

// get removes and returns the youngest instance of a stack, or nil.
func (p *pool) get(at *idleStack) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(at.stack)
	if n == 0 {
		return nil
	}
	inst := at.stack[n-1]
	p.remove(inst, n-1)
	return inst
}

// remove removes an instance, number i of its stack, from the pool. The caller holds mu.
func (p *pool) remove(inst *instance, i int) {
	at := inst.idle
	copy(at.stack[i:], at.stack[i+1:])
	at.stack[len(at.stack)-1] = nil
	at.stack = at.stack[:len(at.stack)-1]
	if inst.older != nil {
		inst.older.younger = inst.younger
	} else {
		p.oldest = inst.younger
	}
	if inst.younger != nil {
		inst.younger.older = inst.older
	} else {
		p.youngest = inst.older
	}
	inst.older, inst.younger = nil, nil
	p.bytes -= cost(inst)
}

// evict removes the instance that has been idle longest, which is the oldest of its
// stack too, and the stack if it is empty then. The caller holds mu.
func (p *pool) evict() *instance {
	inst := p.oldest
	p.remove(inst, 0)
	if at := inst.idle; len(at.stack) == 0 && at.known {
		at.known = false
		delete(p.stacks, at.key)
	}
	return inst
}

// put adds an instance and closes the instances that it displaces.
func (p *pool) put(ctx context.Context, inst *instance) {
	for _, old := range p.add(inst) {
		_ = old.close(ctx) // frees memory; it has no error to tell
	}
}

func (p *pool) add(inst *instance) (evicted []*instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := inst.idle
	if inst.module.gone || !p.fits(inst) {
		return []*instance{inst}
	}
	if !at.known { // the stack was removed while the instance ran
		if known := p.stacks[at.key]; known == nil {
			p.stacks[at.key], at.known = at, true
		} else {
			inst.idle, at = known, known
			inst.module.last.Store(known)
		}
	}
	at.stack = append(at.stack, inst)
	if inst.older = p.youngest; inst.older != nil {
		inst.older.younger = inst
	} else {
		p.oldest = inst
	}
	p.youngest = inst
	p.bytes += cost(inst)
	for p.bytes > p.max {
		evicted = append(evicted, p.evict())
	}
	return evicted
}

// len returns the number of idle instances.
func (p *pool) len() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.stacks {
		n += len(at.stack)
	}
	return n
}

// drop closes the idle instances of a module. Its running instances are closed later, when
// they would become idle.
func (p *pool) drop(ctx context.Context, m *module) error {
	p.mu.Lock()
	m.gone = true
	var closing []*instance
	for key, at := range p.stacks {
		if key.module != m {
			continue
		}
		for len(at.stack) > 0 {
			inst := at.stack[0]
			p.remove(inst, 0)
			closing = append(closing, inst)
		}
		at.known = false
		delete(p.stacks, key)
	}
	m.last.Store(nil)
	p.mu.Unlock()
	return closeAll(ctx, closing)
}

func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	var closing []*instance
	for p.oldest != nil {
		closing = append(closing, p.evict())
	}
	p.mu.Unlock()
	return closeAll(ctx, closing)
}

func closeAll(ctx context.Context, instances []*instance) error {
	var errs []error
	for _, inst := range instances {
		errs = append(errs, inst.close(ctx))
	}
	return errors.Join(errs...)
}

// spare closes the instance that has been idle longest; false: there is none.
func (p *pool) spare(ctx context.Context) bool {
	p.mu.Lock()
	if p.oldest == nil {
		p.mu.Unlock()
		return false
	}
	inst := p.evict()
	p.mu.Unlock()
	_ = inst.close(ctx) // frees memory; it has no error to tell
	return true
}
