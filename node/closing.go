package node

import (
	"sync"
	"sync/atomic"
	"time"
)

// closing is a door that those inside leave before it is shut. Its zero value is
// open.
type closing struct {
	shut   atomic.Bool
	inside sync.RWMutex
}

// enter reports whether the door is open; then leave is to be called.
func (c *closing) enter() bool {
	c.inside.RLock()
	if c.shut.Load() {
		c.inside.RUnlock()
		return false
	}
	return true
}

func (c *closing) leave() { c.inside.RUnlock() }

// close lets nobody in any more, and waits for a while until nobody is inside.
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
