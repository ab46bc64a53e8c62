package xxljob

import (
	"cmp"
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// router remembers which executors the jobs have used.
type router struct {
	mu   sync.Mutex
	jobs map[int32]*usage
	tick uint64
}

// usage is what a job has used, by address.
type usage struct {
	next  uint64
	count map[string]uint64
	last  map[string]uint64
}

func newRouter() *router { return &router{jobs: map[int32]*usage{}} }

// choose returns the executors of an attempt: one, or all for a broadcast; none if no executor
// answers as the strategy wants it. addresses are sorted and not empty. beat asks an executor
// whether it is there, idle whether it has no run of the job.
func (r *router) choose(ctx context.Context, strategy string, job int32, addresses []string, beat, idle func(ctx context.Context, address string) bool) []string {
	switch strategy {
	case routeBroadcast:
		return addresses
	case routeFailover, routeBusyover:
		fits := beat
		if strategy == routeBusyover {
			fits = idle
		}
		for _, address := range addresses {
			if fits(ctx, address) {
				return []string{address}
			}
		}
		return nil
	}
	return []string{r.one(strategy, job, addresses)}
}

func (r *router) one(strategy string, job int32, addresses []string) string {
	switch strategy {
	case routeLast:
		return addresses[len(addresses)-1]
	case routeRandom:
		return addresses[rand.IntN(len(addresses))] //nolint:gosec // chance, not a secret
	case routeHash:
		return slices.MaxFunc(addresses, func(a, b string) int { return cmp.Compare(weight(job, a), weight(job, b)) })
	case routeRound, routeLeastUsed, routeLeastRecen:
		return r.remembered(strategy, job, addresses)
	}
	return addresses[0]
}

func (r *router) remembered(strategy string, job int32, addresses []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.jobs[job]
	if u == nil {
		u = &usage{next: rand.Uint64N(1000), count: map[string]uint64{}, last: map[string]uint64{}} //nolint:gosec // chance, not a secret
		r.jobs[job] = u
	}
	u.keep(addresses)
	var address string
	switch strategy {
	case routeRound:
		address = addresses[u.next%uint64(len(addresses))]
		u.next++
	case routeLeastUsed:
		address = slices.MinFunc(addresses, func(a, b string) int { return cmp.Compare(u.count[a], u.count[b]) })
	case routeLeastRecen:
		address = slices.MinFunc(addresses, func(a, b string) int { return cmp.Compare(u.last[a], u.last[b]) })
	}
	r.tick++
	u.count[address]++
	u.last[address] = r.tick
	return address
}

// keep forgets executors that have gone. A new one starts with the smallest count, so that it
// does not get all runs until it has caught up.
func (u *usage) keep(addresses []string) {
	for address := range u.count {
		if !slices.Contains(addresses, address) {
			delete(u.count, address)
			delete(u.last, address)
		}
	}
	least := uint64(math.MaxUint64)
	for _, n := range u.count {
		least = min(least, n)
	}
	if len(u.count) == 0 {
		least = 0
	}
	for _, address := range addresses {
		if _, known := u.count[address]; !known {
			u.count[address] = least
		}
	}
}

// weight orders the executors of a job by hashes: when one goes, only its jobs move.
func weight(job int32, address string) uint64 {
	h := fnv.New64a()
	h.Write([]byte{byte(job), byte(job >> 8), byte(job >> 16), byte(job >> 24)}) //nolint:errcheck // a hash never fails
	h.Write([]byte(address))                                                     //nolint:errcheck // a hash never fails
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}
