package queue

import (
	"errors"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Copy is the durable content of a queue's log at one moment. No record of it is trimmed
// until Close, which the caller must call.
type Copy struct {
	q          *Queue
	first, end uint64
}

// Copy records the present extent of the queue's log. Write its records, in order, to an
// empty mq.Log with First as its Config.First: they are the log of a queue in the same
// state. Only messages with consumers differ; they are delivered again. The queue
// continues to work.
func (q *Queue) Copy() *Copy {
	q.trimming.RLock()
	return &Copy{q: q, first: q.log.First(), end: q.log.Durable()}
}

// First returns the sequence of the first record.
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

// Close allows the queue to trim its log again.
func (c *Copy) Close() { c.q.trimming.RUnlock() }
