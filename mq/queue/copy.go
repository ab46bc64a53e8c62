package queue

import (
	"errors"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Copy is what was durable in a queue's log at one moment. Until Close, which has
// to be called, nothing of it is trimmed.
type Copy struct {
	q          *Queue
	first, end uint64
}

// Copy notes what is in the queue's log now. Its records, written in order to an
// empty mq.Log with First as its Config.First, are the log of a queue in the same
// state, but for what is with consumers, which is delivered again. The queue goes
// on working.
func (q *Queue) Copy() *Copy {
	q.trimming.RLock()
	return &Copy{q: q, first: q.log.First(), end: q.log.Durable()}
}

// First is the sequence of the first record.
func (c *Copy) First() uint64 { return c.first }

var errCopied = errors.New("all is copied")

// Each calls fn for each record. An error of fn ends it.
func (c *Copy) Each(fn func(mq.Entry) error) error {
	c.q.reading.RLock()
	defer c.q.reading.RUnlock()
	err := c.q.log.Read(c.first, func(e mq.Entry) error {
		if e.Seq >= c.end {
			return errCopied
		}
		return fn(e)
	})
	if errors.Is(err, errCopied) {
		return nil
	}
	return err
}

// Close lets the queue trim its log again.
func (c *Copy) Close() { c.q.trimming.RUnlock() }
