package wasm

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// poolKey separates instances that must not stand in for one another.
type poolKey struct {
	module *module
	limit  int64 // bytes of memory
	app    string
	grants string // equal for equal grants
}

// instanceOverhead is roughly what an idle instance takes besides its memory.
const instanceOverhead = 32 << 10

// waiting are the instances of one key that wait for a task, the youngest last.
type waiting struct {
	key   poolKey
	stack []*instance
	known bool // invariant: it is among the pool's places; guarded by the pool's lock
}

// pool keeps idle instances, up to a number of bytes over all keys. The instance
// used last is used first again: its memory is warm. The one idle longest goes
// first.
type pool struct {
	mu     sync.Mutex
	max    int64
	bytes  int64                // invariant: sum of cost over idle
	places map[poolKey]*waiting // all with idle instances, and some without

	youngest, oldest *instance // ends of the list by age, linked by younger and older
}

func newPool(maxBytes int64) *pool {
	return &pool{max: maxBytes, places: make(map[poolKey]*waiting)}
}

func cost(inst *instance) int64 { return inst.size() + instanceOverhead }

// fits says whether there can be room for an instance at all.
func (p *pool) fits(inst *instance) bool { return cost(inst) <= p.max }

// place is where instances of a key wait.
func (p *pool) place(key poolKey) *waiting {
	if last := key.module.last.Load(); last != nil && last.key == key {
		return last
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.places[key]
	if at == nil {
		if len(p.places) >= maxPlaces {
			p.sweep()
		}
		at = &waiting{key: key, known: true}
		p.places[key] = at
	}
	key.module.last.Store(at)
	return at
}

// maxPlaces is how many places are kept before those without instances go.
const maxPlaces = 1024

// sweep forgets the places where nothing waits; an instance that runs brings
// its own back. The caller holds mu.
func (p *pool) sweep() {
	maps.DeleteFunc(p.places, func(_ poolKey, at *waiting) bool {
		at.known = len(at.stack) > 0
		return !at.known
	})
}

// get takes the youngest instance of a place.
func (p *pool) get(at *waiting) *instance {
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

// remove takes an instance out of the pool, which is number i of its place. The
// caller holds mu.
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

// evict takes out the instance idle longest, which is the oldest of its place
// too. A place that nobody waits in is forgotten. The caller holds mu.
func (p *pool) evict() *instance {
	inst := p.oldest
	p.remove(inst, 0)
	if at := inst.idle; len(at.stack) == 0 && at.known {
		at.known = false
		delete(p.places, at.key)
	}
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
	at := inst.idle
	if inst.module.gone || !p.fits(inst) {
		return []*instance{inst}
	}
	if !at.known { // it was forgotten while the instance ran
		if known := p.places[at.key]; known == nil {
			p.places[at.key], at.known = at, true
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

// len is the number of idle instances.
func (p *pool) len() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.places {
		n += len(at.stack)
	}
	return n
}

// drop closes a module's idle instances, and lets none come back.
func (p *pool) drop(ctx context.Context, m *module) error {
	p.mu.Lock()
	m.gone = true
	var closing []*instance
	for key, at := range p.places {
		if key.module != m {
			continue
		}
		for len(at.stack) > 0 {
			inst := at.stack[0]
			p.remove(inst, 0)
			closing = append(closing, inst)
		}
		at.known = false
		delete(p.places, key)
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
