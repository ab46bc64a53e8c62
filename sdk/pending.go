package sdk

import (
	"context"
	"sync"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Pending is a command without an answer yet. It is safe for concurrent use.
type Pending struct {
	size int // size on the wire, in bytes

	// Guarded by producer.mu.
	command   *apiv1.Command // nil once over
	deadline  instant
	sentAt    instant // time of the first sending; 0: never sent
	uncertain bool    // a sending got no answer, so a server may have executed it
	over      bool    // the outcome is decided; answer and err do not change

	mu      sync.Mutex
	settled bool
	done    chan struct{} // created for the first waiter; closed by settle
	then    func(Answer, error)

	answer Answer
	err    error
}

// Answer is the server's answer to a command.
type Answer struct {
	Result Result
	RunID  string // of an executed trigger; empty otherwise
	// Message is the number of a command in the ingress of its server, with [Kept]; 0
	// otherwise.
	Message uint64
	// Sync is the durability of the server's acknowledgement: "always" (synced to the
	// device), "interval" (a power failure loses up to 100 ms) or "os".
	Sync string
}

// Done returns a channel that is closed when the command is answered or has failed.
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

// Wait blocks until the command is answered or has failed. If ctx ends first, Wait
// returns and the command continues.
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

// Then calls f once, when the command is answered or has failed. If that has happened
// already, it calls f at once. No goroutine waits for the answer.
//
// f runs where answers are read, so it must be quick and must not wait for a command or
// for room for one: [Client.TryTrigger] and the other Try forms are safe there.
// [Pending.Wait], [Client.Flush] and [Client.Close] return after f has returned. The
// functions of one app's commands run in the order of the answers; otherwise functions
// may run at the same time.
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

// settle calls the functions and then wakes the waiters. The caller has set answer and
// err before, and calls settle once.
func (c *Pending) settle() {
	c.mu.Lock()
	for c.then != nil { // a function may add another one
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
