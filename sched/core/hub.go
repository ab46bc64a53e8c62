package core

import (
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/job"
)

// Hub wakes the subscribers of runs. The signal carries no data: a subscriber reads the
// state of the run when it is woken, so a slow one misses steps in between but never the
// last state. It is safe for concurrent use.
type Hub struct {
	n    atomic.Int64 // subscribers; notify takes no lock while there are none
	mu   sync.Mutex
	subs map[job.RunID]map[chan struct{}]struct{}
}

func newHub() *Hub { return &Hub{subs: map[job.RunID]map[chan struct{}]struct{}{}} }

// Watch returns a channel that is signalled when the run changes or its log grows. The
// caller calls stop when it no longer reads the channel.
func (h *Hub) Watch(id job.RunID) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[id] == nil {
		h.subs[id] = map[chan struct{}]struct{}{}
	}
	h.subs[id][ch] = struct{}{}
	h.n.Add(1)
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs[id], ch)
		if len(h.subs[id]) == 0 {
			delete(h.subs, id)
		}
		h.n.Add(-1)
	}
}

// Notify wakes the subscribers of a run.
func (h *Hub) Notify(id job.RunID) {
	if h.n.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.subs[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
