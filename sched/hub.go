package sched

import (
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/job"
)

// hub wakes those who watch a run. It carries no news itself: who is woken
// looks, so a slow watcher misses steps but never the last one.
type hub struct {
	n    atomic.Int64 // watchers; spares the lock while there are none
	mu   sync.Mutex
	subs map[job.RunID]map[chan struct{}]struct{}
}

func newHub() *hub { return &hub{subs: map[job.RunID]map[chan struct{}]struct{}{}} }

// watch returns a channel that is signalled when the run changes or its log
// grows. The caller calls stop when done.
func (h *hub) watch(id job.RunID) (changed <-chan struct{}, stop func()) {
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

func (h *hub) notify(id job.RunID) {
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
