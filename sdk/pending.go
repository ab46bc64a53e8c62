package sdk

import (
	"context"
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Pending is a command on its way. It is safe for concurrent use.
type Pending struct {
	size int // of the command on the wire, in bytes

	// Guarded by producer.mu.
	command   *apiv1.Command // nil once over
	deadline  instant
	sentAt    instant // when it was first sent; 0: never
	uncertain bool    // a sending of it got no answer: a server may have carried it out
	over      bool    // its end is decided; answer and err are set and do not change

	mu      sync.Mutex
	settled bool
	done    chan struct{} // made when somebody waits; closed when settled
	then    func(Answer, error)

	answer Answer
	err    error
}

// Answer is what the server did with a command.
type Answer struct {
	Result Result
	RunID  string // of a trigger that was done; empty otherwise
	// Message is the number of a command that is kept, in the queue of its server; 0 otherwise.
	Message uint64
	// Sync is what the server's acknowledgement rests on: "always" (synced to the device), "interval" (a power cut
	// takes up to 100 ms) or "os".
	Sync string
}

// Done is closed when the command is answered or has failed.
func (c *Pending) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.settled {
			close(c.done)
		}
	}
	return c.done
}

// Wait blocks until the command is answered or has failed. Ending ctx ends the
// wait, not the command.
func (c *Pending) Wait(ctx context.Context) (Answer, error) {
	c.mu.Lock()
	settled := c.settled
	c.mu.Unlock()
	if settled {
		return c.answer, c.err
	}
	select {
	case <-c.Done():
		return c.answer, c.err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// Then calls f once, when the command is answered or has failed: at once if
// that was before. No goroutine waits for it. f runs where answers are read, so
// it must be quick and must not wait for a command, nor for room for one:
// [Client.TryTrigger] and its like are safe there. [Pending.Wait],
// [Client.Flush] and [Client.Close] return after f has. Functions of one app's
// commands are called in the order of the answers; otherwise they may be called
// at the same time.
func (c *Pending) Then(f func(Answer, error)) {
	c.mu.Lock()
	if c.settled {
		c.mu.Unlock()
		f(c.answer, c.err)
		return
	}
	if earlier := c.then; earlier == nil {
		c.then = f
	} else {
		c.then = func(answer Answer, err error) { earlier(answer, err); f(answer, err) }
	}
	c.mu.Unlock()
}

// settle tells those who wait, functions first. answer and err are set before,
// and it is called once.
func (c *Pending) settle() {
	c.mu.Lock()
	for c.then != nil { // one may add another
		then := c.then
		c.then = nil
		c.mu.Unlock()
		then(c.answer, c.err)
		c.mu.Lock()
	}
	c.settled = true
	done := c.done
	c.mu.Unlock()
	if done != nil {
		close(done)
	}
}

func settleAll(commands []*Pending) {
	for _, c := range commands {
		c.settle()
	}
}
