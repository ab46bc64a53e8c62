package pool

import "sync"

// Pool holds unused objects until the garbage collector runs. The zero value is empty. Its
// methods may be called concurrently.
//
// Gain: an object of 4 KiB from a pool takes 0.02 of the time of a new one, which also is
// work for the garbage collector (BenchmarkPool).
type Pool[T any] struct {
	// New makes an object for a pool that has none; nil: the zero value of T.
	New func() *T

	quarantine quarantine[T]
	free       sync.Pool // of *T
}

// Get returns an object, which may be one that was released.
func (p *Pool[T]) Get() *T {
	if t, ok := p.free.Get().(*T); ok {
		return t
	}
	if p.New != nil {
		return p.New()
	}
	return new(T)
}

// Release returns an object to the pool. The caller has removed what the object must not
// retain, and must not use the object afterwards.
func (p *Pool[T]) Release(t *T) {
	if !p.quarantine.hold(t) {
		p.free.Put(t)
	}
}
