package guest

import (
	"sync"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// recorder is a sink that records what it receives.
type recorder struct {
	mu       sync.Mutex
	lines    []string
	progress []step
}

type step struct {
	done, total int64
	message     string
}

func (r *recorder) Log(_ runtime.Level, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(line))
}

func (r *recorder) Progress(done, total int64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, step{done, total, message})
}

// newHost returns a host with one slot.
func newHost() *Host { return &Host{Slots: make(chan struct{}, 1)} }
