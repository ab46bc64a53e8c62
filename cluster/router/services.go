package router

import (
	"sync"

	"github.com/wheelworkhq/wheelwork/sched"
)

// Services holds the services of a partition while this server owns it, and counts the calls
// that use them.
type Services struct {
	Sched    *sched.Server
	services map[string]any // by the service's name
	Gone     chan struct{}  // closed when the partition is no longer served
	clean    bool           // calls that were not answered by then were not carried out; valid when Gone is closed

	mu     sync.RWMutex
	closed bool
	calls  sync.WaitGroup
}

// NewServices returns the services of a scheduler, open for calls.
func NewServices(s *sched.Server) *Services {
	r := &Services{Sched: s, services: map[string]any{}, Gone: make(chan struct{})}
	s.Register(registrar(r.services))
	return r
}

// Enter counts a call that uses the partition. It reports false when the partition is no
// longer served. After true the caller must call Leave.
func (r *Services) Enter() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.closed {
		r.calls.Add(1)
	}
	return !r.closed
}

// Leave ends a call that Enter has counted.
func (r *Services) Leave() { r.calls.Done() }

// Close cuts off the open calls and waits for them: after that, no call reads the
// partition's store. clean reports that the server ended in order.
func (r *Services) Close(clean bool) {
	r.mu.Lock()
	r.closed, r.clean = true, clean
	r.mu.Unlock()
	close(r.Gone)
	r.calls.Wait()
}
