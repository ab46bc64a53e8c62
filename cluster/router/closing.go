package router

import (
	"sync"
	"sync/atomic"
	"time"
)

// closing is a drain gate: it counts open calls, and refuses new ones once it is closed.
// Its zero value is open.
type closing struct {
	shut   atomic.Bool
	inside sync.RWMutex
}

// enter reports whether the gate is open. If so, the caller must call leave when its call
// ends.
func (c *closing) enter() bool {
	c.inside.RLock()
	if c.shut.Load() {
		c.inside.RUnlock()
		return false
	}
	return true
}

func (c *closing) leave() { c.inside.RUnlock() }

// close refuses new calls, and waits at most for patience until the open ones have ended.
func (c *closing) close(patience time.Duration) {
	c.shut.Store(true)
	empty := make(chan struct{})
	go func() {
		c.inside.Lock()
		defer c.inside.Unlock()
		close(empty)
	}()
	select {
	case <-empty:
	case <-time.After(patience):
	}
}
