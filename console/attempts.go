package console

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxAttempts is the number of failed sign-ins of an address at once; after that one is
	// allowed every attemptEvery.
	maxAttempts  = 10
	attemptEvery = 6 * time.Second
	// maxAddresses bounds the addresses, or the names, that are remembered.
	maxAddresses = 4096
)

// attempts limits the sign-ins of each address. An IPv6 network of 64 bits counts as one
// address. The zero value is ready.
type attempts struct{ budget[netip.Prefix] }

// take takes one attempt of an address. Without one it returns the time until the next.
func (a *attempts) take(from netip.Addr) (wait time.Duration) { return a.budget.take(network(from)) }

// giveBack returns the attempt of a sign-in that succeeded.
func (a *attempts) giveBack(from netip.Addr) { a.budget.giveBack(network(from)) }

// budget limits the attempts of each key. The zero value is ready.
type budget[K comparable] struct {
	mu sync.Mutex
	// free is the time at which all attempts of a key are allowed again.
	free map[K]time.Time
}

func (a *budget[K]) take(key K) (wait time.Duration) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	free := a.free[key]
	if free.Before(now) {
		free = now
	}
	free = free.Add(attemptEvery)
	if over := free.Sub(now) - maxAttempts*attemptEvery; over > 0 {
		return over
	}
	if a.free == nil || len(a.free) >= maxAddresses {
		a.forget(now)
	}
	a.free[key] = free
	return 0
}

func (a *budget[K]) giveBack(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if free, ok := a.free[key]; ok {
		a.free[key] = free.Add(-attemptEvery)
	}
}

// forget removes keys without failed attempts, and all of them if that makes no room:
// then an attacker has thousands of them anyway.
func (a *budget[K]) forget(now time.Time) {
	for key, free := range a.free {
		if !free.After(now) {
			delete(a.free, key)
		}
	}
	if a.free == nil || len(a.free) >= maxAddresses {
		a.free = map[K]time.Time{}
	}
}

func network(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address, as in a test without a connection
	}
	return p
}

// remoteAddress returns the address from which a request came.
func remoteAddress(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return a.Addr().Unmap()
}
